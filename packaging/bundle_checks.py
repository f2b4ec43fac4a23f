"""What a finished bundle must have: resolved libraries, Qt's plugins, SQLite's full-text search.

What is missing there shows on some user's desktop only; so the build fails instead.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from problem import Problem

INTERNAL = "_internal"

# Patterns of which each must match a file. Paths under the bundle's _internal.
LINUX_FILES = {
    "X11": "PySide6/Qt/plugins/platforms/libqxcb.so",
    "X11 with OpenGL": "PySide6/Qt/plugins/xcbglintegrations/*.so",
    "Wayland": "PySide6/Qt/plugins/platforms/libqwayland*.so",
    "windows under Wayland": "PySide6/Qt/plugins/wayland-shell-integration/libxdg-shell.so",
    "the self-test without a display": "PySide6/Qt/plugins/platforms/libqoffscreen.so",
    "Chinese input through ibus": "PySide6/Qt/plugins/platforminputcontexts/libibus*.so",
    "accents through compose": "PySide6/Qt/plugins/platforminputcontexts/libcompose*.so",
    "SVG pictures": "PySide6/Qt/plugins/imageformats/libqsvg.so",
    "SVG icons": "PySide6/Qt/plugins/iconengines/libqsvgicon.so",
    "Chinese texts of Qt": "PySide6/Qt/translations/qtbase_zh_CN.qm",
}
WINDOWS_FILES = {
    "the window": "PySide6/plugins/platforms/qwindows.dll",
    "the self-test without a display": "PySide6/plugins/platforms/qoffscreen.dll",
    "SVG pictures": "PySide6/plugins/imageformats/qsvg.dll",
    "SVG icons": "PySide6/plugins/iconengines/qsvgicon.dll",
    "the native style": "PySide6/plugins/styles/*.dll",
    "Chinese texts of Qt": "PySide6/translations/qtbase_zh_CN.qm",
}
COMMON_FILES = {
    "the starter model": "starter/*.gguf",
    "icons": "resources/icons/quire.svg",
    "Chinese texts": "resources/translations/zh_CN/*.toml",
    "licences": "licences/index.json",
    "kernels' sources": "kernels/rms_norm.py",
}

# What a Linux desktop has and a program must not bring: the C library, and what belongs to the
# graphics driver, the X server's protocol and the fonts of the machine.
HOST_LIBRARIES = (
    *("ld-linux-*", "libc.so.*", "libm.so.*", "libdl.so.*", "libpthread.so.*", "librt.so.*"),
    *("libutil.so.*", "libresolv.so.*", "libnsl.so.*", "linux-vdso.so.*", "libmvec.so.*"),
    *("libGL.so.*", "libGLX.so.*", "libGLdispatch.so.*", "libEGL.so.*", "libOpenGL.so.*"),
    *("libX11.so.*", "libX11-xcb.so.*", "libxcb.so.*", "libXau.so.*", "libXdmcp.so.*"),
    # Bundled ones would meet the graphics driver's own.
    "libwayland-*.so.*",
    *("libdrm.so.*", "libgbm.so.*", "libfontconfig.so.*", "libcuda.so.*", "libnvidia-*"),
)


def check_bundle(bundle: Path, platform: str = sys.platform) -> None:
    """Raises ``Problem`` if something that ``bundle`` must have is not there."""
    internal = bundle / INTERNAL
    if missing := missing_files(internal, platform):
        raise Problem(
            f"The bundle lacks files for {', '.join(missing)}.",
            "look at what spec_common.py drops, and at PyInstaller's warnings.",
        )
    if platform == "linux":
        check_libraries(internal)
    if not has_full_text_search(internal):
        raise Problem(
            "The bundle's SQLite has no FTS5, which the search over all conversations needs.",
            "build with a Python whose SQLite has it.",
        )


def missing_files(internal: Path, platform: str) -> list[str]:
    """What the patterns for this platform are for, where no file matches."""
    wanted = COMMON_FILES | (WINDOWS_FILES if platform == "win32" else LINUX_FILES)
    return [use for use, pattern in wanted.items() if not any(internal.glob(pattern))]


def check_libraries(internal: Path) -> None:
    """Raises ``Problem`` if a library of the bundle needs one that neither it nor a desktop has."""
    if shutil.which("ldd") is None:
        raise Problem("ldd is missing, the bundle cannot be checked.", "install the C library's.")
    unresolved, foreign = dependencies(internal)
    if unresolved:
        lines = [f"{name} (for {', '.join(users)})" for name, users in sorted(unresolved.items())]
        raise Problem(
            f"{len(lines)} libraries that the bundle needs were not found: {'; '.join(lines)}.",
            "install them where the build runs, or drop in spec_common.py what needs them.",
        )
    if foreign:
        lines = [f"{name} (for {', '.join(users)})" for name, users in sorted(foreign.items())]
        raise Problem(
            f"{len(lines)} libraries come from this machine and are not in the bundle: "
            f"{'; '.join(lines)}.",
            "collect them in spec_common.py, or name them among bundle_checks.HOST_LIBRARIES if "
            "every desktop has them.",
        )


def dependencies(internal: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """(not found, found outside the bundle) → the files that need it; host libraries left out."""
    unresolved: dict[str, list[str]] = {}
    foreign: dict[str, list[str]] = {}
    root = internal.resolve()
    for file, lines in _ldd(elf_files(internal), root):
        for line in lines:
            name, _arrow, place = line.partition(" => ")
            name, place = Path(name.split(" ")[0]).name, place.rpartition(" (")[0] or place
            if place == "not found" and not is_host_library(name):
                unresolved.setdefault(name, []).append(str(file.relative_to(internal)))
            elif place and not is_host_library(name) and not _is_under(place, root):
                foreign.setdefault(name, []).append(str(file.relative_to(internal)))
    return unresolved, foreign


def _is_under(place: str, root: Path) -> bool:
    return Path(os.path.normpath(place)).is_relative_to(root)


def is_host_library(name: str) -> bool:
    """Whether every desktop has this library, so that the bundle need not."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in HOST_LIBRARIES)


