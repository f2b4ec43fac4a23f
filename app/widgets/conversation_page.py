"""One tab: notices, transcript or empty state, composer."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.conversation import ASSISTANT, USER, Conversation, Message, MessageStatus
from app.i18n import tr
from app.session import Session
from app.session_state import Notice
from app.theme import ThemeManager
from app.widgets.composer import Composer
from app.widgets.context_notice import ContextNotice
from app.widgets.dialogs import SystemPromptDialog, confirm_link
from app.widgets.empty_state import EmptyState
from app.widgets.model_card import ModelCard
from app.widgets.notices import NoticeArea
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.page import MAX_COLUMN
from app.widgets.transcript.view import Transcript
from app.widgets.words import answer_footer, divider_words, request_words, shown_title

_PROMPT_DELAY_MS = 400


class ConversationPage(QWidget):
    """Shows one conversation of the session and asks the session for every change."""

    def __init__(
        self,
        session: Session,
        themes: ThemeManager,
        conversation_id: str,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.conversation_id = conversation_id
        self._session = session
        self._divider = ("", "")
        self.notices = NoticeArea(themes)
        self.model_card = ModelCard(session)
        self.transcript = Transcript(themes)
        self.empty_state = EmptyState(session)
        self.context_notice = ContextNotice(session, themes, conversation_id)
        self.composer = Composer(themes)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty_state)
        self.stack.addWidget(self.transcript)
        self._prompt_timer = QTimer(self)
        self._prompt_timer.setSingleShot(True)
        self._prompt_timer.setInterval(_PROMPT_DELAY_MS)
        self._lay_out()
        self._connect()
        self.composer.set_text(self.conversation.draft)
        self.reload()

    @property
    def conversation(self) -> Conversation:
        return self._session.conversation(self.conversation_id)

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.stack, 1)
        column.addLayout(_centred(self.model_card))
        column.addLayout(_centred(self.notices))
        column.addLayout(_centred(self.context_notice))
        column.addLayout(_centred(self.composer))
        column.addSpacing(4)

    def _connect(self) -> None:
        transcript, composer, empty = self.transcript, self.composer, self.empty_state
        transcript.link_activated.connect(lambda url: confirm_link(url, self))
        transcript.regenerate_requested.connect(self.regenerate)
        transcript.fork_requested.connect(self._on_fork_requested)
        transcript.version_requested.connect(self._on_version_requested)
        composer.submitted.connect(self.submit)
        composer.stop_requested.connect(self.stop)
        composer.draft_changed.connect(self._on_draft_changed)
        composer.draft_changed.connect(self.context_notice.set_text)
        self.context_notice.send_allowed.connect(self._send)
        composer.system_prompt_requested.connect(self.edit_system_prompt)
        empty.question_chosen.connect(self.submit)
        empty.prompt_edited.connect(self._on_prompt_edited)
        self._prompt_timer.timeout.connect(self._save_prompt)

    # --- what the user does ---

    def submit(self, text: str) -> bool:
        """Sends ``text``; it goes from the composer only if it was accepted.

        It stays there too while what it would drop is not known, or was not shown yet.
        """
        self._save_prompt()
        self.notices.clear()
        if self.context_notice.allows(text) and self._send(text):
            return True
        if not self.composer.text().strip():
            self.composer.set_text(text)
        return False

    def _send(self, text: str) -> bool:
        if not self._session.send(self.conversation_id, text):
            return False
        if self.composer.text() == text:
            self.composer.clear()
        return True

    def stop(self) -> None:
        self._session.stop(self.conversation_id)

    def regenerate(self, message_id: str | None = None) -> None:
        """Asks for another version of an answer; None is the last one."""
        self._session.regenerate(self.conversation_id, message_id)

    def edit_system_prompt(self) -> None:
        """Opens the editor of the system prompt; on an empty tab it is there already."""
        if not self.conversation.messages:
            self.empty_state.prompt.setFocus()
            return
        text = self.conversation.system_prompt
        SystemPromptDialog(text, self._on_prompt_saved, self).open()

    def last_answer(self) -> Message | None:
        """The last answer of the shown branch."""
        answers = [m for m in self.conversation.path() if m.role == ASSISTANT]
        return answers[-1] if answers else None

    def focus_transcript(self) -> None:
        """Puts the keyboard on the transcript and shows the last message's buttons."""
        self.transcript.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def copy_answer(self) -> None:
        """Puts the last answer on the clipboard, as Markdown."""
        answer = self.last_answer()
        if answer is not None:
            QGuiApplication.clipboard().setText(answer.content)

    def restore_draft(self, text: str) -> None:
        """A message came back: puts it before what was written since."""
        written = self.composer.text()
        self.composer.set_text(f"{text}\n\n{written}" if written.strip() else text)

    def add_notice(self, notice: Notice) -> None:
        self.notices.add(notice)

    def flush(self) -> None:
        """Hands what was typed to the session at once."""
        self._save_prompt()
        self._session.set_draft(self.conversation_id, self.composer.text())

    # --- what the session says ---

    def reload(self) -> None:
        """Shows the branch anew."""
        conversation = self.conversation
        self.empty_state.set_prompt(conversation.system_prompt)
        self._divider = self._find_divider()
        self.transcript.set_messages([self._view(m) for m in conversation.path()])
        self._update_stack()
        self.update_state()

    def add_message(self, message_id: str) -> None:
        self.transcript.add_message(self._view(self.conversation.message(message_id)))
        self._update_divider()
        self._update_stack()

    def remove_message(self, message_id: str) -> None:
        self.transcript.remove_message(message_id)
        self._update_divider()
        self._update_stack()

    def append_text(self, message_id: str, text: str) -> None:
        self.transcript.append_text(message_id, text)

    def update_message(self, message_id: str) -> None:
        message = self.conversation.messages.get(message_id)
        if message is not None:
            self.transcript.update_message(self._view(message))
            self._update_divider()
            self._update_gauge()

    def update_conversation(self) -> None:
        """Title, number, system prompt or overflow policy changed."""
        self._update_divider()
        self.context_notice.refresh()
        if not self._prompt_timer.isActive():
            self.empty_state.set_prompt(self.conversation.system_prompt)

    def update_state(self) -> None:
        """The answer goes on to another phase."""
        is_busy = self._session.is_busy(self.conversation_id)
        self.composer.set_busy(is_busy)
        if not is_busy:
            self.context_notice.refresh()
        state = self._session.request_state(self.conversation_id)
        message = self.conversation.messages.get(state.message_id)
        if message is not None:
            self.transcript.update_message(self._view(message))
        self._update_gauge()

    def _find_divider(self) -> tuple[str, str]:
        """(id of the first message that the model reads, words above it), empty if it reads all."""
        num_dropped = self.conversation.num_dropped()
        path = self.conversation.path()
        if not 0 < num_dropped < len(path):
            return "", ""
        return path[num_dropped].message_id, divider_words(num_dropped)

    def _update_divider(self) -> None:
        before, self._divider = self._divider, self._find_divider()
        if before != self._divider:
            for message_id in {before[0], self._divider[0]}:
                message = self.conversation.messages.get(message_id)
                if message is not None:
                    self.transcript.update_message(self._view(message))

    def _view(self, message: Message) -> MessageView:
        divider = self._divider[1] if message.message_id == self._divider[0] else ""
        if message.role == USER:
            return MessageView(message.message_id, True, message.content, divider=divider)
        siblings = [m for m in self.conversation.siblings(message.message_id)]
        state = self._session.request_state(self.conversation_id)
        waiting = request_words(state, self._title_of)
        footer, tone = answer_footer(message, waiting)
        return MessageView(
            message.message_id,
            False,
            message.content,
            footer,
            tone,
            siblings.index(message) + 1,
            len(siblings),
            message.status is MessageStatus.STREAMING,
            divider,
        )

    def _title_of(self, conversation_id: str) -> str:
        try:
            return shown_title(self._session.conversation(conversation_id).title)
        except KeyError:
            return tr("another tab")

    def _update_stack(self) -> None:
        has_messages = bool(self.transcript.items)
        self.stack.setCurrentWidget(self.transcript if has_messages else self.empty_state)

    def _update_gauge(self) -> None:
        """How much of the model's context the last answer and its prompt take."""
        info = self._session.model_state.info
        answer = self.last_answer()
        usage = answer.usage if answer is not None else None
        if info is None or usage is None:
            self.composer.gauge.setText("")
            return
        used = usage.prompt_tokens + usage.output_tokens
        self.composer.gauge.setText(
            tr("{used} of {total} tokens", used=f"{used:,}", total=f"{info.context_length:,}")
        )

    def _on_draft_changed(self, text: str) -> None:
        self._session.set_draft(self.conversation_id, text)

    def _on_prompt_edited(self, _text: str) -> None:
        self.empty_state.refresh_default()
        self._prompt_timer.start()

    def _save_prompt(self) -> None:
        if self._prompt_timer.isActive() or not self.conversation.messages:
            self._prompt_timer.stop()
            text = self.empty_state.prompt.toPlainText()
            self._session.set_system_prompt(self.conversation_id, text)

    def _on_prompt_saved(self, text: str, is_default: bool) -> None:
        self._session.set_system_prompt(self.conversation_id, text)
        if is_default:
            self._session.set_default_system_prompt(text)

    def _on_fork_requested(self, message_id: str) -> None:
        self._session.fork(self.conversation_id, message_id)

    def _on_version_requested(self, message_id: str, step: int) -> None:
        versions = self.conversation.siblings(message_id)
        index = [m.message_id for m in versions].index(message_id) + step
        if 0 <= index < len(versions):
            self._session.select_version(self.conversation_id, versions[index].message_id)


def _centred(widget: QWidget) -> QHBoxLayout:
    """A row with ``widget`` in the column of the transcript."""
    widget.setMaximumWidth(MAX_COLUMN + 24)
    row = QHBoxLayout()
    row.setContentsMargins(12, 0, 12, 0)
    row.addStretch(1)
    row.addWidget(widget, 1000)
    row.addStretch(1)
    return row
