"""What the Windows executable carries besides its program: icon, version, manifest."""

from __future__ import annotations

import re
from pathlib import Path

import icons

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "packaging" / "windows"
MANIFEST = FOLDER / "quire.manifest"

DESCRIPTION = "Quire, desktop chat with its own inference engine"
"""Shown by the task manager and by Windows' questions about the program."""

_VERSION_TEMPLATE = """\
VSVersionInfo(
  ffi=FixedFileInfo(
    filevers={numbers},
    prodvers={numbers},
    mask=0x3F, flags=0x0, OS=0x40004, fileType=0x1, subtype=0x0, date=(0, 0)
  ),
  kids=[
    StringFileInfo([StringTable('040904B0', [
      StringStruct('CompanyName', 'Quire'),
      StringStruct('FileDescription', {description!r}),
      StringStruct('FileVersion', {version!r}),
      StringStruct('InternalName', 'quire'),
      StringStruct('OriginalFilename', 'quire.exe'),
      StringStruct('ProductName', 'Quire'),
      StringStruct('ProductVersion', {version!r}),
    ])]),
    VarFileInfo([VarStruct('Translation', [0x0409, 0x04B0])])
  ]
)
"""


def version() -> str:
    """The version that pyproject.toml states."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^version = "([^"]+)"', text, re.MULTILINE)
    if match is None:
        raise ValueError("pyproject.toml states no version")
    return match[1]


def version_numbers(stated: str) -> tuple[int, int, int, int]:
    """Windows' four numbers of a version: 1.2.3rc1 → (1, 2, 3, 0)."""
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", stated)
    if match is None:
        raise ValueError(f"{stated!r} is no version")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch, 0


def version_resource(stated: str) -> str:
    """The version as the text that PyInstaller makes a version resource of."""
    numbers = version_numbers(stated)
    return _VERSION_TEMPLATE.format(numbers=numbers, version=stated, description=DESCRIPTION)


def executable_arguments(work: Path) -> dict[str, str]:
    """Arguments of PyInstaller's ``EXE``. Writes what has to be made into the folder ``work``."""
    work.mkdir(parents=True, exist_ok=True)
    version_file = work / "version.txt"
    version_file.write_text(version_resource(version()), encoding="utf-8")
    return {
        "icon": str(icons.write_ico(work / "quire.ico")),
        "version": str(version_file),
        "manifest": str(MANIFEST),
    }
