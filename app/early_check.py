"""What is said when the window's own libraries cannot be loaded, before there is a window.

Qt aborts the process if no plugin for the display can be loaded, and blames a library that is
usually there. Here the plugin is loaded by hand to learn the true reason, after the fact, so that a
start that works pays nothing.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from app.without_qt import say, tr

NO_WINDOW = 3
"""Exit status, as for a profile that cannot be opened."""


def explain_import_error(error: ImportError) -> int:
    """Says which library is missing and returns the exit status."""
    detail = "".join(traceback.format_exception(error))
    cause, action = _missing(str(error)), _repair(str(error))
    if isinstance(error, ModuleNotFoundError):
        cause = tr("A part of the program is missing: {name}.", name=str(error.name))
        action = tr("A part of the program is gone: unpack or install it again.")
    say(cause, action, os.environ, detail)
    return NO_WINDOW


@contextmanager
def fatal_errors_in_words() -> Iterator[None]:
    """While inside, a fatal error of Qt is explained and ends the process with ``NO_WINDOW``."""
    from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

    def on_message(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
        if kind is not QtMsgType.QtFatalMsg:
            if sys.stderr is not None:
                sys.stderr.write(f"{text}\n")
            return
        cause, action = explain_no_platform(os.environ, _platform_plugins())
        say(cause, action, os.environ, text)
        # Returning would let Qt abort, which some desktops report as a crash.
        os._exit(NO_WINDOW)

    before = qInstallMessageHandler(on_message)
    try:
        yield
    finally:
        qInstallMessageHandler(before)


def explain_no_platform(environ: Mapping[str, str], folder: Path) -> tuple[str, str]:
    """(cause, action) where Qt has found no way to the display.

    Args:
        environ: the environment that Qt looked at.
        folder: of the plugins for platforms.
    """
    wanted = wanted_platforms(environ)
    if not wanted:
        return (
            tr("There is no display: neither DISPLAY nor WAYLAND_DISPLAY is set."),
            tr("Start Quire from a desktop session, over `ssh -X`, or under `xvfb-run`."),
        )
    # The first one is what the desktop is; the others are ways around it.
    for platform in wanted:
        fault = plugin_fault(platform, folder)
        if fault is not None:
            return fault
    places = {"xcb": environ.get("DISPLAY", ""), "wayland": environ.get("WAYLAND_DISPLAY", "")}
    shown = ", ".join(f"{name} {places.get(name, '')}".strip() for name in wanted)
    return (
        tr("The display cannot be reached ({names}).", names=shown),
        tr("Check DISPLAY, WAYLAND_DISPLAY and QT_QPA_PLATFORM, or start it from the desktop."),
    )


def wanted_platforms(environ: Mapping[str, str]) -> list[str]:
    """Qt's platforms in the order in which they are tried here; empty without a display."""
    if chosen := environ.get("QT_QPA_PLATFORM", ""):
        return [name.partition(":")[0] for name in chosen.split(";") if name]
    if sys.platform == "win32":
        return ["windows"]
    wayland = bool(environ.get("WAYLAND_DISPLAY"))
    x11 = bool(environ.get("DISPLAY"))
    return ["wayland"] * wayland + ["xcb"] * x11


def plugin_fault(platform: str, folder: Path) -> tuple[str, str] | None:
    """(cause, action) if a platform's plugin is not there or cannot be loaded; else None."""
    plugin = folder / (f"q{platform}.dll" if sys.platform == "win32" else f"libq{platform}.so")
    if not plugin.is_file():
        return (
            tr("Qt's plugin for the display is missing: {path}.", path=str(plugin)),
            tr("A part of the program is gone: unpack or install it again."),
        )
    try:
        ctypes.CDLL(str(plugin))
    except OSError as error:
        return _missing(str(error)), _repair(str(error))
    return None


def _platform_plugins() -> Path:
    from PySide6.QtCore import QLibraryInfo

    return Path(QLibraryInfo.path(QLibraryInfo.LibraryPath.PluginsPath)) / "platforms"


def _missing(message: str) -> str:
    """The dynamic linker's message in words."""
    if found := re.match(r"(\S+\.so[.\d]*): cannot open shared object", message):
        return tr("A library that the window needs is missing: {name}.", name=found[1])
    return tr("A library that the window needs cannot be loaded: {why}.", why=message.rstrip("."))


def _repair(message: str) -> str:
    if re.match(r"lib(Qt6|pyside6|shiboken6|python)", message) or sys.platform == "win32":
        return tr("A part of the program is gone: unpack or install it again.")
    return tr(
        "Install the package of your system that holds it; if it is a part of this program, "
        "unpack the program again."
    )
