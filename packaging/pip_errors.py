"""Says in words why pip failed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from problem import Problem

NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|"
    r"getaddrinfo failed|Network is unreachable|No route to host|ConnectTimeout|Read timed out|"
    r"ProxyError|Connection refused|RemoteDisconnected"
)
CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError")
DISK = re.compile(r"No space left on device|Errno 28|not enough space on the disk", re.IGNORECASE)
NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")


def explain_pip_failure(errors: str, folder: Path) -> Problem:
    """The ``Problem`` behind what pip wrote to standard error while installing into ``folder``."""
    if DISK.search(errors):
        free_mb = shutil.disk_usage(folder).free // 10**6
        return Problem(
            f"The disk filled up while installing: {free_mb:,} MB are free at {folder} now.",
            "free some gigabytes (the temporary folder may lie on a smaller disk: set TMPDIR, on "
            "Windows TEMP), then run the same command again.",
        )
    if CERTIFICATE.search(errors):
        return Problem(
            "The package index's certificate was not accepted.",
            "if your network inspects traffic, tell pip its certificate "
            "(`pip config set global.cert FILE`); check the computer's date too.",
        )
    # A missing network ends in "No matching distribution" as well, so it is looked for first.
    if match := NETWORK.search(errors):
        return Problem(
            f"The package index cannot be reached ({match.group(0)}).",
            "check the network (behind a proxy set HTTPS_PROXY) and run the same command again; "
            "pip keeps the downloads that it finished.",
        )
    if match := NOT_FOUND.search(errors):
        return Problem(
            f"The package index has no {match.group(1)} for this Python and system.",
            "try another Python version from 3.11 on; with --torch-index check that the address "
            "offers that version of torch.",
        )
    return Problem("pip failed; its own message is above.", "mend what it names and run it again.")
