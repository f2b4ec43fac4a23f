"""What is being written in one conversation: kept, measured, and put together with files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtGui import QDropEvent, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QApplication, QWidget

from app.conversation import ASSISTANT, Attachment, Conversation
from app.gauges import Gauge
from app.i18n import tr
from app.outlooks import limit_of
from app.session import Session
from app.session_state import Notice, Severity
from app.text_files import AttachmentBinaryError
from app.widgets.composer import Composer, is_typed
from app.widgets.file_reader import FileReader, files_in
from app.widgets.token_gauge import gauge_lines, gauge_sentences
from app.widgets.words import shown_title
from engine.api.errors import ErrorInfo
from engine.api.events import ModelInfo, RequestUsage

ASK_DELAY_MS = 350


@dataclass(frozen=True, slots=True)
class _Parts:
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    typed: str = ""


class Drafting(QObject):
    """Between the composer of ``page`` and the session."""

    def __init__(
        self, session: Session, composer: Composer, conversation_id: str, page: QWidget
    ) -> None:
        super().__init__(page)
        self._session = session
        self._composer = composer
        self._conversation_id = conversation_id
        self._written = _Parts()
        self._model: ModelInfo | None = session.model_state.info
        self._once_read: Callable[[], None] | None = None
        self.files = FileReader(self)
        self._ask_timer = QTimer(self)
        self._ask_timer.setSingleShot(True)
        self._ask_timer.setInterval(ASK_DELAY_MS)
        self._ask_timer.timeout.connect(self._ask)
        conversation = self._conversation
        composer.set_parts(conversation.attachments, conversation.draft)
        self._remember(composer.text())
        composer.draft_changed.connect(self._on_draft_changed)
        composer.attachments.changed.connect(self._on_attachments_changed)
        composer.files_dropped.connect(self.files.read)
        composer.attach_requested.connect(self.attach)
        composer.edit.picture_pasted.connect(self._on_picture_pasted)
        self.files.file_read.connect(composer.attachments.add_item)
        self.files.file_refused.connect(self._on_file_refused)
        self.files.busy_changed.connect(self._on_files_busy_changed)
        composer.edit.textChanged.connect(self._stop_waiting)
        composer.attachments.removed.connect(self._stop_waiting)
        session.gauges.changed.connect(self._on_gauges_changed)
        session.model_state_changed.connect(self._on_model_state_changed)
        session.conversation_closed.connect(self._on_conversation_closed)
        page.setAcceptDrops(True)
        page.installEventFilter(self)
        self.files.read(session.unread_files.pop(conversation_id, ()))
        self.refresh()

    @property
    def _conversation(self) -> Conversation:
        return self._session.conversation(self._conversation_id)

    @property
    def _is_open(self) -> bool:
        """False once its tab was closed: until the page is gone, events still come."""
        return self._conversation_id in self._session.conversation_ids()

    # --- the draft ---

    def put_back(self, text: str) -> None:
        """A message that was sent came back: it stands before what was written since."""
        sent = self._written if self._written.text == text else _Parts(text, (), text)
        typed = self._composer.typed_text()
        attachments = (*sent.attachments, *self._composer.attachments.items)
        parts = [part for part in (sent.typed, typed) if part.strip()]
        self._composer.set_parts(attachments, "\n\n".join(parts))

    def flush(self) -> None:
        """Hands what was written to the session at once."""
        self._session.set_draft(self._conversation_id, self._composer.typed_text())

    def attach(self) -> None:
        """Asks for files to attach."""
        self.files.choose(self._composer.window())

    def waits_for_files(self, then: Callable[[], None]) -> bool:
        """Whether files of the draft are still read. If so, ``then`` is called when all are there,
        unless the draft is changed before or one of them is refused.
        """
        if not self.files.unread:
            return False
        self._once_read = then
        return True

    @Slot()
    def _stop_waiting(self) -> None:
        self._once_read = None

    @Slot(str)
    def _on_files_busy_changed(self, names: str) -> None:
        self._composer.show_reading(names)
        if self.files.unread or not self._is_open:
            return
        then, self._once_read = self._once_read, None
        if then is not None:
            then()

    @Slot(str)
    def _on_conversation_closed(self, conversation_id: str) -> None:
        """What is read now comes too late; it is read again if the tab is opened again."""
        if conversation_id == self._conversation_id and self.files.unread:
            self._session.unread_files[conversation_id] = self.files.unread

    @Slot(str)
    def _on_draft_changed(self, text: str) -> None:
        self._session.set_draft(self._conversation_id, self._composer.typed_text())
        self._remember(text)
        if text.strip():
            self._ask_timer.start()
        else:
            self._ask_timer.stop()
            self._session.gauges.forget(self._conversation_id)
            self.refresh()

    def _remember(self, text: str) -> None:
        if text:
            composer = self._composer
            self._written = _Parts(text, composer.attachments.items, composer.typed_text())

    @Slot()
    def _on_attachments_changed(self) -> None:
        self._session.set_attachments(self._conversation_id, self._composer.attachments.items)

    @Slot(object)
    def _on_file_refused(self, error: ErrorInfo) -> None:
        self._stop_waiting()
        notice = Notice(Severity.WARNING, error, self._conversation_id)
        self._session.notice_raised.emit(notice)

    @Slot()
    def _on_picture_pasted(self) -> None:
        name = tr("The picture")
        self._on_file_refused(AttachmentBinaryError(f"{name} is no text.", name=name).info())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Files may be dropped anywhere on the page, and what is typed where nothing can be written
        goes into the composer; a page that comes to the front asks.
        """
        if event.type() == QEvent.Type.Show and self._gauge is None and self._written.text:
            self._ask_timer.start()
        if isinstance(event, QDropEvent) and files_in(event.mimeData()):
            if event.type() == QEvent.Type.Drop:
                self.files.read(files_in(event.mimeData()))
            event.acceptProposedAction()
            return True
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            edit = self._composer.edit
            is_for_it = is_typed(event) or event.matches(QKeySequence.StandardKey.Paste)
            if is_for_it and not edit.hasFocus():
                edit.setFocus(Qt.FocusReason.OtherFocusReason)
                QApplication.sendEvent(edit, event)
                return True
        return super().eventFilter(watched, event)

    # --- the gauge ---

    def ask_again(self) -> None:
        """What the figures of the draft come from has changed."""
        if self._composer.text().strip():
            self._ask_timer.start()

    @Slot()
    def _on_model_state_changed(self) -> None:
        # Told at each step of loading too.
        model, self._model = self._model, self._session.model_state.info
        if self._model not in (None, model):
            self.ask_again()
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Shows what is known now."""
        if not self._is_open:
            return
        info = self._session.model_state.info
        gauge, usage = self._gauge, self._usage
        composer = self._composer
        if info is None:
            composer.gauge.show_figures([], 0, 0, 0)
            composer.show_details([])
            return
        limit = limit_of(info)
        if gauge is not None and gauge.prompt_tokens is not None:
            used, cached = gauge.prompt_tokens, gauge.cached_tokens
        else:
            used = 0 if usage is None else usage.prompt_tokens + usage.output_tokens
            cached = 0
        composer.gauge.show_figures(gauge_lines(gauge, usage, limit), cached, used, limit)
        sentences = [] if gauge is None else gauge_sentences(gauge, self._title_of)
        composer.show_details(sentences)

    @property
    def _gauge(self) -> Gauge | None:
        return self._session.gauges.of(self._conversation_id)

    @property
    def _usage(self) -> RequestUsage | None:
        """What the last answer of the shown branch took."""
        answers = (m for m in reversed(self._conversation.path()) if m.role == ASSISTANT)
        return next((answer.usage for answer in answers), None)

    def _title_of(self, conversation_id: str) -> str:
        try:
            return shown_title(self._session.conversation(conversation_id).title)
        except KeyError:
            return tr("a closed conversation")

    @Slot()
    def _ask(self) -> None:
        if not self._is_open:
            return
        if self._composer.isVisible():
            self._session.ask_gauge(self._conversation_id, self._composer.text())
        else:
            # Asked when the page comes to the front; until then no older figures.
            self._session.gauges.forget(self._conversation_id)

    @Slot(str)
    def _on_gauges_changed(self, conversation_id: str) -> None:
        if conversation_id == self._conversation_id:
            self.refresh()
