"""Which system libraries Qt lacks on Linux.

Qt's own message always blames libxcb-cursor0, whatever is missing; ldd tells the truth.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from problem import Problem

# Paths under PySide6/Qt. The first group is needed on every platform.
COMMON_FILES = ("lib/libQt6Widgets.so.6", "lib/libQt6Network.so.6", "lib/libQt6Svg.so.6")
PLATFORM_FILES = {
    "offscreen": ("plugins/platforms/libqoffscreen.so",),
    "xcb": ("plugins/platforms/libqxcb.so", "lib/libQt6XcbQpa.so.6"),
    "wayland": ("plugins/platforms/libqwayland.so", "lib/libQt6WaylandClient.so.6"),
}

# Looked up with `dpkg -S` on Debian 12; Ubuntu's renamed packages (…t64) provide the same names.
DEBIAN_PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libglx0",
    "libOpenGL.so.0": "libopengl0",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libX11.so.6": "libx11-6",
    "libbrotlicommon.so.1": "libbrotli1",
    "libbrotlidec.so.1": "libbrotli1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libharfbuzz.so.0": "libharfbuzz0b",
    "libstdc++.so.6": "libstdc++6",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb.so.1": "libxcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libz.so.1": "zlib1g",
    "libzstd.so.1": "libzstd1",
}
FONT_PACKAGE = "fonts-dejavu-core"


def platform_of(environ: Mapping[str, str]) -> str:
    """Qt's platform under these environment variables on Linux; empty if there is no display."""
    if chosen := environ.get("QT_QPA_PLATFORM", ""):
        return chosen.split(";")[0].split(":")[0]
    x11 = bool(environ.get("DISPLAY"))
    if environ.get("WAYLAND_DISPLAY") and (environ.get("XDG_SESSION_TYPE") == "wayland" or not x11):
        return "wayland"
    return "xcb" if x11 else ""


def check_display(environ: Mapping[str, str]) -> None:
    """Raises ``Problem`` where no window can open. Linux only."""
    if not platform_of(environ):
        raise Problem(
            "There is no display: neither DISPLAY nor WAYLAND_DISPLAY is set.",
            "start it from a desktop session, over `ssh -X`, or under `xvfb-run`. "
            "With QT_QPA_PLATFORM=offscreen it runs without a visible window, "
            "for example `… dev.py run --self-test`.",
        )


def parse_missing(ldd_output: str) -> list[str]:
    """The libraries that ldd did not find, each once, in order of name."""
    lines = (line.strip() for line in ldd_output.splitlines())
    return sorted({line.split()[0] for line in lines if line.endswith("=> not found")})


def missing_libraries(qt_folder: Path, platform: str) -> list[str]:
    """Libraries that Qt's ``platform`` needs and the system lacks; ``qt_folder`` is PySide6/Qt.

    Empty where there is no ldd (musl): Qt will then say it itself.
    """
    if not shutil.which("ldd"):
        return []
    files = [qt_folder / name for name in (*COMMON_FILES, *PLATFORM_FILES.get(platform, ()))]
    command = ["ldd", *(str(path) for path in files if path.exists())]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False
    )
    return parse_missing(done.stdout)


def debian_packages(libraries: Iterable[str]) -> tuple[list[str], list[str]]:
    """Splits ``libraries`` into the packages that bring them and those we know no package for."""
    known: set[str] = set()
    unknown: list[str] = []
    for library in libraries:
        if package := DEBIAN_PACKAGES.get(library):
            known.add(package)
        else:
            unknown.append(library)
    return sorted(known), unknown


def libraries_problem(platform: str, libraries: list[str]) -> Problem:
    """The ``Problem`` for missing ``libraries``, with the packages to install."""
    packages, unknown = debian_packages(libraries)
    lines = []
    if packages:
        lines.append(f"on Debian or Ubuntu `sudo apt install {' '.join(packages)}`;")
    lines.append("elsewhere install the packages that hold these libraries.")
    if unknown:
        lines.append(f"No Debian package is known here for {', '.join(unknown)}.")
    return Problem(
        f"Qt's {platform} platform lacks {len(libraries)} system "
        f"{'library' if len(libraries) == 1 else 'libraries'}: {', '.join(libraries)}.",
        " ".join(lines),
    )


def has_fonts() -> bool:
    """Whether fontconfig finds any font; without one Qt warns and draws no text."""
    folders = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".fonts"]
    return any(
        next(folder.rglob(f"*.{kind}"), None) is not None
        for folder in folders
        for kind in ("ttf", "otf", "ttc")
    )


def install_on_debian(packages: list[str]) -> bool:
    """Installs ``packages`` with apt-get when that is possible without asking; says whether it did.

    Only as root: a test machine is, a user is asked to do it instead.
    """
    if sys.platform == "win32":
        return False
    apt = shutil.which("apt-get")
    if not packages or apt is None or os.geteuid() != 0:
        return False
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"Installing with apt-get: {' '.join(packages)}", flush=True)
    if subprocess.call([apt, "update", "-qq"], env=env) != 0:
        return False
    command = [apt, "install", "-y", "-qq", "--no-install-recommends", *packages]
    return subprocess.call(command, env=env) == 0