def elf_files(internal: Path) -> list[Path]:
    """The libraries of a bundle, links left out."""
    return sorted(
        path
        for path in internal.rglob("*.so*")
        if re.search(r"\.so(\.\d+)*$", path.name) and path.is_file() and not path.is_symlink()
    )


def _ldd(files: Sequence[Path], root: Path) -> Iterable[tuple[Path, list[str]]]:
    """What ldd says of each of ``files``, with the library path that the bootloader sets."""
    if not files:
        return
    # Several at once, so that ldd prints a headline for each.
    command = ["ldd", *(str(path) for path in files), str(files[0])]
    env = {**os.environ, "LC_ALL": "C", "LD_LIBRARY_PATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    by_name = {f"{path}:": path for path in files}
    current: Path | None = None
    found: dict[Path, list[str]] = {}
    for line in done.stdout.splitlines():
        if line in by_name:
            current = by_name[line]
            found[current] = []
        elif current is not None:
            found[current].append(line.strip())
    yield from found.items()


def has_full_text_search(internal: Path) -> bool:
    """Whether the bundle's SQLite was compiled with FTS5."""
    libraries = [*internal.glob("libsqlite3*"), *internal.glob("sqlite3*.dll")]
    # Some builds of Python have it inside their module.
    libraries += [*internal.glob("**/_sqlite3*.so"), *internal.glob("**/_sqlite3*.pyd")]
    code = (
        "import ctypes, sys\n"
        "ask = ctypes.CDLL(sys.argv[1]).sqlite3_compileoption_used\n"
        "ask.argtypes = [ctypes.c_char_p]\n"
        "sys.exit(0 if ask(b'ENABLE_FTS5') else 1)"
    )
    for library in libraries:
        # In a process of its own: this one has a SQLite already.
        command = [sys.executable, "-c", code, str(library)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return True
    return False
