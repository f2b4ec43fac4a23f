"""A second start with the same profile brings the first window to the front."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

_LOG = logging.getLogger(__name__)

WAIT_S = 5.0
"""How long the first process may take from locking the profile to listening."""
_PAUSE_S = 0.1
_ANY_PROCESS = -1


def server_name(data_dir: Path) -> str:
    """The same for the same profile, whatever way its path is written."""
    path = os.path.normcase(os.path.realpath(data_dir))
    return "quire-" + hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def ask_to_raise(data_dir: Path) -> bool:
    """Asks the process that has this profile open to show its window. False if none answered."""
    name, deadline = server_name(data_dir), time.monotonic() + WAIT_S
    _give_up_the_foreground()
    while True:
        socket = QLocalSocket()
        socket.connectToServer(name)
        if socket.waitForConnected(round(WAIT_S * 1000)):
            socket.disconnectFromServer()
            return True
        if time.monotonic() > deadline:
            return False
        # It may have been started a moment ago, by the same double click.
        time.sleep(_PAUSE_S)


def _give_up_the_foreground() -> None:
    """Windows lets only the process that the user has just started put a window in front."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.user32.AllowSetForegroundWindow(_ANY_PROCESS)


class RaiseServer(QObject):
    """Emits ``raise_requested`` when a second process asks. The caller holds the profile's lock."""

    raise_requested = Signal()

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_server_new_connection)
        name = server_name(data_dir)
        # A killed process leaves its socket file; with the lock held, nobody can be listening on
        # it.
        QLocalServer.removeServer(name)
        if not self._server.listen(name):
            _LOG.warning("a second start cannot raise this window: %s", self._server.errorString())

    def close(self) -> None:
        """Stops listening."""
        self._server.close()

    @Slot()
    def _on_server_new_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            socket.disconnectFromServer()
        self.raise_requested.emit()
