"""Text files that are dropped on the window or chosen: read on a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from PySide6.QtCore import QMimeData, QObject, QStandardPaths, Qt, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.i18n import tr
from app.text_files import AttachmentError, TooManyAttachmentsError, read_text_file

MAX_FILES = 20
_PATIENCE_MS = 300


class FileReader(QObject):
    """Reads files one after the other.

    Signals:
        file_read(Attachment), file_refused(ErrorInfo): one of them for each file; the latter also
            once for all that are too many.
        busy_changed(names): of the files that are still read, once that takes long; else empty.
    """

    file_read = Signal(object)
    file_refused = Signal(object)
    busy_changed = Signal(str)
    _done = Signal(object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waiting: list[Path] = []
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(_PATIENCE_MS)
        self._patience.timeout.connect(self._tell_busy)
        self._done.connect(self._on_done, Qt.ConnectionType.QueuedConnection)

    @property
    def unread(self) -> tuple[Path, ...]:
        """The files that are still read or wait for it."""
        return tuple(self._waiting)

    def read(self, paths: Sequence[Path]) -> None:
        """Reads ``paths``, at most ``MAX_FILES`` of them; that there are more is told."""
        was_idle = not self._waiting
        self._waiting += list(paths)[:MAX_FILES]
        if len(paths) > MAX_FILES:
            message = f"{MAX_FILES} of {len(paths)} files are attached."
            error = TooManyAttachmentsError(message, limit=MAX_FILES, count=len(paths))
            self.file_refused.emit(error.info())
        if was_idle and self._waiting:
            self._patience.start()
            self._next()

    def choose(self, parent: QWidget) -> QFileDialog:
        """Asks for files."""
        dialog = QFileDialog(parent, tr("Attach text files"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        place = QStandardPaths.StandardLocation.DocumentsLocation
        dialog.setDirectory(QStandardPaths.writableLocation(place))
        dialog.filesSelected.connect(lambda names: self.read([Path(name) for name in names]))
        dialog.open()
        return dialog

    def _next(self) -> None:
        path = self._waiting[0]

        def work() -> None:
            # The window may have gone meanwhile.
            with suppress(RuntimeError):
                try:
                    self._done.emit(read_text_file(path), None)
                except AttachmentError as error:
                    self._done.emit(None, error.info())

        threading.Thread(target=work, name="read-file", daemon=True).start()

    def _on_done(self, attachment: object, error: object) -> None:
        self._waiting.pop(0)
        if attachment is not None:
            self.file_read.emit(attachment)
        else:
            self.file_refused.emit(error)
        if self._waiting:
            self._next()
        else:
            self._patience.stop()
            self.busy_changed.emit("")

    def _tell_busy(self) -> None:
        names = ", ".join(path.name for path in self._waiting)
        self.busy_changed.emit(names)


def files_in(data: QMimeData) -> list[Path]:
    """The local files that are dragged or pasted; none if it is something else."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
