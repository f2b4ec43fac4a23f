"""The system's packages that own the libraries of a bundle, with their licences."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

MICROSOFT = "Microsoft C and C++ runtime"
_MICROSOFT_TEXT = """\
The libraries of Microsoft's C and C++ runtime are used unchanged, as "distributable code" under the
terms of Microsoft Visual Studio and of the Visual C++ Redistributable. Microsoft Corporation holds
the copyright. https://learn.microsoft.com/visualstudio/releases/2022/redistribution
"""

# Fedora and openSUSE, Arch: what prints the name of a file's package. Debian's answers for many.
_OWNER_COMMANDS = (("rpm", "-qf", "--qf", "%{NAME}\n"), ("pacman", "-Qqo"))
_VERSION_COMMANDS = (
    ("dpkg-query", "-W", "-f", "${Version}\n"),
    ("rpm", "-q", "--qf", "%{VERSION}-%{RELEASE}\n"),
    ("pacman", "-Q"),
)
_COMMON = Path("/usr/share/common-licenses")


def packages_of(libraries: Collection[Path]) -> dict[Path, str]:
    """The name of the package that each library of the system came with, where one is known."""
    if sys.platform == "win32":
        root = Path(os.environ.get("SYSTEMROOT", r"C:\Windows"))
        return {path: MICROSOFT for path in libraries if path.is_relative_to(root)}
    found = _debian_packages(libraries)
    for library in libraries:
        for command in _OWNER_COMMANDS if library not in found else ():
            if line := _first_line([*command, str(library)]):
                found[library] = line.strip()
    return found


def _debian_packages(libraries: Collection[Path]) -> dict[Path, str]:
    """What dpkg knows. Asked once: it reads the lists of all packages each time."""
    # /lib is a link to /usr/lib today, and dpkg knows a file under one of the two names.
    places = {}
    for library in libraries:
        places[str(library)] = places[str(library).removeprefix("/usr")] = library
    if not places or shutil.which("dpkg") is None:
        return {}
    done = subprocess.run(["dpkg", "-S", *places], capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        # "libz1:amd64: /lib/…/libz.so.1"
        owner, _colon, place = line.rpartition(": ")
        if place in places:
            found[places[place]] = owner.partition(":")[0]
    return found


def package_licence(package: str) -> tuple[str, str, str] | None:
    """(version, licence, text) of a package; None if its text is not installed."""
    if package == MICROSOFT:
        return "", "Microsoft's terms for distributable code", _MICROSOFT_TEXT
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in _licence_files(package)]
    if not texts:
        return None
    names = re.findall(r"^License: *(\S.*)$", texts[0], re.MULTILINE)
    licence = ", ".join(dict.fromkeys(name.strip() for name in names)) or "see the text"
    return _version(package), licence, "\n\n".join([*texts, *common_texts(texts[0])])


def common_texts(content: str) -> list[str]:
    """The texts that a Debian copyright file only names by their place."""
    names = sorted(set(re.findall(rf"{_COMMON}/([\w.+-]*[\w+-])", content)))
    return [
        f"=== {name}\n\n{(_COMMON / name).read_text(encoding='utf-8', errors='replace')}"
        for name in names
        if (_COMMON / name).is_file()
    ]


def _licence_files(package: str) -> list[Path]:
    debian = Path("/usr/share/doc") / package / "copyright"
    if debian.is_file():
        return [debian]
    return sorted(
        path for path in (Path("/usr/share/licenses") / package).rglob("*") if path.is_file()
    )


def _version(package: str) -> str:
    for command in _VERSION_COMMANDS:
        # pacman: "zlib 1.3"; the others: the version alone.
        if line := _first_line([*command, package]):
            return line.split()[-1]
    return ""


def _first_line(command: Sequence[str]) -> str:
    """The first line that a command prints; empty if it fails or is not there."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return lines[0] if done.returncode == 0 and lines else ""
