"""Branches of the open conversations: versions, side by side or one by one, and deleting."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.answers import Answers
from app.bridge import Bridge
from app.conversation import Conversation
from app.deletions import Deletions
from app.filing import Filing
from app.session_state import RequestState
from app.settings import Settings
from app.store import Store

MAX_ANSWERS = 4
"""As many as can stand side by side."""


class Branches(Filing):
    """Knows which answers are running, shown side by side, or deleted."""

    def __init__(
        self, bridge: Bridge, store: Store, settings: Settings, parent: QObject | None = None
    ) -> None:
        super().__init__(store, settings, parent)
        self._answers = Answers(bridge, store, self)
        self._deletions = Deletions(store, self)
        self._compared: dict[str, tuple[str, ...]] = {}

    # --- reading ---

    def request_state(self, conversation_id: str, message_id: str = "") -> RequestState:
        """What the conversation's answer is doing; ``IDLE`` if there is none.

        Of several answers that one, or the one that has got furthest.
        """
        return self._answers.state(conversation_id, message_id)

    def is_busy(self, conversation_id: str) -> bool:
        """True while an answer is waited for or generated."""
        return self._answers.is_busy(conversation_id)

    def compared(self, conversation_id: str) -> tuple[str, ...]:
        """Ids of the answers that are shown side by side; empty if none are."""
        conversation = self._open.get(conversation_id)
        messages = {} if conversation is None else conversation.messages
        return tuple(i for i in self._compared.get(conversation_id, ()) if i in messages)

    def close_conversation(self, conversation_id: str) -> None:
        """Stops its answers and closes it; what was deleted in it stays deleted."""
        self._answers.abandon(conversation_id)
        self._compared.pop(conversation_id, None)
        self._deletions.forget(conversation_id)
        super().close_conversation(conversation_id)

    def stop(self, conversation_id: str, message_id: str = "") -> None:
        """Stops the answers in any state, or that one; what has come stays. Does nothing if there
        is none.
        """
        self._answers.stop(conversation_id, message_id)

    # --- versions ---

    def fork_question(self, conversation_id: str, message_id: str) -> str:
        """Copies what stands before a question into a new conversation, to ask it otherwise there:
        the question is its draft.
        """
        copy = self._open[conversation_id].fork(message_id, self._free_number())
        question = copy.message(copy.active_leaf_id or "")
        copy.remove(question.message_id)
        copy.draft = question.content
        self._add(copy)
        for message in copy.path():
            self._store.save_message(copy.conversation_id, message)
        return copy.conversation_id

    def select_version(self, conversation_id: str, message_id: str) -> None:
        """Shows this version of a message, and below it what was shown there last."""
        conversation = self._open[conversation_id]
        before = conversation.active_leaf_id
        conversation.show_version(message_id)
        if conversation.active_leaf_id != before:
            self._store.save_conversation(conversation)
            self.path_changed.emit(conversation_id)

    def compare(self, conversation_id: str, message_id: str) -> None:
        """Shows the versions of an answer side by side, at most ``MAX_ANSWERS``, this one too."""
        versions = [m.message_id for m in self._open[conversation_id].siblings(message_id)]
        last = max(len(versions) - MAX_ANSWERS, 0)
        start = min(last, versions.index(message_id))
        self._set_compared(conversation_id, tuple(versions[start : start + MAX_ANSWERS]))

    def end_comparison(self, conversation_id: str, chosen_id: str = "") -> None:
        """Goes on with the chosen answer, or the one that was shown; the others stay as versions.

        Others that are still running are stopped.
        """
        compared = self.compared(conversation_id)
        self._set_compared(conversation_id, ())
        if chosen_id:
            for message_id in compared:
                if message_id != chosen_id:
                    self._answers.stop(conversation_id, message_id)
            self.select_version(conversation_id, chosen_id)

    # --- deleting ---

    def delete_branch(self, conversation_id: str, message_id: str) -> None:
        """Deletes a message and what follows it; ``undo_delete`` brings it back."""
        conversation = self._open[conversation_id]
        self._deletions.delete_branch(conversation, message_id)
        self._let_go(conversation)

    def delete_pair(self, conversation_id: str, message_id: str) -> None:
        """Deletes a question and its answers; what follows moves up. ``undo_delete`` undoes it."""
        conversation = self._open[conversation_id]
        self._deletions.delete_pair(conversation, message_id)
        self._let_go(conversation)

    def undo_delete(self, conversation_id: str) -> bool:
        """Brings back what was deleted last. False if there is nothing."""
        return self._deletions.undo(self._open[conversation_id])

    def num_deleted(self, conversation_id: str) -> int:
        """How many messages ``undo_delete`` would bring back."""
        return self._deletions.num_messages(conversation_id)

    # --- parts ---

    def _let_go(self, conversation: Conversation) -> None:
        """Some messages are gone: their answers are no longer wanted."""
        conversation_id, messages = conversation.conversation_id, conversation.messages
        self._answers.abandon(conversation_id, kept=messages)
        self._set_compared(conversation_id, self.compared(conversation_id))

    def _set_compared(self, conversation_id: str, message_ids: tuple[str, ...]) -> None:
        if message_ids != self._compared.get(conversation_id, ()):
            self._compared[conversation_id] = message_ids
            self.comparison_changed.emit(conversation_id)
