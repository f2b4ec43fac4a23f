"""What the desktop wants to know of the program: menu entry, description, icons, an installer."""

from __future__ import annotations

from pathlib import Path

import icons

FOLDER = Path(__file__).resolve().parent / "linux"
APPSTREAM_ID = "local.quire.Quire"
_FILES = ("quire.desktop", f"{APPSTREAM_ID}.metainfo.xml", "install.sh")


def extra_files(platform: str, work: Path) -> list[tuple[Path, str]]:
    """Files that a build for ``platform`` carries beside its program, and where.

    Returns (source, place) pairs; places are relative to the program's folder, with slashes. The
    icons are drawn into the folder ``work``. Windows has its icon in the executable, and its menu
    entry from the installer.
    """
    if platform != "linux":
        return []
    found = [(FOLDER / name, name) for name in _FILES]
    found.append((icons.SOURCE, "icons/hicolor/scalable/apps/quire.svg"))
    for size in icons.PNG_SIZES:
        place = f"icons/hicolor/{size}x{size}/apps/quire.png"
        path = work / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(icons.png(size))
        found.append((path, place))
    return found
