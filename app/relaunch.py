"""Starting the program again, in a new process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence

from PySide6.QtCore import QProcess

_LOG = logging.getLogger(__name__)

Start = Callable[[str, list[str], str], bool]
"""Starts a program that outlives this one: its path, its arguments, the folder to start it in."""


def command_line(
    executable: str, original: Sequence[str], arguments: Sequence[str], *, is_frozen: bool
) -> tuple[str, list[str]]:
    """The program and the arguments with which this process was started.

    Args:
        executable: ``sys.executable``.
        original: ``sys.orig_argv``, the interpreter's own arguments among them.
        arguments: ``sys.argv``.
        is_frozen: the program is its own executable, without an interpreter.
    """
    return executable, list(arguments[1:] if is_frozen else original[1:])


def relaunch(start: Start | None = None) -> bool:
    """Starts this program once more as it was started. False if that failed.

    Call when nothing is open any more: the new process wants the profile's lock.
    """
    is_frozen = bool(getattr(sys, "frozen", False))
    if is_frozen:
        # Otherwise PyInstaller takes the new process for a helper of this one.
        os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
    program, arguments = command_line(sys.executable, sys.orig_argv, sys.argv, is_frozen=is_frozen)
    _LOG.info("starting again: %s %s", program, arguments)
    started = (start or _start_detached)(program, arguments, os.getcwd())
    if not started:
        _LOG.error("the program could not be started again: %s", program)
    return started


def _start_detached(program: str, arguments: list[str], folder: str) -> bool:
    started = QProcess.startDetached(program, arguments, folder)
    # Some versions of the binding give the process id too.
    return bool(started[0] if isinstance(started, tuple) else started)
