"""What sending a text would drop, asked before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.bridge import Bridge
from app.conversation import ASSISTANT, USER, Conversation, new_id
from app.session_signals import SessionSignals
from app.session_state import Outlook
from engine.api.commands import Forecast
from engine.api.events import CommandFailed, Event, ForecastReady, ModelInfo
from engine.api.params import ChatMessage

_TEMPLATE_TOKENS = 64
"""More than a template puts around a message."""

_ROOM_SHARE = 16
"""The engine keeps a sixteenth of what fits free for the answer."""


@dataclass(slots=True, eq=False)
class _Question:
    conversation_id: str
    outlook: Outlook


class Outlooks:
    """The latest outlook of each conversation. Asks the engine only when a text may not fit."""

    def __init__(self, bridge: Bridge, signals: SessionSignals) -> None:
        self._bridge = bridge
        self._signals = signals
        self._asked: dict[str, _Question] = {}
        self._known: dict[str, Outlook] = {}
        signals.path_changed.connect(self.forget)
        signals.conversation_changed.connect(self.forget)
        signals.message_added.connect(self._on_message_added)

    def of(self, conversation_id: str) -> Outlook | None:
        return self._known.get(conversation_id)

    def ask(
        self,
        conversation: Conversation,
        text: str,
        model: ModelInfo | None,
        max_tokens: int | None,
    ) -> bool:
        """Asks what sending ``text`` would do. False if it surely fits or ``model`` is None."""
        conversation_id = conversation.conversation_id
        self._asked = {k: q for k, q in self._asked.items() if q.conversation_id != conversation_id}
        if model is None or not may_overflow(conversation, text, model):
            if self._known.pop(conversation_id, None) is not None:
                self._signals.outlook_changed.emit(conversation_id)
            return False
        command_id = new_id()
        outlook = Outlook(text, limit_tokens=limit_of(model))
        self._asked[command_id] = _Question(conversation_id, outlook)
        self._bridge.send(forecast_of(conversation, text, max_tokens, command_id))
        return True

    def forget(self, conversation_id: str) -> None:
        """The conversation changed or is closed: what was known no longer holds."""
        self._known.pop(conversation_id, None)
        self._asked = {k: q for k, q in self._asked.items() if q.conversation_id != conversation_id}

    def _on_message_added(self, conversation_id: str, _message_id: str) -> None:
        self.forget(conversation_id)

    def handle(self, event: Event) -> bool:
        """Takes the replies; True if this was one."""
        if not isinstance(event, ForecastReady | CommandFailed):
            return False
        question = self._asked.pop(event.command_id, None)
        if question is None:
            # Of a text that has changed since.
            return isinstance(event, ForecastReady)
        outlook = question.outlook
        if isinstance(event, CommandFailed):
            outlook = replace(outlook, fits=False, error=event.error)
        else:
            outlook = replace(
                outlook,
                fits=event.prompt_tokens < outlook.limit_tokens,
                prompt_tokens=event.prompt_tokens,
                dropped_messages=event.cut.new_messages,
                dropped_tokens=event.cut.new_tokens,
                recomputed_tokens=event.recomputed_tokens,
            )
        self._known[question.conversation_id] = outlook
        self._signals.outlook_changed.emit(question.conversation_id)
        return True


def forecast_of(
    conversation: Conversation, text: str, max_tokens: int | None, command_id: str
) -> Forecast:
    """Asks what sending ``text`` would do, with an answer of ``max_tokens`` at most."""
    messages = (*conversation.chat_messages(), ChatMessage(USER, text))
    return Forecast(
        conversation.conversation_id,
        messages,
        max_tokens,
        conversation.context(),
        command_id=command_id,
    )


def limit_of(model: ModelInfo) -> int:
    """A prompt fits if it has fewer tokens."""
    return min(model.context_length, model.num_blocks * model.block_size)


def may_overflow(conversation: Conversation, text: str, model: ModelInfo) -> bool:
    """False if the conversation with ``text`` fits for sure, without counting tokens.

    A token is at least a byte of UTF-8; what the last answer took is known.
    """
    limit = limit_of(model)
    num_tokens = _at_most(text) + limit // _ROOM_SHARE
    cut = conversation.num_dropped()
    for message in reversed(conversation.path()):
        usage = message.usage
        is_same = message.model == model.name and message.num_dropped == cut
        if message.role == ASSISTANT and usage is not None and is_same:
            return num_tokens + usage.prompt_tokens + usage.output_tokens > limit
        num_tokens += _at_most(message.content)
    return num_tokens + _at_most(conversation.system_prompt) > limit


def _at_most(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) + _TEMPLATE_TOKENS
