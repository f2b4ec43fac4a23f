"""What another system prompt would cost, asked of the engine beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge
from app.conversation import SYSTEM, USER, new_id
from app.session_state import ModelStatus
from engine.api.commands import Forecast
from engine.api.events import CommandFailed, Event, ForecastReady
from engine.api.params import ChatMessage, ContextPolicy

if TYPE_CHECKING:
    from app.session import Session

_NEXT = "·"
"""Stands for the next message, of which nothing is cached."""


@dataclass(frozen=True, slots=True)
class PromptCost:
    """What giving ``text`` to ``conversation_ids`` would do.

    ``unshared_blocks``: blocks of the pool that begin like these conversations do now, and would
    not with ``text``; ``computed_tokens``, ``computed_blocks``: of prompt and messages, that their
    next answers would compute, and ``computed_before`` tokens without the change. ``is_known`` is
    false where the engine could not tell, or without a model.
    """

    text: str
    conversation_ids: tuple[str, ...]
    unshared_blocks: int = 0
    computed_tokens: int = 0
    computed_blocks: int = 0
    computed_before: int = 0
    is_known: bool = True


@dataclass(slots=True, eq=False)
class _Question:
    cost: PromptCost
    block_size: int
    # Command ids that wait for a reply, with what it tells.
    waiting: dict[str, str] = field(default_factory=dict)
    shared_now: int = 0
    shared_then: int = 0


class PromptCosts(QObject):
    """Answers the newest question only: ``told(PromptCost)`` follows, unless another one comes
    first.
    """

    told = Signal(object)

    def __init__(self, bridge: Bridge, session: Session, parent: QObject) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._session = session
        self._question: _Question | None = None
        bridge.engine_event.connect(self._on_bridge_engine_event)

    def ask(self, conversation_ids: Iterable[str], text: str) -> None:
        """Asks what giving ``text`` to these conversations would cost, those that are closed by
        now left out. Never waits.
        """
        cost = PromptCost(text, tuple(conversation_ids))
        open_ids = self._session.conversation_ids()
        ids = [i for i in cost.conversation_ids if i in open_ids]
        state = self._session.model_state
        info = state.info if state.status is ModelStatus.READY else None
        if info is None or not ids:
            self._question = None
            self.told.emit(replace(cost, is_known=not ids))
            return
        question = self._question = _Question(cost, info.block_size)
        conversations = [self._session.conversation(i) for i in ids]
        for old in sorted({c.system_prompt for c in conversations}):
            self._ask(question, "now", ids[0], _beginning(old))
        self._ask(question, "then", ids[0], _beginning(text))
        for conversation in conversations:
            changed = replace(conversation, system_prompt=text)
            for kind, asked in (("before", conversation), ("after", changed)):
                messages = (*asked.chat_messages(), ChatMessage(USER, _NEXT))
                self._ask(question, kind, asked.conversation_id, messages, asked.context())

    def _ask(
        self,
        question: _Question,
        kind: str,
        conversation_id: str,
        messages: tuple[ChatMessage, ...],
        context: ContextPolicy = ContextPolicy(),
    ) -> None:
        command_id = new_id()
        question.waiting[command_id] = kind
        self._bridge.send(Forecast(conversation_id, messages, 1, context, command_id=command_id))

    def _on_bridge_engine_event(self, event: Event) -> None:
        question = self._question
        if question is None or not isinstance(event, ForecastReady | CommandFailed):
            return
        kind = question.waiting.pop(event.command_id, None)
        if kind is None:
            return
        if isinstance(event, CommandFailed):
            question.cost = replace(question.cost, is_known=False)
        elif kind == "now":
            question.shared_now = max(question.shared_now, event.blocks_shared)
        elif kind == "then":
            question.shared_then = event.blocks_shared
        else:
            _count(question, kind, event.prompt_tokens - event.cached_tokens)
        if not question.waiting:
            self._question = None
            lost = max(0, question.shared_now - question.shared_then)
            self.told.emit(replace(question.cost, unshared_blocks=lost))


def _count(question: _Question, kind: str, num_tokens: int) -> None:
    cost = question.cost
    if kind == "before":
        question.cost = replace(cost, computed_before=cost.computed_before + num_tokens)
    else:
        question.cost = replace(
            cost,
            computed_tokens=cost.computed_tokens + num_tokens,
            computed_blocks=cost.computed_blocks + -(-num_tokens // question.block_size),
        )


def _beginning(prompt: str) -> tuple[ChatMessage, ...]:
    """A conversation with the prompt and nothing that could be cached after it."""
    system = (ChatMessage(SYSTEM, prompt),) if prompt else ()
    return (*system, ChatMessage(USER, _NEXT))
