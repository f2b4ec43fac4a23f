"""Answers on their way: from the question to the last token, or back to the composer."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from app.bridge import Bridge
from app.conversation import Conversation, Message, MessageStatus, new_id, system_prompt_key
from app.session_signals import SessionSignals
from app.session_state import IDLE, Notice, RequestPhase, RequestState, Severity
from app.store import Store
from engine.api.commands import Cancel, Submit
from engine.api.errors import ErrorInfo
from engine.api.events import (
    CommandFailed,
    Event,
    FinishReason,
    ModelInfo,
    PrefillProgress,
    RequestEvent,
    RequestFinished,
    RequestPaused,
    RequestPreempted,
    RequestQueued,
    RequestResumed,
    RequestWaiting,
    TokensGenerated,
)
from engine.api.params import ContextPolicy

_LOG = logging.getLogger(__name__)

_STATUS = {
    FinishReason.STOP: MessageStatus.DONE,
    FinishReason.LENGTH: MessageStatus.DONE,
    FinishReason.CANCELLED: MessageStatus.STOPPED,
    FinishReason.ERROR: MessageStatus.ERROR,
}


@dataclass(slots=True, eq=False)
class _Answer:
    """``previous_leaf_id``: the shown leaf before it; ``draft``: the question if it was typed for
    it.
    """

    request_id: str
    conversation: Conversation
    message: Message
    previous_leaf_id: str | None
    draft: str | None
    submitted: bool = False
    state: RequestState = IDLE


class Answers:
    """The running answer of each conversation, at most one each."""

    def __init__(self, bridge: Bridge, store: Store, signals: SessionSignals) -> None:
        self._bridge = bridge
        self._store = store
        self._signals = signals
        self._model: ModelInfo | None = None
        self._by_request: dict[str, _Answer] = {}
        self._by_conversation: dict[str, _Answer] = {}

    def state(self, conversation_id: str) -> RequestState:
        answer = self._by_conversation.get(conversation_id)
        return IDLE if answer is None else answer.state

    def is_busy(self, conversation_id: str) -> bool:
        return conversation_id in self._by_conversation

    def ask(
        self,
        conversation: Conversation,
        message: Message,
        previous_leaf_id: str | None,
        draft: str | None,
    ) -> None:
        """Wants ``message`` (an empty answer, in the tree) filled; may wait for the model."""
        answer = _Answer(new_id(), conversation, message, previous_leaf_id, draft)
        self._by_request[answer.request_id] = answer
        self._by_conversation[conversation.conversation_id] = answer
        if self._model is None:
            self._set_state(answer, RequestState(RequestPhase.WAITING, reason="loading"))
        else:
            self._submit(answer, self._model)

    def stop(self, conversation_id: str) -> None:
        """Stops the answer; what has come stays."""
        answer = self._by_conversation.get(conversation_id)
        if answer is None:
            return
        if answer.submitted:
            self._bridge.send(Cancel(answer.request_id))
        else:
            self._end(answer, MessageStatus.STOPPED)

    def abandon(self, conversation_id: str) -> None:
        """Stops the answer and hears no more of it; for a conversation that is being closed."""
        answer = self._by_conversation.get(conversation_id)
        if answer is not None:
            if answer.submitted:
                self._bridge.send(Cancel(answer.request_id))
            self._end(answer, MessageStatus.STOPPED)

    def model_ready(self, model: ModelInfo) -> None:
        """Submits what has waited for a model."""
        self._model = model
        for answer in list(self._by_request.values()):
            if not answer.submitted:
                self._submit(answer, model)

    def model_loading(self) -> None:
        """From now on answers wait for the next model."""
        self._model = None

    def model_unavailable(self, error: ErrorInfo) -> None:
        """Gives back what has waited for a model; what was running has failed."""
        self._model = None
        for answer in list(self._by_request.values()):
            if answer.message.content:
                answer.message.error = error
                self._end(answer, MessageStatus.ERROR)
            else:
                self._withdraw(answer)

    def interrupt_all(self) -> None:
        """The program ends: what has come is kept."""
        for answer in list(self._by_request.values()):
            self._end(answer, MessageStatus.INTERRUPTED)

    def handle(self, event: Event) -> bool:
        """Takes the events of requests; True if this was one."""
        if isinstance(event, CommandFailed):
            answer = self._by_request.get(event.command_id)
            if answer is None:
                return False
            self._fail(answer, event.error)
            return True
        if not isinstance(event, RequestEvent):
            return False
        answer = self._by_request.get(event.request_id)
        if answer is not None:
            self._on_request_event(answer, event)
        return True

    def _on_request_event(self, answer: _Answer, event: RequestEvent) -> None:
        match event:
            case TokensGenerated():
                if answer.state.phase is not RequestPhase.DECODE:
                    self._set_state(answer, RequestState(RequestPhase.DECODE))
                self._append(answer, event.text)
            case PrefillProgress(computed_tokens=done, prompt_tokens=total, cached_tokens=cached):
                self._set_state(
                    answer,
                    RequestState(RequestPhase.PREFILL, done=done, total=total, cached=cached),
                )
            case RequestQueued():
                reason = event.waits_for.value or "queued"
                self._wait(answer, reason, event.blocks_short)
                self._keep_cut(answer, event.cut.num_messages)
            case RequestWaiting():
                other = self._by_request.get(event.waits_on_request_id)
                waits_on = "" if other is None else other.conversation.conversation_id
                reason = event.waits_for.value or "queued"
                self._wait(answer, reason, event.blocks_short, waits_on)
            case RequestPreempted():
                self._wait(answer, "preempted")
            case RequestPaused():
                self._wait(answer, "paused")
            case RequestResumed():
                self._wait(answer, "queued")
            case RequestFinished():
                self._finish(answer, event)
            case _:
                _LOG.warning("unknown request event %s", type(event).__name__)

    def _wait(
        self, answer: _Answer, reason: str, blocks_short: int = 0, waits_on: str = ""
    ) -> None:
        state = RequestState(
            RequestPhase.WAITING, reason=reason, blocks_short=blocks_short, waits_on=waits_on
        )
        self._set_state(answer, state)

    def _submit(self, answer: _Answer, model: ModelInfo) -> None:
        message, conversation = answer.message, answer.conversation
        message.model = model.name
        message.system_prompt_key = system_prompt_key(conversation.system_prompt)
        message.num_dropped = conversation.num_dropped(message.parent_id)
        answer.submitted = True
        assert message.params is not None
        self._bridge.send(
            Submit(
                request_ids=(answer.request_id,),
                conversation_id=conversation.conversation_id,
                messages=conversation.chat_messages(up_to=message.parent_id),
                params=message.params,
                context=ContextPolicy(conversation.overflow, message.num_dropped),
                command_id=answer.request_id,
            )
        )
        self._wait(answer, "queued")

    def _keep_cut(self, answer: _Answer, num_dropped: int) -> None:
        message, conversation_id = answer.message, answer.conversation.conversation_id
        if message.num_dropped != num_dropped:
            message.num_dropped = num_dropped
            self._store.save_message(conversation_id, message)
            self._signals.message_changed.emit(conversation_id, message.message_id)

    def _append(self, answer: _Answer, text: str) -> None:
        if text:
            conversation_id = answer.conversation.conversation_id
            answer.message.content += text
            self._store.save_partial(answer.message)
            self._signals.text_appended.emit(conversation_id, answer.message.message_id, text)

    def _finish(self, answer: _Answer, event: RequestFinished) -> None:
        self._append(answer, event.text)
        message = answer.message
        if event.reason is FinishReason.ERROR and event.error is not None and not message.content:
            self._fail(answer, event.error)
            return
        message.turn = event.turn
        message.usage = event.usage
        message.seed = event.seed
        message.error = event.error
        message.finish_reason = event.reason.value
        message.limit = event.limit
        self._end(answer, _STATUS[event.reason])

    def _fail(self, answer: _Answer, error: ErrorInfo) -> None:
        conversation_id = answer.conversation.conversation_id
        _LOG.warning("request failed: %s: %s", error.code, error.message)
        if answer.message.content:
            answer.message.error = error
            self._end(answer, MessageStatus.ERROR)
        else:
            self._withdraw(answer)
        self._signals.notice_raised.emit(Notice(Severity.ERROR, error, conversation_id))

    def _end(self, answer: _Answer, status: MessageStatus) -> None:
        answer.message.status = status
        conversation_id = answer.conversation.conversation_id
        self._forget(answer)
        self._store.save_message(conversation_id, answer.message)
        self._signals.message_changed.emit(conversation_id, answer.message.message_id)
        self._signals.request_state_changed.emit(conversation_id)

    def _withdraw(self, answer: _Answer) -> None:
        """Takes an answer that never began out of the tree, and its question if it was typed for
        it.
        """
        conversation, message = answer.conversation, answer.message
        conversation_id = conversation.conversation_id
        self._forget(answer)
        withdrawn = [message.message_id]
        if answer.draft is not None and message.parent_id is not None:
            withdrawn.append(message.parent_id)
        for message_id in withdrawn:
            conversation.remove(message_id)
            self._store.delete_message(message_id)
        conversation.active_leaf_id = answer.previous_leaf_id
        if answer.draft is not None:
            typed_since = f"\n{conversation.draft}" if conversation.draft else ""
            conversation.draft = answer.draft + typed_since
        self._store.save_conversation(conversation)
        if answer.draft is None:
            self._signals.path_changed.emit(conversation_id)
        else:
            for message_id in withdrawn:
                self._signals.message_removed.emit(conversation_id, message_id)
            self._signals.draft_restored.emit(conversation_id, answer.draft)
        self._signals.conversation_changed.emit(conversation_id)
        self._signals.request_state_changed.emit(conversation_id)

    def _forget(self, answer: _Answer) -> None:
        self._by_request.pop(answer.request_id, None)
        self._by_conversation.pop(answer.conversation.conversation_id, None)

    def _set_state(self, answer: _Answer, state: RequestState) -> None:
        answer.state = RequestState(
            phase=state.phase,
            reason=state.reason,
            blocks_short=state.blocks_short,
            waits_on=state.waits_on,
            done=state.done,
            total=state.total,
            cached=state.cached,
            message_id=answer.message.message_id,
        )
        self._signals.request_state_changed.emit(answer.conversation.conversation_id)
