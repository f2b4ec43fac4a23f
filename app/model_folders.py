"""Looks into folders for models, on a thread of its own, and again when they change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, Qt, QTimer, Signal, Slot

from app.library.scan import FolderScan, FoundModel, look_at, scan_folder

_LOG = logging.getLogger(__name__)

POLL_MS = 4000
"""Network folders and disks that are unplugged tell nobody; so they are looked into now and then
while somebody looks at the list, more seldom where that takes long."""
_POLL_FACTOR = 20
_CALM_MS = 400
"""A file that is being copied changes its folder many times a second."""
_MAX_WATCHED = 256

Wanted = Callable[[], tuple[Sequence[str], Sequence[str]]]


class ModelFolders(QObject):
    """``scanned(scans, singles)``: what is in the folders (``FolderScan``), and what has become of
    the single files (``FoundModel``).
    """

    scanned = Signal(object, object)
    _done = Signal(object, object, float)

    def __init__(self, wanted: Wanted, parent: QObject) -> None:
        """``wanted``: gives the folders to look into, and the single files."""
        super().__init__(parent)
        self._wanted = wanted
        self._is_scanning = self._scans_again = False
        self._watcher: QFileSystemWatcher | None = None
        self._visited: list[str] = []
        self._calm, self._poll = QTimer(self), QTimer(self)
        self._calm.setInterval(_CALM_MS)
        for timer in (self._calm, self._poll):
            timer.setSingleShot(True)
            timer.timeout.connect(self.refresh)
        self._done.connect(self._on_done, Qt.ConnectionType.QueuedConnection)

    @Slot()
    def refresh(self) -> None:
        """Looks again; ``scanned`` follows, once for all that was asked meanwhile."""
        if self._is_scanning:
            self._scans_again = True
            return
        self._is_scanning = True
        folders, files = (tuple(part) for part in self._wanted())

        def work() -> None:
            began = time.monotonic()
            scans = tuple(map(_scan, folders))
            singles = tuple(map(_look_at, files))
            # The session may have gone meanwhile.
            with suppress(RuntimeError):
                self._done.emit(scans, singles, time.monotonic() - began)

        threading.Thread(target=work, name="model-scan", daemon=True).start()

    def set_watching(self, watches: bool) -> None:
        """Whether folders are looked into whenever something in them changes."""
        if not watches:
            if self._watcher is not None:
                self._watcher.deleteLater()
            self._watcher = None
            self._calm.stop()
            self._poll.stop()
        elif self._watcher is None:
            self._watcher = QFileSystemWatcher(self)
            self._watcher.directoryChanged.connect(self._on_watcher_changed)
            self._watch()
            self.refresh()

    def _watch(self) -> None:
        if self._watcher is None:
            return
        old, new = set(self._watcher.directories()), set(self._visited)
        if gone := sorted(old - new):
            self._watcher.removePaths(gone)
        if come := sorted(new - old):
            self._watcher.addPaths(come)

    @Slot(str)
    def _on_watcher_changed(self, _folder: str) -> None:
        self._calm.start()

    @Slot(object, object, float)
    def _on_done(self, scans: Sequence[FolderScan], singles: object, took_s: float) -> None:
        self._is_scanning = False
        self._visited = [place for scan in scans for place in scan.visited][:_MAX_WATCHED]
        self._watch()
        if self._watcher is not None:
            self._poll.start(max(POLL_MS, round(took_s * 1000.0 * _POLL_FACTOR)))
        self.scanned.emit(scans, singles)
        if self._scans_again:
            self._scans_again = False
            self.refresh()


def _scan(folder: str) -> FolderScan:
    """A fault with one folder must not keep all models from being listed, for the whole session."""
    try:
        return scan_folder(Path(folder))
    except Exception as error:
        _LOG.exception("looking into %s", folder)
        return FolderScan(folder, problem=str(error) or type(error).__name__)


def _look_at(path: str) -> FoundModel:
    try:
        return look_at(Path(path))
    except Exception:
        _LOG.exception("looking at %s", path)
        return FoundModel(path, exists=False)
