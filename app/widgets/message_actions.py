"""What is done with the messages of one conversation: by buttons, menus and shortcuts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QTextCursor
from PySide6.QtWidgets import QMenu

from app.actions import Actions
from app.answer_facts import why_not_repeat
from app.branches import MAX_ANSWERS
from app.conversation import ASSISTANT, Conversation, Message
from app.i18n import tr, tr_n
from app.session import Session
from app.widgets.answer_words import fact_sections
from app.widgets.facts_dialog import FactsDialog
from app.widgets.keep_in_cache import KeepInCache
from app.widgets.message_views import menu_entries

if TYPE_CHECKING:
    from app.widgets.conversation_page import ConversationPage
    from app.widgets.tab_area import TabArea

_SEVERAL = {f"answers_{n}": n for n in range(2, MAX_ANSWERS + 1)}
MESSAGE_ACTIONS = (
    *(
        "regenerate",
        "continue_answer",
        "repeat_answer",
        "edit_message",
        "fork_message",
        "message_facts",
    ),
    *("previous_version", "next_version", "compare_versions"),
    *("delete_message", "delete_pair"),
)
"""The registry's actions for the current message."""


class MessageActions(QObject):
    """Part of a conversation's page."""

    def __init__(self, page: ConversationPage, session: Session) -> None:
        super().__init__(page)
        self._page = page
        self._session = session
        conversation_id = page.conversation_id
        self._slots: dict[str, Callable[[Message], object]] = {
            "stop_message": lambda m: session.stop(conversation_id, m.message_id),
            "continue_answer": lambda m: session.continue_answer(conversation_id, m.message_id),
            "regenerate": lambda m: session.regenerate(conversation_id, m.message_id),
            "repeat_answer": lambda m: session.repeat(conversation_id, m.message_id),
            "edit_message": lambda m: page.transcript.acting.edit(m.message_id),
            "fork_message": self._fork,
            "message_menu": lambda _m: page.transcript.acting.open_menu(),
            "message_facts": self._show_facts,
            "previous_version": partial(self._step_version, -1),
            "next_version": partial(self._step_version, 1),
            "compare_versions": lambda m: session.compare(conversation_id, m.message_id),
            "delete_message": lambda m: session.delete_branch(conversation_id, m.message_id),
            "delete_pair": lambda m: session.delete_pair(conversation_id, m.message_id),
        }
        for action_id, count in _SEVERAL.items():
            self._slots[action_id] = partial(self._ask_several, count)
        view = page.transcript
        view.action_requested.connect(self.run)
        view.menu_opened.connect(self._fill_menu)
        view.edit_saved.connect(self._on_edit_saved)
        view.edit_cancelled.connect(self._on_edit_cancelled)
        view.edit_dropped.connect(page.restore_draft)
        session.messages_deleted.connect(self._on_messages_deleted)

    @property
    def _conversation(self) -> Conversation:
        return self._session.conversation(self._page.conversation_id)

    def run(self, action_id: str, message_id: str = "") -> None:
        """Does it with a message, by default with the current one. Nothing if there is none."""
        if not message_id:
            item = self._page.transcript.acting.current
            message_id = "" if item is None else item.view.message_id
        message = self._conversation.messages.get(message_id)
        if message is not None:
            self._slots[action_id](message)

    def ask_several(self, count: int) -> None:
        """Several answers to what is written, or to the question of the current message."""
        page = self._page
        text = page.composer.text()
        if text.strip():
            page.submit(text, count)
        else:
            self.run(f"answers_{count}")

    def _ask_several(self, count: int, message: Message) -> None:
        self._session.regenerate(self._page.conversation_id, message.message_id, count)

    def _fork(self, message: Message) -> None:
        fork = self._session.fork if message.role == ASSISTANT else self._session.fork_question
        fork(self._page.conversation_id, message.message_id)

    def _show_facts(self, message: Message) -> None:
        if message.role != ASSISTANT:
            return
        conversation = self._conversation
        model = self._session.model_state.info
        obstacle = why_not_repeat(conversation, message, model)
        for other in self._page.findChildren(FactsDialog):
            other.close()
        dialog = FactsDialog(
            fact_sections(conversation, message, "" if model is None else model.dtype),
            partial(self.run, "repeat_answer", message.message_id),
            obstacle,
            self._page,
        )
        dialog.show()
        dialog.activateWindow()

    def _step_version(self, step: int, message: Message) -> None:
        versions = self._conversation.siblings(message.message_id)
        index = versions.index(message) + step
        if 0 <= index < len(versions):
            chosen = versions[index].message_id
            self._session.select_version(self._page.conversation_id, chosen)
            # The pager stays where it was, so that the next press goes on.
            self._page.transcript.buttons.set_item(self._page.transcript.item(chosen))

    def _fill_menu(self, menu: QMenu, message_id: str) -> None:
        conversation = self._conversation
        message = conversation.messages.get(message_id)
        if message is None:
            return
        for group in menu_entries(self._session, conversation, message):
            for action_id in group:
                action = self._page.window().findChild(QAction, action_id)
                if isinstance(action, QAction):
                    menu.addAction(action)
            menu.addSeparator()

    def _on_edit_saved(self, message_id: str, text: str) -> None:
        self._page.notices.clear()
        if not self._session.edit(self._page.conversation_id, message_id, text):
            # A notice says why; what was written must not go with the text box.
            self._page.restore_draft(text)

    def _on_edit_cancelled(self, message_id: str, text: str) -> None:
        self._page.undo_bar.offer(
            tr("The edit was put aside."), lambda: self._edit_again(message_id, text)
        )

    def _edit_again(self, message_id: str, text: str) -> None:
        acting = self._page.transcript.acting
        acting.edit(message_id)
        editor = acting.editor
        if editor is None or editor.item.view.message_id != message_id:
            self._page.restore_draft(text)
            return
        editor.edit.setPlainText(text)
        editor.edit.moveCursor(QTextCursor.MoveOperation.End)

    def _on_messages_deleted(self, conversation_id: str) -> None:
        if conversation_id != self._page.conversation_id:
            return
        count = self._session.num_deleted(conversation_id)
        bar = self._page.undo_bar
        if not count:
            bar.hide()
            return
        words = tr_n("{n} message deleted.", "{n} messages deleted.", count)
        bar.offer(words, lambda: self._session.undo_delete(conversation_id))


