"""A second start with the same profile brings the first window to the front."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

_WAIT_MS = 1000


def server_name(data_dir: Path) -> str:
    """The same for the same profile, whatever way its path is written."""
    path = os.path.normcase(os.path.realpath(data_dir))
    return "quire-" + hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def ask_to_raise(data_dir: Path) -> bool:
    """Asks the process that has this profile open to show its window. False if none answered."""
    socket = QLocalSocket()
    socket.connectToServer(server_name(data_dir))
    answered = socket.waitForConnected(_WAIT_MS)
    if answered:
        socket.disconnectFromServer()
    return answered


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
        self.is_listening = self._server.listen(name)

    def close(self) -> None:
        """Stops listening."""
        self._server.close()

    @Slot()
    def _on_server_new_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            socket.disconnectFromServer()
        self.raise_requested.emit()
