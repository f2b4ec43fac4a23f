"""Ctrl+C and SIGTERM end the event loop at once, without a polling timer."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier, Slot


class TerminationSignals(QObject):
    """Calls ``on_signal`` in the GUI thread for SIGINT, SIGTERM, SIGHUP and a Windows relative.

    Python handles signals only between two of its own instructions, and Qt's loop runs none while
    idle. So the C-level handler writes to a socket that the loop watches.
    """

    def __init__(self, on_signal: Callable[[], None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._on_signal = on_signal
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_notifier_activated)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        self._old = {number: signal.signal(number, self._handle) for number in numbers}

    def restore(self) -> None:
        """Puts back what was before."""
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._notifier.setEnabled(False)
        self._read.close()
        self._write.close()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        """Does nothing: it may run in the middle of any code, even of a paint event."""

    @Slot()
    def _on_notifier_activated(self) -> None:
        try:
            arrived = self._read.recv(64)
        except BlockingIOError:
            return
        if any(number in self._old for number in arrived):
            self._on_signal()