class MessageHandlers(QObject):
    """The registry's actions about messages, for the page in front. Lives as long as ``area``."""

    def __init__(self, area: TabArea, session: Session, actions: Actions) -> None:
        super().__init__(area)
        self._area = area
        self._session = session
        self._keep = KeepInCache(area, session, actions["keep_in_cache"])

    def handlers(self) -> dict[str, Callable[[], object]]:
        """By action id."""
        on = self._on_page
        of_message = {name: on(partial(_run, name)) for name in MESSAGE_ACTIONS}
        several = {name: on(partial(_ask_several, count)) for name, count in _SEVERAL.items()}
        return {
            **of_message,
            **several,
            "previous_message": on(lambda page: page.transcript.acting.step(-1)),
            "next_message": on(lambda page: page.transcript.acting.step(1)),
            "message_menu": on(lambda page: page.transcript.acting.open_menu()),
            "undo_delete_message": on(lambda page: self._session.undo_delete(page.conversation_id)),
            "keep_in_cache": self._keep.toggle,
        }

    def _on_page(self, act: Callable[[ConversationPage], object]) -> Callable[[], None]:
        def slot() -> None:
            page = self._area.current_page
            if page is not None:
                act(page)

        return slot


def _run(action_id: str, page: ConversationPage) -> None:
    page.message_actions.run(action_id)


def _ask_several(count: int, page: ConversationPage) -> None:
    page.message_actions.ask_several(count)
