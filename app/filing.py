"""Where conversations are found: pinned, in folders, archived, deleted for a while."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.conversation import USER, storable
from app.conversations import Conversations
from app.session_state import ConversationSummary
from app.titles import clean_title, title_of

_KEPT_DELETIONS = 20


@dataclass(frozen=True, slots=True)
class Deletion:
    """Conversations that were deleted at once, and those of them that were open."""

    conversation_ids: tuple[str, ...]
    open_ids: tuple[str, ...]


class Filing(Conversations):
    """Files open and stored conversations alike. Ids that are not stored are left out."""

    _deleted_lately: tuple[Deletion, ...] = ()

    # --- reading ---

    def folders(self) -> list[str]:
        """Names of the folders that hold something, whatever their case in order."""
        found = {s.folder for s in self._store.summaries() if s.folder}
        return sorted(found | {c.folder for c in self._open.values() if c.folder}, key=str.casefold)

    def deleted_conversations(self) -> list[ConversationSummary]:
        """Conversations that can be brought back, the latest used first."""
        return self._store.summaries(deleted=True)

    @property
    def last_deletion(self) -> Deletion | None:
        """What ``undo_delete_conversations`` would bring back."""
        return self._deleted_lately[-1] if self._deleted_lately else None

    # --- changing ---

    def rename(self, conversation_id: str, title: str) -> None:
        """Sets the title; an empty one brings back the automatic title."""
        plain = clean_title(storable(title))
        automatic = not plain
        if automatic:
            conversation = self.stored_conversation(conversation_id)
            path = [] if conversation is None else conversation.path()
            plain = title_of(m.content for m in path if m.role == USER)
        self._change([conversation_id], title=plain, title_is_automatic=automatic)

    def set_pinned(self, conversation_ids: Iterable[str], pinned: bool) -> None:
        """Keeps them at the top, or no longer."""
        self._change(conversation_ids, pinned=pinned)

    def set_folder(self, conversation_ids: Iterable[str], folder: str) -> None:
        """Moves them into a folder, made if need be, from wherever they are; empty for none."""
        name = clean_title(storable(folder))
        elsewhere = {"archived": False, "pinned": False} if name else {}
        self._change(conversation_ids, folder=name, **elsewhere)

    def rename_folder(self, folder: str, name: str) -> None:
        """Another name for a folder; one that exists takes its conversations in, an empty one
        leaves them without a folder.
        """
        inside = [s.conversation_id for s in self._store.summaries() if s.folder == folder]
        inside += [i for i, c in self._open.items() if c.folder == folder and i not in inside]
        self._change(inside, folder=clean_title(storable(name)))

    def set_archived(self, conversation_ids: Iterable[str], archived: bool) -> None:
        """Puts them away, which closes them, or takes them out again."""
        chosen = list(conversation_ids)
        for conversation_id in chosen if archived else ():
            if conversation_id in self._open:
                self.close_conversation(conversation_id)
        self._change(chosen, archived=archived)

    # --- deleting ---

    def delete_conversations(self, conversation_ids: Sequence[str]) -> None:
        """Closes and deletes conversations; ``undo_delete_conversations`` brings them back."""
        open_ids = tuple(i for i in conversation_ids if i in self._open)
        for conversation_id in open_ids:
            self.close_conversation(conversation_id)
        deleted = tuple(i for i in conversation_ids if self._store.set_conversation_deleted(i))
        if deleted:
            deletion = Deletion(deleted, tuple(i for i in open_ids if i in deleted))
            self._deleted_lately = (*self._deleted_lately, deletion)[-_KEPT_DELETIONS:]
            self._tell_deleted()

    def reopen_conversation(self, conversation_id: str) -> bool:
        """Opens a stored conversation again; one that was deleted is brought back by that.

        False, with a notice, if it is not there.
        """
        if conversation_id in self._open:
            return True
        deleted_ids = {s.conversation_id for s in self.deleted_conversations()}
        if not super().reopen_conversation(conversation_id):
            return False
        is_forgotten = self._forget_deletions({conversation_id})
        if is_forgotten or conversation_id in deleted_ids:
            self._tell_deleted()
        return True

    def undo_delete_conversations(self) -> bool:
        """Brings back what was deleted last, and opens what was open. False if there is nothing."""
        deletion = self.last_deletion
        if deletion is None:
            return False
        self.restore_conversations(deletion.conversation_ids)
        for conversation_id in deletion.open_ids:
            self.reopen_conversation(conversation_id)
        return True

    def restore_conversations(self, conversation_ids: Iterable[str]) -> None:
        """Brings back conversations that were deleted."""
        wanted = set(conversation_ids)
        back = wanted & {s.conversation_id for s in self.deleted_conversations()}
        for conversation_id in back:
            self._store.set_conversation_deleted(conversation_id, False)
        # Those that are not deleted any more cannot be brought back again.
        is_forgotten = self._forget_deletions(wanted)
        if back or is_forgotten:
            self._tell_deleted()

    def erase_conversations(self, conversation_ids: Iterable[str]) -> None:
        """Deletes for good what was deleted already."""
        deleted = {s.conversation_id for s in self.deleted_conversations()}
        gone = deleted & set(conversation_ids)
        for conversation_id in gone:
            self._recently_closed.pop(conversation_id, None)
            self._store.delete_conversation(conversation_id)
        self._forget_deletions(gone)
        self._tell_deleted()

    def _forget_deletions(self, conversation_ids: set[str]) -> bool:
        """These are no longer what an undo would bring back. False if none of them was."""
        left = []
        for deletion in self._deleted_lately:
            kept = tuple(i for i in deletion.conversation_ids if i not in conversation_ids)
            if kept:
                left.append(Deletion(kept, tuple(i for i in deletion.open_ids if i in kept)))
        is_other = tuple(left) != self._deleted_lately
        self._deleted_lately = tuple(left)
        return is_other

    def _tell_deleted(self) -> None:
        self.stored_changed.emit()
        self.conversations_deleted.emit()

    def _change(self, conversation_ids: Iterable[str], **values: Any) -> None:
        is_stored_changed = False
        for conversation_id in conversation_ids:
            conversation = self._open.get(conversation_id)
            held = conversation or self._recently_closed.get(conversation_id)
            if held is not None:
                for name, value in values.items():
                    setattr(held, name, value)
            if conversation is not None:
                self._save_changed(conversation)
            else:
                is_stored_changed |= self._store.change_conversation(conversation_id, **values)
        if is_stored_changed:
            self.stored_changed.emit()
