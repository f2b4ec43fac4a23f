"""Conversations into files and out of them: the dialogs, the slices that write, the thread that
reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path

from PySide6.QtCore import QElapsedTimer, QObject, QStandardPaths, Qt, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.app_error import AppError
from app.exporting import file_name
from app.exporting_files import ExportFileError, write_json, write_markdown
from app.exporting_import import Imported, ImportFileError, LeftOut, read_file
from app.i18n import sentences, tr, tr_n
from app.session import Session
from app.session_state import Notice, Severity
from app.widgets.transfer_bar import TransferBar

MARKDOWN, JSON = "markdown", "json"
_SUFFIX = {MARKDOWN: ".md", JSON: ".json"}
_SLICE_MS = 10
_YIELD_S = 0.0005
_NAMED = 3
"""So many conversations that were left out are named."""


class _CancelledError(Exception):
    """The user stopped an import."""


class Transfers(QObject):
    """Asks where to, writes or reads, and tells how it went. Nothing here blocks the window."""

    _told = Signal(float)
    _parsed = Signal(int)
    _read = Signal(list, str, object)
    _refused = Signal(object)
    _ended = Signal()

    def __init__(self, session: Session, window: QWidget) -> None:
        super().__init__(window)
        self._session = session
        self._window = window
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._steps: Generator[float, None, None] | None = None
        self._target = Path()
        self.bar = TransferBar()
        self.bar.cancelled.connect(self._on_bar_cancelled)
        self._slice_timer = QTimer(self)
        self._slice_timer.timeout.connect(self._write_slice)
        queued = Qt.ConnectionType.QueuedConnection
        self._told.connect(self.bar.set_part, queued)
        self._parsed.connect(self._on_parsed, queued)
        self._read.connect(self._on_read, queued)
        self._refused.connect(self._on_refused, queued)
        self._ended.connect(self.bar.end, queued)

    @property
    def is_busy(self) -> bool:
        """True while a file is written or read."""
        reads = self._thread is not None and self._thread.is_alive()
        return reads or self._steps is not None

    # --- asking ---

    def export(self, conversation_ids: Sequence[str], form: str) -> QFileDialog | None:
        """Asks where to write conversations; None, with a notice, if one is not stored.

        Several go into one JSON file, or into a folder with a Markdown file each.
        """
        ids = list(conversation_ids)
        if len(ids) > 1 and form == MARKDOWN:
            return self._ask_for_folder(ids)
        if not ids:
            return None
        name = tr("Quire conversations") + _SUFFIX[form]
        if len(ids) == 1:
            conversation = self._session.stored_conversation(ids[0])
            if conversation is None:
                words = "This conversation is no longer stored."
                self._session.report("conversation_not_found", words)
                return None
            name = file_name(conversation, _SUFFIX[form])
        dialog = self._dialog(tr("Export conversation") if len(ids) == 1 else _export_title(ids))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        filters = {MARKDOWN: tr("Markdown (*.md)"), JSON: tr("JSON (*.json)")}
        dialog.setNameFilter(filters[form])
        dialog.setDefaultSuffix(_SUFFIX[form])
        dialog.selectFile(name)
        dialog.fileSelected.connect(lambda path: self.write(ids, form, Path(path)))
        dialog.open()
        return dialog

    def export_all(self) -> QFileDialog | None:
        """Asks where to write all conversations but deleted ones."""
        closed = [s.conversation_id for s in self._session.closed_conversations()]
        return self.export([*self._session.conversation_ids(), *closed], JSON)

    def choose_import(self) -> QFileDialog:
        """Asks for a file to read conversations from."""
        dialog = self._dialog(tr("Import conversations"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters([tr("JSON or ChatGPT's archive (*.json *.zip)"), tr("All files (*)")])
        dialog.fileSelected.connect(lambda path: self.read(Path(path)))
        dialog.open()
        return dialog

    def _ask_for_folder(self, ids: list[str]) -> QFileDialog:
        dialog = self._dialog(_export_title(ids))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(lambda path: self.write(ids, MARKDOWN, Path(path)))
        dialog.open()
        return dialog

    def _dialog(self, title: str) -> QFileDialog:
        dialog = QFileDialog(self._window, title)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        place = QStandardPaths.StandardLocation.DocumentsLocation
        dialog.setDirectory(QStandardPaths.writableLocation(place))
        return dialog

    # --- writing ---

    def write(self, conversation_ids: Sequence[str], form: str, target: Path) -> bool:
        """Begins to write, a little whenever the window has nothing else to do. A notice says at
        the end how it went. False, with a notice, if something else is being written or read.

        ``target``: a file; for several conversations as Markdown a folder. Files are written whole
        or not at all.
        """
        if self._is_refused():
            return False
        ids = list(conversation_ids)
        found = filter(None, map(self._session.stored_conversation, ids))
        if form == MARKDOWN:
            folder = target.parent if len(ids) == 1 else target
            name = target.name if len(ids) == 1 else ""
            self._steps = write_markdown(found, folder, name, tr("You"), tr("Answer"), len(ids))
        else:
            self._steps = write_json(found, target, len(ids))
        self._target = target
        self.bar.begin(
            tr_n("Exporting {n} conversation…", "Exporting {n} conversations…", len(ids))
        )
        self._slice_timer.start(0)
        return True

    def _write_slice(self) -> None:
        steps, clock = self._steps, QElapsedTimer()
        if steps is None:
            self._slice_timer.stop()
            return
        clock.start()
        try:
            while clock.elapsed() < _SLICE_MS:
                self.bar.set_part(next(steps))
        except StopIteration:
            self._end_writing()
            words = tr("Exported to {path}.", path=self._target)
            self._session.report("exported", words, severity=Severity.INFO)
        except ExportFileError as error:
            self._end_writing()
            self._on_refused(error)

    def _end_writing(self) -> None:
        self._steps = None
        self._slice_timer.stop()
        self.bar.end()

    # --- reading ---

    def read(self, path: Path) -> None:
        """Reads and stores on a thread of its own: a large file takes seconds."""
        if self._is_refused():
            return
        self._stop.clear()
        self.bar.begin(tr("Reading {name}…", name=path.name))
        self._thread = threading.Thread(target=self._work, args=(path,), name="import", daemon=True)
        self._thread.start()

    def _work(self, path: Path) -> None:
        def told(part: float) -> None:
            if self._stop.is_set():
                raise _CancelledError
            if part >= 0.0:
                self._told.emit(part)
            # The window's thread would otherwise wait for the interpreter again and again.
            time.sleep(_YIELD_S)

        # The window may have gone meanwhile.
        with suppress(RuntimeError):
            try:
                imported = read_file(path, told)
                self._store(imported, path.name)
            except ImportFileError as error:
                self._refused.emit(error)
            except _CancelledError:
                pass
            finally:
                self._ended.emit()

    def _store(self, imported: Imported, name: str) -> None:
        self._parsed.emit(len(imported.conversations))
        ids = [conversation.conversation_id for conversation in imported.conversations]
        if self._session.store_imported(imported.conversations):
            self._read.emit(ids, name, imported.left_out)
        else:
            # The store says why; where only the disk refuses, it goes on trying.
            self._refused.emit(
                ImportFileError(
                    f"{name}: the conversations could not be stored.",
                    path=name,
                )
            )

    def _on_parsed(self, count: int) -> None:
        self.bar.wait(tr_n("Storing {n} conversation…", "Storing {n} conversations…", count))

    def _on_read(
        self, conversation_ids: list[str], name: str, left_out: tuple[LeftOut, ...]
    ) -> None:
        self._session.show_imported(conversation_ids)
        words = tr_n(
            "{n} conversation was imported from {name}.",
            "{n} conversations were imported from {name}.",
            len(conversation_ids),
            name=name,
        )
        if left_out:
            words = sentences(words, left_out_words(left_out))
        severity = Severity.WARNING if left_out else Severity.INFO
        self._session.report("imported", words, severity=severity)

    # --- both ---

    def _is_refused(self) -> bool:
        if self.is_busy:
            words = tr("Another file is still being read or written.")
            self._session.report("transfer_running", words, severity=Severity.WARNING)
        return self.is_busy

    def _on_bar_cancelled(self) -> None:
        self._stop.set()
        if self._steps is not None:
            # What was begun is taken away again.
            self._steps.close()
            self._end_writing()

    def _on_refused(self, error: AppError) -> None:
        self._session.notice_raised.emit(Notice(Severity.ERROR, error.info()))


def _export_title(ids: Sequence[str]) -> str:
    return tr_n("Export {n} conversation", "Export {n} conversations", len(ids))


def left_out_words(left_out: Sequence[LeftOut]) -> str:
    """Which conversations of a file could not be read, and why."""
    named = [
        tr("“{title}” ({reason})", title=each.title, reason=each.reason)
        if each.title
        else tr("number {n} ({reason})", n=f"{each.number:,}", reason=each.reason)
        for each in left_out[:_NAMED]
    ]
    if len(left_out) > _NAMED:
        named.append("…")
    words = tr_n("{n} could not be read:", "{n} could not be read:", len(left_out))
    return sentences(words, tr(", ").join(named))
