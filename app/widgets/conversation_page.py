"""One tab: notices, transcript or empty state, composer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.conversation import ASSISTANT, Attachment, Conversation, Message
from app.i18n import tr
from app.markdown_thoughts import answer_text
from app.session import Session
from app.session_state import Notice
from app.theme import ThemeManager
from app.widgets.comparison import Comparison
from app.widgets.composer import Composer
from app.widgets.context_notice import ContextNotice
from app.widgets.dialogs import confirm_link
from app.widgets.drafting import Drafting
from app.widgets.edit_keeper import EditKeeper
from app.widgets.empty_state import EmptyState
from app.widgets.message_actions import MessageActions
from app.widgets.message_views import MessageViews
from app.widgets.model_card import ModelCard
from app.widgets.notices import NoticeArea
from app.widgets.system_prompt_dialog import SystemPromptDialog
from app.widgets.text_edits import written_text
from app.widgets.transcript.page import MAX_COLUMN
from app.widgets.transcript.view import Transcript
from app.widgets.undo_bar import UndoBar

_PROMPT_DELAY_MS = 400
_LEAST_ABOVE = 60


class ConversationPage(QWidget):
    """Shows one conversation of the session and asks the session for every change.

    It is made before it is known whose page it will be: step by step with ``build_next``, while
    the window has nothing else to do, so that a new tab does not keep it waiting.
    """

    def __init__(
        self, session: Session, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.conversation_id = ""
        self._session = session
        self._num_answers = 1
        self._prompt_timer = QTimer(self)
        self._prompt_timer.setSingleShot(True)
        self._prompt_timer.setInterval(_PROMPT_DELAY_MS)
        self._steps = self._build(themes)

    def build_next(self) -> bool:
        """Makes one more part; False if there was none left."""
        return next(self._steps, False)

    def open(self, conversation_id: str) -> None:
        """Makes the parts that are missing and shows a conversation; once for each page."""
        while self.build_next():
            pass
        session = self._session
        self.conversation_id = conversation_id
        self._views = MessageViews(session, conversation_id)
        self.context_notice.open(conversation_id)
        self.message_actions = MessageActions(self, session)
        self.comparison.stop_requested.connect(partial(self.message_actions.run, "stop_message"))
        self.comparison.facts_requested.connect(partial(self.message_actions.run, "message_facts"))
        self._edits = EditKeeper(self.transcript, session, conversation_id, self)
        self.drafting = Drafting(session, self.composer, conversation_id, self)
        # Not only from now on: what a draft would drop is told when it is shown again.
        self.context_notice.set_text(self.composer.text())
        self.reload()
        self._edits.restore()

    def _build(self, themes: ThemeManager) -> Iterator[bool]:
        """Each part is put in its place and styled at once: styling all of them together is what
        takes longest.
        """
        session = self._session
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        self.stack = QStackedWidget()
        # Each page of it scrolls; what is below does not.
        self.stack.setMinimumHeight(_LEAST_ABOVE)
        column.addWidget(self.stack, 1)
        self.transcript = Transcript(themes, self.stack)
        yield self._put_on_stack(self.transcript)
        self.empty_state = EmptyState(session, self.stack)
        yield self._put_on_stack(self.empty_state)
        self.comparison = Comparison(themes, self.stack)
        yield self._put_on_stack(self.comparison)
        self.model_card = ModelCard(session, self)
        yield self._put_below(self.model_card)
        self.notices = NoticeArea(themes, self)
        yield self._put_below(self.notices)
        self.undo_bar = UndoBar(themes, self)
        yield self._put_below(self.undo_bar)
        self.context_notice = ContextNotice(session, themes, self)
        yield self._put_below(self.context_notice)
        self.composer = Composer(themes, self)
        yield self._put_below(self.composer)
        column.addSpacing(4)
        self._connect()
        yield True

    def _put_on_stack(self, part: QWidget) -> bool:
        self.stack.addWidget(part)
        part.ensurePolished()
        return True

    def _put_below(self, part: QWidget) -> bool:
        """In the column of the transcript."""
        part.setMaximumWidth(MAX_COLUMN + 24)
        row = QHBoxLayout()
        row.setContentsMargins(12, 0, 12, 0)
        row.addStretch(1)
        row.addWidget(part, 1000)
        row.addStretch(1)
        column = self.layout()
        assert isinstance(column, QVBoxLayout)
        column.addLayout(row)
        part.ensurePolished()
        return True

    @property
    def conversation(self) -> Conversation:
        return self._session.conversation(self.conversation_id)

    def _connect(self) -> None:
        transcript, composer, empty = self.transcript, self.composer, self.empty_state
        transcript.link_activated.connect(lambda url: confirm_link(url, self))
        self._session.comparison_changed.connect(self._on_comparison_changed)
        self.comparison.chosen.connect(self._on_answer_chosen)
        self.model_card.left.connect(composer.edit.setFocus)
        transcript.files_dropped.connect(composer.files_dropped)
        transcript.picture_pasted.connect(composer.edit.picture_pasted)
        composer.submitted.connect(self.submit)
        composer.stop_requested.connect(self.stop)
        composer.draft_changed.connect(self.context_notice.set_text)
        self.context_notice.send_allowed.connect(self._send)
        composer.attachments.removed.connect(self._on_attachment_removed)
        composer.system_prompt_requested.connect(self.edit_system_prompt)
        empty.question_chosen.connect(self.submit)
        empty.prompt_edited.connect(self._on_prompt_edited)
        self._prompt_timer.timeout.connect(self._save_prompt)

    # --- what the user does ---

    def submit(self, text: str, num_answers: int = 1) -> bool:
        """Sends ``text``; it goes from the composer only if it was accepted.

        It stays there too while files that belong to it are read, and while what it would drop is
        not known, or was not shown yet. ``num_answers``: more than one stand side by side.
        """
        is_written = text == self.composer.text()
        if is_written and self.drafting.waits_for_files(partial(self._submit_written, num_answers)):
            return False
        self._num_answers = num_answers
        self._save_prompt()
        self.notices.clear()
        if self.context_notice.allows(text) and self._send(text):
            return True
        if not self.composer.text().strip():
            self.composer.set_text(text)
        return False

    def _submit_written(self, num_answers: int) -> None:
        self.submit(self.composer.text(), num_answers)

    def _send(self, text: str) -> bool:
        if not self._session.send(self.conversation_id, text, self._num_answers):
            return False
        if self.composer.text() == text:
            self.composer.clear()
        return True

    def stop(self) -> None:
        self._session.stop(self.conversation_id)

    def edit_system_prompt(self) -> None:
        """Opens the editor of the system prompt; on an empty tab it is there already."""
        if not self.conversation.messages:
            self.empty_state.prompt.setFocus()
            return
        SystemPromptDialog(self._session, self.conversation_id, self).show()

    def last_answer(self) -> Message | None:
        """The last answer of the shown branch."""
        answers = [m for m in self.conversation.path() if m.role == ASSISTANT]
        return answers[-1] if answers else None

    def focus_transcript(self) -> None:
        """Puts the keyboard on the transcript and shows the last message's buttons, or on the first
        of several answers.
        """
        if self.comparison.columns:
            self.comparison.columns[0].choose_button.setFocus(Qt.FocusReason.ShortcutFocusReason)
            return
        self.transcript.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def copy_answer(self) -> None:
        """Puts the last answer on the clipboard, as Markdown and without reasoning."""
        answer = self.last_answer()
        if answer is not None:
            QGuiApplication.clipboard().setText(answer_text(answer.content))

    def restore_draft(self, text: str) -> None:
        """A message came back: puts it before what was written since."""
        self.drafting.put_back(text)

    def add_notice(self, notice: Notice) -> None:
        self.notices.add(notice)

    def flush(self) -> None:
        """Hands what was typed to the session at once."""
        self._save_prompt()
        self._edits.flush()
        self.drafting.flush()

    # --- what the session says ---

    def reload(self) -> None:
        """Shows the branch anew."""
        self.empty_state.set_prompt(self.conversation.system_prompt)
        self.transcript.set_messages(self._views.all())
        self._update_comparison()
        self.update_state()

    def add_message(self, message_id: str) -> None:
        self.transcript.add_message(self._views.of(self.conversation.message(message_id)))
        self._update_divider()
        self._update_stack()

    def remove_message(self, message_id: str) -> None:
        self.transcript.remove_message(message_id)
        self._update_divider()
        self._update_comparison()

    def append_text(self, message_id: str, text: str) -> None:
        self.transcript.append_text(message_id, text)
        self.comparison.append_text(message_id, text)

    def update_message(self, message_id: str) -> None:
        message = self.conversation.messages.get(message_id)
        if message is not None:
            self._show(message)
            self._update_divider()
            self.drafting.refresh()

    def update_conversation(self) -> None:
        """Title, number, system prompt or overflow policy changed."""
        self._update_divider()
        self.context_notice.refresh()
        self.drafting.ask_again()
        if not self._prompt_timer.isActive():
            self.empty_state.set_prompt(self.conversation.system_prompt)

    def update_state(self) -> None:
        """The answer goes on to another phase."""
        is_busy = self._session.is_busy(self.conversation_id)
        self.composer.set_busy(is_busy)
        if not is_busy:
            self.notices.retract(code="answer_running")
            self.context_notice.refresh()
            self.drafting.ask_again()
        state = self._session.request_state(self.conversation_id)
        for message_id in {state.message_id, *self._session.compared(self.conversation_id)}:
            message = self.conversation.messages.get(message_id)
            if message is not None:
                self._show(message)
        self.drafting.refresh()

    def _update_divider(self) -> None:
        before, self._views.divider = self._views.divider, self._views.find_divider()
        if before != self._views.divider:
            for message_id in {before[0], self._views.divider[0]}:
                message = self.conversation.messages.get(message_id)
                if message is not None:
                    self.transcript.update_message(self._views.of(message))

    def _show(self, message: Message) -> None:
        view = self._views.of(message)
        self.transcript.update_message(view)
        self.comparison.update_message(view)

    def _update_comparison(self) -> None:
        """Shows the answers that are to stand side by side, or none."""
        compared = self._session.compared(self.conversation_id)
        had_focus = self.transcript.hasFocus()
        answers = [m for i in compared if (m := self.conversation.messages.get(i)) is not None]
        if not answers:
            self.comparison.clear()
        elif self.comparison.message_ids() != tuple(m.message_id for m in answers):
            question = self.conversation.messages.get(answers[0].parent_id or "")
            words = "" if question is None else question.content
            self.comparison.show_answers(words, [self._views.of(m) for m in answers])
        self._update_stack()
        if had_focus and answers:
            self.focus_transcript()

    def _update_stack(self) -> None:
        shown = self.transcript if self.transcript.items else self.empty_state
        self.stack.setCurrentWidget(self.comparison if self.comparison.columns else shown)

    def _on_attachment_removed(self, attachment: Attachment, place: int) -> None:
        name = attachment.name
        words = tr("{name} was removed.", name=name) if name else tr("The pasted text was removed.")
        attachments = self.composer.attachments
        self.undo_bar.offer(words, lambda: attachments.put_back(attachment, place))

    def _on_prompt_edited(self, _text: str) -> None:
        self.empty_state.refresh_default()
        self._prompt_timer.start()

    def _save_prompt(self) -> None:
        if self._prompt_timer.isActive() or not self.conversation.messages:
            self._prompt_timer.stop()
            text = written_text(self.empty_state.prompt)
            self._session.set_system_prompt(self.conversation_id, text)

    def _on_comparison_changed(self, conversation_id: str) -> None:
        if conversation_id == self.conversation_id:
            self._update_comparison()

    def _on_answer_chosen(self, message_id: str) -> None:
        self._session.end_comparison(self.conversation_id, message_id)
        self.focus_transcript()
