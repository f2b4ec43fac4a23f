"""Something to print to where a program has no console. Standard library only."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

_PARENT = 0xFFFFFFFF
"""The console of the process that started this one."""
_CONSOLE = "CONOUT$"


def restore_standard_streams() -> None:
    """Makes ``sys.stdout`` and ``sys.stderr`` take any text.

    A windowed program on Windows has neither, and what prints (ours, a library's, argparse) would
    fail. Started from a terminal, it prints there; else what it prints is thrown away. Where a
    stream's encoding lacks a character, as on a pipe of Windows, its number is printed.
    """
    if sys.stdout is None or sys.stderr is None:
        place = _CONSOLE if _has_console_of_parent() else os.devnull
        sys.stdout = sys.stdout or _open(place)
        sys.stderr = sys.stderr or _open(place)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _has_console_of_parent() -> bool:
    if sys.platform != "win32":
        return False
    import ctypes

    return bool(ctypes.windll.kernel32.AttachConsole(_PARENT))


def _open(place: str) -> TextIO:
    # Open as long as the process lives, as the streams that it stands for.
    try:
        return open(place, "w", encoding="utf-8", errors="replace", buffering=1)
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")
