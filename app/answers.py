"""Answers on their way: from the question to the last token, or back to the composer."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from app.answer_facts import note_thought
from app.bridge import Bridge
from app.conversation import MessageStatus
from app.session_signals import SessionSignals
from app.session_state import IDLE, Notice, RequestPhase, RequestState, Severity
from app.store import Store
from app.submission import Answer, Submission, withdraw
from engine.api.commands import Cancel
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

_LOG = logging.getLogger(__name__)

_STATUS = {
    FinishReason.STOP: MessageStatus.DONE,
    FinishReason.LENGTH: MessageStatus.DONE,
    FinishReason.CANCELLED: MessageStatus.STOPPED,
    FinishReason.ERROR: MessageStatus.ERROR,
}
_PROGRESS = (RequestPhase.IDLE, RequestPhase.WAITING, RequestPhase.PREFILL, RequestPhase.DECODE)


class Answers:
    """The running answers; of one conversation those that were asked for at once."""

    def __init__(self, bridge: Bridge, store: Store, signals: SessionSignals) -> None:
        self._bridge = bridge
        self._store = store
        self._signals = signals
        self._model: ModelInfo | None = None
        self._by_request: dict[str, Answer] = {}

    def state(self, conversation_id: str, message_id: str = "") -> RequestState:
        """Of one answer; without ``message_id`` of the one that has got furthest."""
        states = [
            answer.state
            for answer in self._running(conversation_id)
            if message_id in ("", answer.message.message_id)
        ]
        return max(states, key=lambda state: _PROGRESS.index(state.phase), default=IDLE)

    def is_busy(self, conversation_id: str) -> bool:
        return any(True for _ in self._running(conversation_id))

    @property
    def num_running(self) -> int:
        """Answers that the engine has been asked for."""
        return sum(answer.submission.is_submitted for answer in self._by_request.values())

    @property
    def tokens_so_far(self) -> dict[str, int]:
        """Tokens that the model has of each answer on its way, prompt and answer, by message."""
        answers = self._by_request.values()
        return {a.message.message_id: a.num_tokens for a in answers if a.num_tokens}

    @property
    def num_waiting(self) -> int:
        """Answers that wait for a model."""
        return len(self._by_request) - self.num_running

    def ask(self, submission: Submission) -> None:
        """Wants the answers of ``submission`` filled; may wait for the model."""
        for answer in submission.answers:
            self._by_request[answer.request_id] = answer
        if self._model is not None:
            self._submit(submission, self._model)
            return
        for answer in submission.answers:
            self._set_state(answer, RequestState(RequestPhase.WAITING, reason="loading"))

    def stop(self, conversation_id: str, message_id: str = "") -> None:
        """Stops all answers, or that one; what has come stays."""
        for answer in list(self._running(conversation_id)):
            if message_id not in ("", answer.message.message_id):
                continue
            if answer.submission.is_submitted:
                self._bridge.send(Cancel(answer.request_id))
            else:
                self._stop_unsubmitted(answer)

    def abandon(self, conversation_id: str, kept: Container[str] = ()) -> None:
        """Stops the answers and hears no more of them; for what is closed or deleted.

        ``kept``: ids of messages whose answers go on.
        """
        for answer in list(self._running(conversation_id)):
            if answer.message.message_id in kept:
                continue
            if answer.submission.is_submitted:
                self._bridge.send(Cancel(answer.request_id))
                self._end_early(answer, MessageStatus.STOPPED)
            else:
                self._stop_unsubmitted(answer)

    def _stop_unsubmitted(self, answer: Answer) -> None:
        answer.submission.answers.remove(answer)
        answer.submission.unwanted.append(answer)
        if answer.submission.before is not None:
            self._give_back(answer, MessageStatus.STOPPED)
        else:
            self._end(answer, MessageStatus.STOPPED)

    def model_ready(self, model: ModelInfo) -> None:
        """Submits what has waited for a model."""
        self._model = model
        waiting = {answer.submission: None for answer in self._by_request.values()}
        for submission in waiting:
            if not submission.is_submitted:
                self._submit(submission, model)

    def model_loading(self) -> None:
        """From now on answers wait for the next model."""
        self._model = None

    def model_unavailable(self, error: ErrorInfo) -> None:
        """Gives back what has waited for a model; what was running has failed."""
        self._model = None
        for answer in list(self._by_request.values()):
            self._break_off(answer, error)

    def interrupt_all(self) -> None:
        """The program ends: what has come is kept."""
        for answer in list(self._by_request.values()):
            self._end_early(answer, MessageStatus.INTERRUPTED)

    def _running(self, conversation_id: str) -> Iterator[Answer]:
        return (a for a in self._by_request.values() if a.conversation_id == conversation_id)

    def handle(self, event: Event) -> bool:
        """Takes the events of requests; True if this was one."""
        if isinstance(event, CommandFailed):
            refused = self._by_request.get(event.command_id)
            if refused is None:
                return False
            for each in list(refused.submission.answers):
                if each.request_id in self._by_request:
                    self._break_off(each, event.error)
            self._tell(refused, event.error)
            return True
        if not isinstance(event, RequestEvent):
            return False
        answer = self._by_request.get(event.request_id)
        if answer is not None:
            self._on_request_event(answer, event)
        return True

    def _on_request_event(self, answer: Answer, event: RequestEvent) -> None:
        match event:
            case TokensGenerated():
                if answer.state.phase is not RequestPhase.DECODE:
                    self._set_state(answer, RequestState(RequestPhase.DECODE))
                self._append(answer, event.text, event.token_ids)
            case PrefillProgress(computed_tokens=done, prompt_tokens=total, cached_tokens=cached):
                self._set_state(
                    answer,
                    RequestState(RequestPhase.PREFILL, done=done, total=total, cached=cached),
                )
            case RequestQueued():
                reason = event.waits_for.value or "queued"
                self._wait(answer, reason, event.blocks_short)
                self._keep(answer, event)
            case RequestWaiting():
                other = self._by_request.get(event.waits_on_request_id)
                waits_on = "" if other is None else other.conversation_id
                reason = event.waits_for.value or "queued"
                if other is not None and other.submission is answer.submission:
                    reason = "first_answer" if reason == "twin" else reason
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

    def _wait(self, answer: Answer, reason: str, blocks_short: int = 0, waits_on: str = "") -> None:
        state = RequestState(
            RequestPhase.WAITING, reason=reason, blocks_short=blocks_short, waits_on=waits_on
        )
        self._set_state(answer, state)

    def _submit(self, submission: Submission, model: ModelInfo) -> None:
        answers = list(submission.answers)
        self._bridge.send(submission.command(model))
        for answer in answers:
            # What it is made with is needed to go on with it after a crash.
            self._store.save_message(answer.conversation_id, answer.message)
            self._wait(answer, "queued")

    def _keep(self, answer: Answer, event: RequestQueued) -> None:
        """The seed that was drawn, so that a crash does not lose it, and what is not read."""
        message = answer.message
        answer.prompt_tokens, answer.given_tokens = event.prompt_tokens, len(message.streamed_ids)
        seed = event.params.seed if event.params.seed is not None else message.seed
        is_cut = message.num_dropped != event.cut.num_messages
        if is_cut or message.seed != seed:
            message.seed, message.num_dropped = seed, event.cut.num_messages
            self._store.save_message(answer.conversation_id, message)
        if is_cut:
            self._signals.message_changed.emit(answer.conversation_id, message.message_id)

    def _append(self, answer: Answer, text: str, token_ids: Sequence[int] = ()) -> None:
        message = answer.message
        message.streamed_ids += token_ids
        if text:
            answer.first_text_at = answer.first_text_at or time.monotonic()
            message.content += text
            self._store.save_partial(message)
            self._signals.text_appended.emit(answer.conversation_id, message.message_id, text)
            if note_thought(message, text, time.monotonic() - answer.first_text_at):
                self._signals.message_changed.emit(answer.conversation_id, message.message_id)

    def _finish(self, answer: Answer, event: RequestFinished) -> None:
        self._append(answer, event.text)
        message, before = answer.message, answer.submission.before
        if event.reason is FinishReason.ERROR and event.error is not None and not answer.has_text:
            self._break_off(answer, event.error)
            self._tell(answer, event.error)
            return
        if before is not None and event.reason is FinishReason.CANCELLED and not answer.has_text:
            self._give_back(answer, MessageStatus.STOPPED)
            return
        message.turn = event.turn or message.partial_turn()
        if event.usage.prompt_tokens:
            # Otherwise it ended before its prompt was encoded: nothing to account, no seed drawn.
            message.usage = event.usage
            message.seed = event.seed
        message.error = event.error
        message.finish_reason = event.reason.value
        message.limit = event.limit
        self._end(answer, _STATUS[event.reason])

    def _break_off(self, answer: Answer, error: ErrorInfo) -> None:
        """It failed: what has come stays; where nothing came, all is as before."""
        if answer.has_text:
            _LOG.warning("request failed: %s: %s", error.code, error.message)
            answer.message.error = error
            self._end_early(answer, MessageStatus.ERROR)
        elif answer.submission.before is not None:
            self._give_back(answer, MessageStatus.ERROR)
        else:
            self._by_request.pop(answer.request_id, None)
            withdraw(answer, self._store, self._signals)
            self._signals.answer_ended.emit(answer.conversation_id, MessageStatus.ERROR)

    def _tell(self, answer: Answer, error: ErrorInfo) -> None:
        _LOG.warning("request failed: %s: %s", error.code, error.message)
        self._signals.notice_raised.emit(Notice(Severity.ERROR, error, answer.conversation_id))

    def _end(
        self, answer: Answer, status: MessageStatus, outcome: MessageStatus | None = None
    ) -> None:
        """``outcome``: how the request ended, if its message does not tell."""
        answer.message.status = status
        answer.message.streamed_ids = []
        conversation_id = answer.conversation_id
        self._by_request.pop(answer.request_id, None)
        self._store.save_message(conversation_id, answer.message)
        self._signals.message_changed.emit(conversation_id, answer.message.message_id)
        self._signals.request_state_changed.emit(conversation_id)
        self._signals.answer_ended.emit(conversation_id, outcome or status)

    def _end_early(self, answer: Answer, status: MessageStatus) -> None:
        """The engine is not asked for the exact ids; those that came must do."""
        if answer.submission.before is not None and not answer.has_text:
            self._give_back(answer, status)
            return
        answer.message.turn = answer.message.partial_turn()
        self._end(answer, status)

    def _give_back(self, answer: Answer, outcome: MessageStatus) -> None:
        """The rest of an answer never began: the answer is what it was."""
        answer.submission.restore(answer.message)
        self._end(answer, answer.message.status, outcome)

    def _set_state(self, answer: Answer, state: RequestState) -> None:
        answer.state = replace(state, message_id=answer.message.message_id)
        self._signals.request_state_changed.emit(answer.conversation_id)
