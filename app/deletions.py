"""Messages that were deleted, and the way back."""

from __future__ import annotations

from app.conversation import Conversation
from app.removals import Removal, remove_branch, remove_pair
from app.session_signals import SessionSignals
from app.store import Store

_KEPT = 20


class Deletions:
    """Deletes messages softly; the last ``_KEPT`` deletions of a conversation can be undone."""

    def __init__(self, store: Store, signals: SessionSignals) -> None:
        self._store = store
        self._signals = signals
        self._removals: dict[str, list[Removal]] = {}

    def num_messages(self, conversation_id: str) -> int:
        """How many messages ``undo`` would bring back."""
        removals = self._removals.get(conversation_id)
        return len(removals[-1].messages) if removals else 0

    def delete_branch(self, conversation: Conversation, message_id: str) -> None:
        """Deletes a message and all that follows it."""
        self._keep(conversation, remove_branch(conversation, message_id))

    def delete_pair(self, conversation: Conversation, message_id: str) -> None:
        """Deletes a question with its answers; what follows moves up."""
        self._keep(conversation, remove_pair(conversation, message_id))

    def undo(self, conversation: Conversation) -> bool:
        """Brings back what was deleted last. False if there is nothing."""
        removals = self._removals.get(conversation.conversation_id)
        if not removals:
            return False
        removal = removals.pop()
        changed = removal.undo(conversation)
        with self._store.together():
            for message in (*removal.messages, *changed):
                self._store.save_message(conversation.conversation_id, message)
            self._store.set_messages_deleted((m.message_id for m in removal.messages), False)
            self._store.save_conversation(conversation)
        self._tell(conversation)
        return True

    def forget(self, conversation_id: str) -> None:
        """Its last deletions can no longer be undone here."""
        self._removals.pop(conversation_id, None)

    def _keep(self, conversation: Conversation, removal: Removal) -> None:
        removals = self._removals.setdefault(conversation.conversation_id, [])
        removals.append(removal)
        del removals[:-_KEPT]
        with self._store.together():
            for message_id in removal.parents.keys() | removal.cuts.keys():
                message = conversation.messages[message_id]
                self._store.save_message(conversation.conversation_id, message)
            self._store.set_messages_deleted(m.message_id for m in removal.messages)
            self._store.save_conversation(conversation)
        self._tell(conversation)

    def _tell(self, conversation: Conversation) -> None:
        conversation_id = conversation.conversation_id
        self._signals.path_changed.emit(conversation_id)
        self._signals.messages_deleted.emit(conversation_id)
        self._signals.conversation_changed.emit(conversation_id)
