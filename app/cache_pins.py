"""Conversations whose blocks are kept in the cache, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from app.asking import Asking
from app.bridge import Bridge
from app.conversation import ASSISTANT, Conversation, MessageStatus, new_id
from app.session_state import ModelStatus, Notice, Severity
from engine.api.commands import Pin, Unpin
from engine.api.errors import NoModelError
from engine.api.events import CommandFailed, Event, ModelInfo


@dataclass(frozen=True, slots=True)
class PinCost:
    """What the blocks of a conversation take; shared ones are counted whole."""

    num_blocks: int
    num_bytes: int
    pool_share: float


class CachePins:
    """Pins anew whenever a pinned conversation has grown or shows another branch.

    With the model the pool goes and its pins with it; the next model's is pinned in turn.
    """

    def __init__(self, bridge: Bridge, session: Asking) -> None:
        self._bridge = bridge
        self._session = session
        self._pinned: set[str] = set()
        self._command_ids: dict[str, str] = {}
        session.path_changed.connect(self._renew)
        session.message_changed.connect(lambda conversation_id, _: self._renew(conversation_id))
        session.model_state_changed.connect(self._on_model_state_changed)
        session.message_removed.connect(lambda conversation_id, _: self._renew(conversation_id))

    def has(self, conversation_id: str) -> bool:
        return conversation_id in self._pinned

    def set(self, conversation: Conversation, keep: bool) -> None:
        """Pins the shown branch, or lets it go."""
        conversation_id = conversation.conversation_id
        if keep == self.has(conversation_id):
            return
        if keep:
            self._pinned.add(conversation_id)
            self._pin(conversation)
        else:
            self.forget(conversation_id)
        self._session.cache_pin_changed.emit(conversation_id)

    def forget(self, conversation_id: str) -> None:
        """Lets the blocks go; for a conversation that is being closed."""
        if conversation_id in self._pinned:
            self._pinned.discard(conversation_id)
            if self._is_ready:
                self._bridge.send(Unpin(conversation_id))

    def handle(self, event: Event) -> bool:
        """Takes refusals; True if this was one."""
        if not isinstance(event, CommandFailed):
            return False
        conversation_id = self._command_ids.pop(event.command_id, None)
        if conversation_id is None:
            return False
        # The model has gone meanwhile: the next one's pool is pinned in turn.
        is_lost = event.error.code != NoModelError.code
        if is_lost and conversation_id in self._pinned:
            self._pinned.discard(conversation_id)
            self._session.cache_pin_changed.emit(conversation_id)
            notice = Notice(Severity.WARNING, event.error, conversation_id)
            self._session.notice_raised.emit(notice)
        return True

    @property
    def _is_ready(self) -> bool:
        return self._session.model_state.status is ModelStatus.READY

    def _on_model_state_changed(self) -> None:
        if self._is_ready:
            for conversation_id in self._pinned:
                self._renew(conversation_id)

    def _renew(self, conversation_id: str) -> None:
        if conversation_id in self._pinned:
            self._pin(self._session.conversation(conversation_id))

    def _pin(self, conversation: Conversation) -> None:
        path = conversation.path()
        while path and path[-1].status is MessageStatus.STREAMING:
            path.pop()
        if not path or not self._is_ready:
            return
        leaf_id, conversation_id = path[-1].message_id, conversation.conversation_id
        command_id = new_id()
        self._command_ids = {
            key: name for key, name in self._command_ids.items() if name != conversation_id
        }
        self._command_ids[command_id] = conversation_id
        self._bridge.send(
            Pin(
                conversation_id,
                conversation.chat_messages(up_to=leaf_id),
                conversation.context(leaf_id),
                command_id=command_id,
            )
        )


def pin_cost(conversation: Conversation, model: ModelInfo | None) -> PinCost | None:
    """What keeping the conversation takes; None while that is not known."""
    usages = [m.usage for m in conversation.path() if m.role == ASSISTANT and m.usage is not None]
    # One that ended before its prompt was encoded tells nothing.
    usages = [usage for usage in usages if usage.prompt_tokens]
    if model is None or not model.keeps_blocks or not usages:
        return None
    usage = usages[-1]
    # The last token's keys and values are computed only when it is read.
    num_blocks = (usage.prompt_tokens + usage.output_tokens - 1) // model.block_size
    num_bytes = num_blocks * model.block_size * model.kv_bytes_per_token
    return PinCost(num_blocks, num_bytes, num_blocks / model.num_blocks)
