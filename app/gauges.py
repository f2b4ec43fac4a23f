"""What a draft would cost: its tokens, the context with it, what of that is cached, the blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge import Bridge
from app.conversation import Conversation, new_id
from app.outlooks import forecast_of, limit_of
from app.session_signals import SessionSignals
from engine.api.commands import CountTokens
from engine.api.events import (
    CommandFailed,
    Event,
    ForecastReady,
    ModelInfo,
    ModelLoaded,
    ModelUnloaded,
    TokensCounted,
)


@dataclass(frozen=True, slots=True)
class Gauge:
    """Of sending ``text`` now. Tokens, and blocks of the pool.

    ``draft_tokens`` and ``prompt_tokens`` None: not known yet. ``prompt_tokens``: all that the
    model would read, fewer than ``limit_tokens`` or it is refused; ``cached_tokens`` of them are
    not computed again. ``blocks_needed``: for these and the longest answer, ``blocks_shared`` of
    them are there. ``evicted_ids``: the conversations whose ``blocks_evicted`` cached blocks would
    go, ``evicted_blocks`` among the first. ``blocks_short``: it would have to wait for so many.
    """

    text: str
    limit_tokens: int
    draft_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    blocks_needed: int = 0
    blocks_shared: int = 0
    blocks_evicted: int = 0
    blocks_short: int = 0
    evicted_ids: tuple[str, ...] = ()
    evicted_blocks: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether it would be refused."""
        return self.prompt_tokens is not None and self.prompt_tokens >= self.limit_tokens


class Gauges(QObject):
    """The latest gauge of each conversation. ``changed(conversation_id)``."""

    changed = Signal(str)

    def __init__(self, bridge: Bridge, signals: SessionSignals) -> None:
        super().__init__(signals)
        self._bridge = bridge
        self._known: dict[str, Gauge] = {}
        self._asked: dict[str, str] = {}
        bridge.engine_event.connect(self._on_bridge_engine_event)
        signals.path_changed.connect(self.forget)
        signals.conversation_closed.connect(self.forget)
        signals.message_added.connect(self._on_message_added)

    def of(self, conversation_id: str) -> Gauge | None:
        """What is known; None if nothing is written or no model was there to ask."""
        return self._known.get(conversation_id)

    def ask(
        self,
        conversation: Conversation,
        text: str,
        model: ModelInfo | None,
        max_tokens: int | None,
    ) -> None:
        """Asks the engine about ``text``; ``changed`` follows with each of its two answers."""
        conversation_id = conversation.conversation_id
        self._drop_questions(conversation_id)
        if model is None or not text.strip():
            self.forget(conversation_id)
            return
        before = self._known.get(conversation_id)
        fresh = Gauge(text, limit_of(model))
        # The figures of a moment ago stay until the new ones come: nothing flickers.
        self._known[conversation_id] = (
            fresh if before is None else replace(before, text=text, limit_tokens=fresh.limit_tokens)
        )
        count = CountTokens(text, command_id=self._question(conversation_id))
        question = self._question(conversation_id)
        forecast = forecast_of(conversation, text, max_tokens, question)
        self._bridge.send(count)
        self._bridge.send(forecast)

    @Slot(str)
    def forget(self, conversation_id: str) -> None:
        """What was known no longer holds."""
        self._drop_questions(conversation_id)
        if self._known.pop(conversation_id, None) is not None:
            self.changed.emit(conversation_id)

    def _question(self, conversation_id: str) -> str:
        command_id = new_id()
        self._asked[command_id] = conversation_id
        return command_id

    def _drop_questions(self, conversation_id: str) -> None:
        self._asked = {k: asked for k, asked in self._asked.items() if asked != conversation_id}

    @Slot(str, str)
    def _on_message_added(self, conversation_id: str, _message_id: str) -> None:
        self.forget(conversation_id)

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if isinstance(event, ModelLoaded | ModelUnloaded):
            # Another tokenizer, another limit, and nothing cached.
            for known_id in list(self._known):
                self.forget(known_id)
            return
        if not isinstance(event, TokensCounted | ForecastReady | CommandFailed):
            return
        conversation_id = self._asked.pop(event.command_id, "")
        gauge = self._known.get(conversation_id)
        if gauge is None:
            return
        self._known[conversation_id] = _with_answer(gauge, event)
        self.changed.emit(conversation_id)


def _with_answer(gauge: Gauge, event: TokensCounted | ForecastReady | CommandFailed) -> Gauge:
    if isinstance(event, TokensCounted):
        return replace(gauge, draft_tokens=event.num_tokens)
    if isinstance(event, CommandFailed):
        # A message that is too long by itself: the error has its length.
        found = dict(event.error.numbers).get("prompt_tokens")
        tokens = int(found) if found is not None else None
        return Gauge(gauge.text, gauge.limit_tokens, gauge.draft_tokens, tokens)
    return replace(
        gauge,
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        blocks_needed=event.blocks_needed,
        blocks_shared=event.blocks_shared,
        blocks_evicted=event.blocks_evicted,
        blocks_short=event.blocks_short,
        evicted_ids=event.evicted_conversation_ids,
        evicted_blocks=event.evicted_block_ids,
    )
