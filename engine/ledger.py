"""The requests that the core knows, what each has said, what is to be told of them. No torch."""

from __future__ import annotations

from collections.abc import Callable

from engine.answer import Answer, Ending, TextStream, Times
from engine.api.errors import DuplicateIdError, ErrorInfo, UnknownIdError
from engine.api.events import FinishReason, RequestEvent, RequestPreempted, RequestWaiting
from engine.limits import ModelLimits, describe_failure, pool_refusal
from engine.pins import Pins
from engine.queues import RequestQueues
from engine.request import Request
from engine.scheduler_output import Runner


class RequestLedger:
    """Begins and ends requests; every end goes through ``finish``.

    ``make_stream(stop)`` builds the text stream of a request, ``clock`` returns seconds.
    ``ending``: a request that is not known any more while its blocks go back.
    """

    def __init__(
        self,
        queues: RequestQueues,
        runner: Runner,
        limits: ModelLimits,
        pins: Pins,
        make_stream: Callable[[tuple[str, ...]], TextStream],
        clock: Callable[[], float],
    ) -> None:
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, Answer] = {}
        self.events: list[RequestEvent] = []
        self.ending: Request | None = None
        self.limits = limits
        self._queues = queues
        self._runner = runner
        self._pins = pins
        self._make_stream = make_stream
        self._clock = clock

    def enrol(
        self,
        request: Request,
        turn_start: int,
        answer_chars: int = 0,
        parent: Answer | None = None,
    ) -> None:
        """Takes up a request, or nothing of it if its text stream breaks.

        ``turn_start``, ``answer_chars``: see ``EngineCore.add_request``. ``parent``: what the
        request that this one is forked from has said so far.
        """
        num_given = request.num_tokens if parent is None else parent.num_given_tokens
        answer = Answer(
            request=request,
            stream=self.make_stream(request, num_given),
            turn_start=turn_start,
            num_given_tokens=num_given,
            num_chars=answer_chars,
            fingerprint=self.limits.fingerprint,
            stop_ids=self.limits.eos_token_ids,
            context_length=self.limits.context_length,
            times=Times(request.arrival_s),
        )
        if parent is not None:
            answer.inherit(parent)
        self.requests[request.request_id] = request
        self.answers[request.request_id] = answer

    def make_stream(self, request: Request, num_given_tokens: int) -> TextStream:
        """A fresh text stream with the request's stop strings, for what follows on the ids that
        came with the request.
        """
        stream = self._make_stream(request.params.stop)
        if num_given_tokens > request.num_prompt_tokens:
            stream.follow(request.token_ids[request.num_prompt_tokens : num_given_tokens])
        return stream

    def require(self, request_id: str) -> Request:
        """The request of this id.

        Raises:
            UnknownIdError: there is no such request, or it has ended.
        """
        request = self.requests.get(request_id)
        if request is None:
            raise UnknownIdError(f"There is no request {request_id}.", request_id=request_id)
        return request

    def require_new(self, request_id: str) -> None:
        """Raises:
        DuplicateIdError: the id is in use.
        """
        if request_id in self.requests:
            raise DuplicateIdError(f"request {request_id} exists already", request_id=request_id)

    def finish(self, request: Request, ending: Ending, cause: str) -> None:
        """Ends a request: its last event, its blocks, its row in the runner."""
        request.drop_placeholders()
        answer = self.answers[request.request_id]
        try:
            last = answer.finish(ending, self._clock())
        except Exception as error:
            # Its text cannot be completed; what was said so far stands.
            last = answer.broken_off(describe_failure(error))
        del self.answers[request.request_id], self.requests[request.request_id]
        self.events.append(last)
        self._runner.forget(request.request_id)
        self.ending = request
        self._queues.finish(request, cause)
        self.ending = None
        self._pins.renew(request.conversation_id)

    def pins_lost(self) -> None:
        """The pool was reset, and its pins with it."""
        self._pins.lost()

    def fail(self, request: Request, error: ErrorInfo) -> None:
        """Ends a request that cannot go on."""
        self.finish(request, Ending(FinishReason.ERROR, error=error), "error")

    def report_notes(self) -> int:
        """Turns what the scheduler noted into events and ends; returns how many requests ended."""
        notes = self._queues.take_notes()
        for request in notes.admitted:
            answer = self.answers.get(request.request_id)
            if answer is not None:
                answer.times.scheduled = answer.times.scheduled or self._clock()
        for request, freed, reason in notes.preempted:
            self._runner.forget(request.request_id)
            self.events.append(
                RequestPreempted(request.request_id, request.conversation_id, reason, freed)
            )
        for request in notes.waiting_changed:
            self.events.append(
                RequestWaiting(
                    request.request_id,
                    request.conversation_id,
                    request.waits_for,
                    request.blocks_short,
                    request.waits_on,
                )
            )
        outgrown = list(dict.fromkeys(notes.outgrown))
        for request in outgrown:
            self._outgrown(request)
        return len(outgrown)

    def _outgrown(self, request: Request) -> None:
        if request.num_output_tokens:
            self.finish(request, Ending(FinishReason.LENGTH, limit="pool"), "outgrown")
        else:
            # It fitted when it was accepted; since then more blocks were pinned.
            self.fail(request, pool_refusal(request.num_tokens, self._queues.pool).info())

    def take_events(self) -> list[RequestEvent]:
        """Events that have not been returned yet (a cancellation makes some between two steps)."""
        events, self.events = self.events, []
        return events
