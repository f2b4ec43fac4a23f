"""Makes the Windows installer of a finished build with Inno Setup."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import icons
from problem import Problem
from windows_resources import version_numbers

SCRIPT = Path(__file__).resolve().parent / "windows" / "quire.iss"
COMPILER = "ISCC.exe"


def find_compiler(environ: Mapping[str, str]) -> Path | None:
    """Inno Setup's command line compiler; None where Inno Setup is not installed."""
    if found := shutil.which(COMPILER):
        return Path(found)
    folders = [environ.get(name) for name in ("ProgramFiles(x86)", "ProgramFiles", "LOCALAPPDATA")]
    for folder in filter(None, folders):
        for place in ("Inno Setup 6", "Programs/Inno Setup 6"):
            candidate = Path(folder) / place / COMPILER
            if candidate.is_file():
                return candidate
    return None


def values(bundle: Path, version: str, variant: str, out: Path, icon: Path) -> dict[str, str]:
    """What the script asks for, by name."""
    return {
        "AppVersion": version,
        "AppNumbers": ".".join(map(str, version_numbers(version))),
        "Variant": variant,
        "SourceDir": str(bundle),
        "OutputDir": str(out),
        "IconFile": str(icon),
    }


def make_installer(bundle: Path, version: str, variant: str, out: Path) -> Path | None:
    """Packs ``bundle`` into an installer in the folder ``out`` and returns it.

    None, with a note on what to install, where Inno Setup is not there. Raises ``Problem``.
    """
    compiler = find_compiler(os.environ)
    if compiler is None:
        print("Note: no installer was made. Install Inno Setup 6 and build again to have one.")
        return None
    icon = icons.write_ico(out.parent / "build" / "windows" / "quire.ico")
    defined = values(bundle, version, variant, out, icon)
    options = [f"/D{name}={value}" for name, value in defined.items()]
    status = subprocess.call([str(compiler), "/Qp", *options, str(SCRIPT)])
    if status != 0:
        raise Problem(
            f"Inno Setup ended with status {status}.", "mend what its own message above names."
        )
    return out / f"quire-{version}-windows-x86_64-{variant}-setup.exe"
