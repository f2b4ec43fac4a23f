"""Conversations into files and out of them: the dialogs, and the thread that reads."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.app_error import AppError
from app.conversation import Conversation
from app.exporting import file_name, to_json, to_markdown
from app.exporting_import import ImportFileError, read_file
from app.i18n import tr, tr_n
from app.session import Session
from app.session_state import Notice, Severity

MARKDOWN, JSON = "markdown", "json"
_SUFFIX = {MARKDOWN: ".md", JSON: ".json"}


class ExportFileError(AppError):
    code = "export_file"
    action = "Check the folder's permissions and the free disk space, or choose another folder."


class Transfers(QObject):
    """Asks where to, writes or reads, and tells how it went. No dialog blocks the window."""

    _read = Signal(object, str)
    _refused = Signal(object)

    def __init__(self, session: Session, window: QWidget) -> None:
        super().__init__(window)
        self._session = session
        self._window = window
        self._thread: threading.Thread | None = None
        self._read.connect(self._on_read, Qt.ConnectionType.QueuedConnection)
        self._refused.connect(self._on_refused, Qt.ConnectionType.QueuedConnection)

    def export(self, conversation_id: str, form: str) -> QFileDialog | None:
        """Asks where to write a conversation; None, with a notice, if it is not stored."""
        conversation = self._session.stored_conversation(conversation_id)
        if conversation is None:
            self._session.report("conversation_not_found", "This conversation is no longer stored.")
            return None
        dialog = QFileDialog(self._window, tr("Export conversation"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        suffix = _SUFFIX[form]
        filters = {MARKDOWN: tr("Markdown (*.md)"), JSON: tr("JSON (*.json)")}
        dialog.setNameFilter(filters[form])
        dialog.setDefaultSuffix(suffix)
        dialog.setDirectory(_folder())
        dialog.selectFile(file_name(conversation, suffix))
        dialog.fileSelected.connect(lambda path: self.write(conversation, form, Path(path)))
        dialog.open()
        return dialog

    def choose_import(self) -> QFileDialog:
        """Asks for a file to read conversations from."""
        dialog = QFileDialog(self._window, tr("Import conversations"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setDirectory(_folder())
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters([tr("JSON (*.json)"), tr("All files (*)")])
        dialog.fileSelected.connect(lambda path: self.read(Path(path)))
        dialog.open()
        return dialog

    def write(self, conversation: Conversation, form: str, path: Path) -> bool:
        """Writes the whole file or none; a notice says which."""
        if form == MARKDOWN:
            text = to_markdown(conversation, tr("You"), tr("Answer"))
        else:
            text = to_json([conversation])
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_text(text, encoding="utf-8", newline="\n")
            os.replace(partial, path)
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"{path.name} cannot be written: {reason}"
            self._on_refused(ExportFileError(message, path=str(path), reason=reason))
            partial.unlink(missing_ok=True)
            return False
        words = tr("Exported to {path}.", path=path)
        self._session.report("exported", words, severity=Severity.INFO)
        return True

    def read(self, path: Path) -> None:
        """Reads and stores on a thread of its own: a large file takes seconds."""
        if self._thread is not None and self._thread.is_alive():
            self._session.report(
                "import_running", tr("Another file is still being read."), severity=Severity.WARNING
            )
            return

        def work() -> None:
            # The window may have gone meanwhile.
            with suppress(RuntimeError):
                try:
                    conversations = read_file(path)
                    ids = [conversation.conversation_id for conversation in conversations]
                    if self._session.store_imported(conversations):
                        self._read.emit(ids, path.name)
                except ImportFileError as error:
                    self._refused.emit(error)

        self._thread = threading.Thread(target=work, name="import", daemon=True)
        self._thread.start()

    def _on_read(self, conversation_ids: list[str], name: str) -> None:
        self._session.show_imported(conversation_ids)
        words = tr_n(
            "{n} conversation was imported from {name}.",
            "{n} conversations were imported from {name}.",
            len(conversation_ids),
            name=name,
        )
        self._session.report("imported", words, severity=Severity.INFO)

    def _on_refused(self, error: AppError) -> None:
        self._session.notice_raised.emit(Notice(Severity.ERROR, error.info()))


def _folder() -> str:
    place = QStandardPaths.StandardLocation.DocumentsLocation
    return QStandardPaths.writableLocation(place)
