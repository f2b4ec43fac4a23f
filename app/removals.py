"""Taking messages out of a conversation's tree, and putting them back. Qt-free."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.conversation import ASSISTANT, USER, Conversation, Message


@dataclass(slots=True, eq=False)
class Removal:
    """What was taken out, and what was changed to close the gap.

    ``messages``: parents before their children. ``parents`` and ``cuts``: by message id, the
    ``parent_id`` and ``num_dropped`` that remaining messages had before. ``leaf_id``: the shown
    leaf before.
    """

    messages: list[Message]
    leaf_id: str | None
    parents: dict[str, str | None] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)

    def undo(self, conversation: Conversation) -> list[Message]:
        """Puts everything back as it was; messages that came since stay. Returns those changed."""
        for message in self.messages:
            conversation.messages[message.message_id] = message
        changed = []
        for message_id in self.parents.keys() | self.cuts.keys():
            remaining = conversation.messages.get(message_id)
            if remaining is not None:
                remaining.parent_id = self.parents.get(message_id, remaining.parent_id)
                remaining.num_dropped = self.cuts.get(message_id, remaining.num_dropped)
                changed.append(remaining)
        # What was asked since may stand below it; or it was an answer that never began.
        shown = self.leaf_id if self.leaf_id in conversation.messages else None
        conversation.active_leaf_id = conversation.newest_leaf(shown or self.messages[0].message_id)
        return changed


def remove_branch(conversation: Conversation, message_id: str) -> Removal:
    """Takes a message out with all that follows it; its other versions stay.

    Another version is shown then, or what stood before it.

    Raises:
        UnknownMessageError: it is not in this conversation.
    """
    message = conversation.message(message_id)
    removed = subtree(conversation, message_id)
    removal = Removal(removed, conversation.active_leaf_id)
    for each in removed:
        del conversation.messages[each.message_id]
    _find_leaf(conversation, message)
    return removal


def remove_pair(conversation: Conversation, message_id: str) -> Removal:
    """Takes a question out with its answers; what follows the shown answer moves up.

    ``message_id``: of the question, or of an answer to it; with an answer, what follows that one
    stays. Without an answer or a question beside it the message goes alone.

    Raises:
        UnknownMessageError: it is not in this conversation.
    """
    question, answer = _pair(conversation, conversation.message(message_id))
    first = question or answer
    assert first is not None
    last = answer or first
    following = conversation.children(last.message_id)
    position = len(conversation.path_to(first.message_id)) - 1
    size = 1 if last is first else 2
    removal = Removal([], conversation.active_leaf_id)
    for child in following:
        removal.parents[child.message_id] = child.parent_id
        child.parent_id = first.parent_id
        for each in subtree(conversation, child.message_id):
            # Counted from the first message on: those that are gone no longer count.
            if each.num_dropped > position:
                removal.cuts[each.message_id] = each.num_dropped
                each.num_dropped = max(position, each.num_dropped - size)
    removal.messages = subtree(conversation, first.message_id)
    for each in removal.messages:
        del conversation.messages[each.message_id]
    _find_leaf(conversation, first)
    return removal


def subtree(conversation: Conversation, message_id: str) -> list[Message]:
    """A message and all that follow it on any branch, parents before their children."""
    found, versions = [conversation.message(message_id)], conversation.versions()
    for message in found:
        found += versions.get(message.message_id, ())
    return found


def _pair(conversation: Conversation, message: Message) -> tuple[Message | None, Message | None]:
    if message.role == ASSISTANT:
        parent = conversation.messages.get(message.parent_id or "")
        return (parent if parent is not None and parent.role == USER else None), message
    path = conversation.path()
    shown = [m for m in path if m.parent_id == message.message_id and m.role == ASSISTANT]
    answers = shown or [m for m in conversation.children(message.message_id) if m.role == ASSISTANT]
    return message, (answers[-1] if answers else None)


def _find_leaf(conversation: Conversation, gone: Message) -> None:
    if conversation.active_leaf_id in conversation.messages:
        return
    versions = conversation.children(gone.parent_id)
    if versions:
        before = [m for m in versions if m.created_at <= gone.created_at]
        nearest = before[-1] if before else versions[0]
        conversation.active_leaf_id = conversation.newest_leaf(nearest.message_id)
    else:
        conversation.active_leaf_id = gone.parent_id
