"""Telling the user why no window can open. Qt-free: Qt may be what is broken."""

from __future__ import annotations

import locale
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from app import paths

_CATALOGUE = Path(__file__).resolve().parent.parent / "resources/translations/zh_CN/frozen.toml"
_ERROR_ICON = 0x10
_INVISIBLE = ("offscreen", "minimal", "vnc")


def tr(text: str, **values: object) -> str:
    """``text`` in the language of the desktop, with ``{name}`` filled from ``values``.

    Only texts of ``frozen.toml`` are known here; ``app.i18n`` needs Qt.
    """
    translated = _translations().get(text, text) if _speaks_chinese() else text
    return translated.format(**values) if values else translated


def say(cause: str, action: str, environ: Mapping[str, str], detail: str = "") -> None:
    """Says it on stderr, in the log and, where there is a desktop, in a box of the desktop's own.

    Args:
        cause: what is wrong.
        action: what to do.
        environ: the environment; it tells whether there is a desktop.
        detail: for the log only.
    """
    if sys.stderr is not None:
        sys.stderr.write(f"{cause}\n{action}\n")
        sys.stderr.flush()
    _log(f"{cause} {action}\n{detail}".rstrip())
    if environ.get("QT_QPA_PLATFORM", "").startswith(_INVISIBLE):
        return
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.user32.MessageBoxW(None, f"{cause}\n\n{action}", paths.APP_NAME, _ERROR_ICON)
    elif command := box_command(f"{cause}\n\n{action}", environ):
        # Not waited for: the box stays when this process is gone.
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def box_command(text: str, environ: Mapping[str, str]) -> Sequence[str]:
    """The command that shows ``text`` on this desktop; empty without a desktop or such a tool."""
    x11 = bool(environ.get("DISPLAY"))
    if not x11 and not environ.get("WAYLAND_DISPLAY"):
        return ()
    name = paths.APP_NAME
    commands: tuple[tuple[str, ...], ...] = (
        ("zenity", "--error", "--no-markup", "--title", name, "--text", text),
        ("kdialog", "--title", name, "--error", text),
    )
    if x11:
        commands += (("xmessage", "-center", "-title", name, text),)
    for command in commands:
        if shutil.which(command[0], path=environ.get("PATH")):
            return command
    return ()


def _log(text: str) -> None:
    """One more entry in the log of the ordinary profile. A log that cannot be written is none."""
    try:
        profile = paths.Profile(paths.data_dir())
        profile.data_dir.mkdir(parents=True, exist_ok=True)
        with profile.log_file.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} CRITICAL {text}\n")
    except OSError:
        return


def _speaks_chinese() -> bool:
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(variable):
            return value.startswith("zh")
    # Python gives Windows' own name of the language, or the one that it has made of it.
    name = locale.getlocale()[0] or ""
    return sys.platform == "win32" and name.startswith(("Chinese", "zh"))


@lru_cache(maxsize=1)
def _translations() -> dict[str, str]:
    try:
        return tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
