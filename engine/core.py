"""EngineCore: add, cancel and step, synchronous and without a thread; what tests and benchmarks
drive.

A step is ``schedule() -> submit() -> commit()``. With lag 1 a step is committed only after the next
one has been submitted, so the scheduler may run while the newest token is still a placeholder.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from engine.answer import Answer, Ending, TextStream, Times
from engine.api.errors import (
    DuplicateIdError,
    EngineError,
    InternalError,
    OutOfMemoryError,
    UnknownIdError,
)
from engine.api.events import (
    FinishReason,
    RequestEvent,
    RequestPaused,
    RequestPreempted,
    RequestResumed,
    RequestWaiting,
)
from engine.api.params import EngineConfig, SamplingParams
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.event_log import PoolEventLog
from engine.flights import Flight, Flights, drop_placeholders
from engine.limits import ModelLimits, check_prompt_size, describe_failure
from engine.metrics import EngineMetrics
from engine.offline import GenerationOutput, generate
from engine.pins import Pins
from engine.request import Phase, Request
from engine.scheduler import Scheduler
from engine.scheduler_output import Runner, SampledTokens, SchedulerOutput


class EngineCore:
    """Requests in, request events out.

    ``make_stream(stop)`` builds the text stream of a request. ``clock`` returns seconds and is
    injected. Not thread-safe: one thread drives it.
    """

    def __init__(
        self,
        runner: Runner,
        limits: ModelLimits,
        config: EngineConfig,
        num_blocks: int,
        make_stream: Callable[[tuple[str, ...]], TextStream],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.config = config
        self.limits = limits
        self.log = PoolEventLog()
        self.pool = BlockPool(num_blocks, config.block_size, self.log)
        self.manager = BlockManager(self.pool, limits.root, prefix_caching=config.prefix_caching)
        self.metrics = EngineMetrics()
        self.scheduler = Scheduler(self.manager, config, self.metrics)
        self.pins = Pins(self.manager)
        self.requests: dict[str, Request] = {}
        self.num_steps = 0
        self._runner = runner
        self._make_stream = make_stream
        self._clock = clock
        self._answers: dict[str, Answer] = {}
        self._flights = Flights()
        self._events: list[RequestEvent] = []
        self._lag = config.lag or 0
        self._nothing_scheduled = False

    # --- requests ---

    def add_request(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        conversation_id: str = "",
        turn_start: int = 0,
        answer_start: int | None = None,
        answer_chars: int = 0,
        output_index: int = 0,
        sibling: str = "",
        arrival_s: float | None = None,
    ) -> Request:
        """Queues a request.

        ``turn_start``: where this turn's own ids begin. ``answer_start``: where the answer begins
        that is to be continued, of which ``answer_chars`` characters are there already (None: the
        answer is a new one). ``sibling``: the request that is the first answer to the same prompt,
        whose blocks are shared.

        Raises:
            DuplicateIdError: the id is in use.
            PromptTooLongError: no room for an output token within the model's context.
            PromptExceedsPoolError: it could not run even in an empty pool.
        """
        self._require_new(request_id)
        check_prompt_size(len(prompt_ids), self.limits, self.manager)
        arrival = self._clock() if arrival_s is None else arrival_s
        request = Request(
            request_id=request_id,
            conversation_id=conversation_id or request_id,
            token_ids=list(prompt_ids),
            # Of a continued answer the ids so far are output: random numbers and penalties go on.
            num_prompt_tokens=len(prompt_ids) if answer_start is None else answer_start,
            params=params,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            arrival_s=arrival,
            output_index=output_index,
            sibling=self.requests.get(sibling),
        )
        self._enrol(request, turn_start, answer_chars)
        self.scheduler.add(request)
        return request

    def _enrol(self, request: Request, turn_start: int, answer_chars: int = 0) -> Answer:
        self.requests[request.request_id] = request
        answer = Answer(
            request=request,
            stream=self._make_stream(request.params.stop),
            turn_start=turn_start,
            num_given_tokens=request.num_tokens,
            num_chars=answer_chars,
            fingerprint=self.limits.fingerprint,
            stop_ids=self.limits.eos_token_ids,
            context_length=self.limits.context_length,
            times=Times(request.arrival_s),
        )
        self._answers[request.request_id] = answer
        return answer

    def cancel(self, request_id: str) -> bool:
        """Ends a request in any phase. False if there is none of this id."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        self._finish(request, Ending(FinishReason.CANCELLED), "cancel")
        return True

    def fork(self, request_id: str, child_id: str, conversation_id: str, seed: int | None) -> None:
        """Splits a request: the child has its tokens, shares its blocks and goes on by itself.

        ``seed`` None draws a new one, so that the two go different ways when they sample.

        Raises:
            UnknownIdError: there is no such request, or it has just ended.
            DuplicateIdError: the child's id is in use.
        """
        self._require_new(child_id)
        self._drain()
        parent = self._require(request_id)
        child = Request(
            request_id=child_id,
            conversation_id=conversation_id,
            token_ids=list(parent.token_ids),
            num_prompt_tokens=parent.num_prompt_tokens,
            params=parent.params,
            seed=secrets.randbits(64) if seed is None else seed,
            arrival_s=self._clock(),
            output_index=parent.output_index,
        )
        self._enrol(child, 0).inherit(self._answers[request_id])
        self.scheduler.fork(parent, child)

    def pause(self, request_id: str) -> None:
        """The request computes no further until it is resumed.

        Raises:
            UnknownIdError: there is no such request.
        """
        request = self._require(request_id)
        self.scheduler.pause(request)
        self._report_notes()
        self._events.append(RequestPaused(request_id, request.conversation_id))

    def resume(self, request_id: str) -> None:
        """A paused request goes on.

        Raises:
            UnknownIdError: there is no such request.
        """
        request = self._require(request_id)
        self.scheduler.resume(request)
        self._events.append(RequestResumed(request_id, request.conversation_id))

    def _require(self, request_id: str) -> Request:
        request = self.requests.get(request_id)
        if request is None:
            raise UnknownIdError(f"There is no request {request_id}.", request_id=request_id)
        return request

    def _require_new(self, request_id: str) -> None:
        if request_id in self.requests:
            raise DuplicateIdError(f"request {request_id} exists already", request_id=request_id)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
    ) -> list[GenerationOutput]:
        """Answers prompts of token ids all together; see ``offline.generate``."""
        return generate(self, prompts, params)

    # --- steps ---

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._flights)

    @property
    def is_stuck(self) -> bool:
        """Requests wait, but the last step found nothing to compute and none is in flight."""
        return self._nothing_scheduled and not self._flights and self.scheduler.has_work

    def step(self) -> list[RequestEvent]:
        """Runs one step and returns what happened since the last call."""
        submitted = self._submit()
        while self._flights and (len(self._flights) > self._lag or not submitted):
            self._commit(self._flights.popleft())
        return self.take_events()

    def _drain(self) -> None:
        """Commits all steps in flight."""
        while self._flights:
            self._commit(self._flights.popleft())

    def take_events(self) -> list[RequestEvent]:
        """Events that have not been returned yet (a cancellation makes some between two steps)."""
        events, self._events = self._events, []
        return events

    def _submit(self) -> bool:
        output = self.scheduler.schedule()
        self._report_notes()
        self._nothing_scheduled = output.num_tokens == 0
        if self._nothing_scheduled:
            return False
        self.num_steps += 1
        now = self._clock()
        try:
            handle = self._runner.submit(output)
        except Exception as error:
            # Steps submitted before this one are sound.
            self._drain()
            self._fail_step(output, error)
            return False
        self._flights.launch(output, handle, now)
        return True

    def _commit(self, flight: Flight) -> None:
        output = flight.output
        try:
            result = flight.handle.result()
        except Exception as error:
            for chunk in output.chunks:
                self.scheduler.step_committed(chunk.request)
            self._fail_step(output, error)
            return
        now = self._clock()
        sampling = []
        self.scheduler.guard.step_succeeded()
        for chunk in output.chunks:
            request = chunk.request
            if request.phase is not Phase.FINISHED:
                self.manager.commit(request, chunk.start, chunk.num_tokens, output.step)
                progress = self._answers[request.request_id].computed(chunk, now)
                if progress is not None:
                    self._events.append(progress)
            if chunk.samples:
                self.scheduler.guard.clear(request)
                sampling.append(request)
            self.scheduler.step_committed(request)
        num_prefill = output.num_tokens - len(output.decodes)
        self.metrics.record_step(now, now - flight.started_s, len(output.decodes), num_prefill)
        for request, index, sample in zip(
            sampling, flight.sample_index, result.samples, strict=True
        ):
            if request.phase is not Phase.FINISHED:
                self._accept(request, index, sample, now)

    def _accept(self, request: Request, index: int, sample: SampledTokens, now: float) -> None:
        if sample.error:
            error = InternalError(sample.error).info()
            self._finish(request, Ending(FinishReason.ERROR, error=error), "error")
            return
        (token_id,) = sample.token_ids
        request.token_ids[index] = token_id
        request.tokens_since_admission += 1
        answer = self._answers[request.request_id]
        try:
            self._events.append(answer.accept(token_id, sample.logprobs, now))
        except EngineError as error:
            self._finish(request, Ending(FinishReason.ERROR, error=error.info()), "error")
            return
        self.metrics.record_output(now, 1)
        ending = answer.ending(token_id)
        if ending is not None:
            self._finish(request, ending, "finish")

    # --- endings ---

    def _finish(self, request: Request, ending: Ending, cause: str) -> None:
        drop_placeholders(request)
        answer = self._answers.pop(request.request_id)
        del self.requests[request.request_id]
        self._events.append(answer.finish(ending, self._clock()))
        self.scheduler.finish(request, cause)
        self._runner.forget(request.request_id)

    def _fail_step(self, output: SchedulerOutput, error: Exception) -> None:
        """A step broke off: none of its blocks is published, and at most one request ends by it.

        All that were in it are computed again, one at a time, and of those the one that fails alone
        ends. When memory ran out, steps become smaller first.
        """
        requests = self._abandon_flights(output)
        info = describe_failure(error)
        smaller = False
        if info.code == OutOfMemoryError.code:
            self.pool.drop_cached("out of memory")
            smaller = self.scheduler.guard.shrink_budget()
        if len(requests) == 1 and not smaller:
            self._finish(requests[0], Ending(FinishReason.ERROR, error=info), "error")
        else:
            self.scheduler.recompute(requests)
            self.scheduler.guard.suspect(requests)

    def _abandon_flights(self, output: SchedulerOutput) -> list[Request]:
        """Takes back every step in flight. Returns the live requests of ``output``."""
        built_on_it = self._flights.abandon()
        for request in built_on_it:
            self.scheduler.step_committed(request)
        failed = [chunk.request for chunk in output.chunks]
        for request in (*failed, *built_on_it):
            drop_placeholders(request)
        self.scheduler.recompute(built_on_it)
        return [request for request in failed if request.phase is not Phase.FINISHED]

    def _report_notes(self) -> None:
        notes = self.scheduler.take_notes()
        for request in notes.admitted:
            if request.phase is not Phase.FINISHED:
                times = self._answers[request.request_id].times
                times.scheduled = times.scheduled or self._clock()
        for request, freed, reason in notes.preempted:
            self._runner.forget(request.request_id)
            self._events.append(
                RequestPreempted(request.request_id, request.conversation_id, reason, freed)
            )
        for request in notes.waiting_changed:
            self._events.append(
                RequestWaiting(
                    request.request_id,
                    request.conversation_id,
                    request.waits_for,
                    request.blocks_short,
                    request.waits_on,
                )
            )
        for request in dict.fromkeys(notes.outgrown):
            self._finish(request, Ending(FinishReason.LENGTH, limit="pool"), "outgrown")

    # --- looking in ---

    def live_requests(self) -> dict[str, Request]:
        """Requests by id, with those that have ended while a step in flight names them."""
        draining = {
            chunk.request.request_id: chunk.request
            for flight in self._flights
            for chunk in flight.output.chunks
        }
        return draining | self.requests

    def live_tables(self) -> dict[str, list[int]]:
        """Block tables by request of all that hold blocks, those still draining included."""
        return {
            name: request.block_table
            for name, request in self.live_requests().items()
            if request.block_table
        }

    def violations(self) -> list[str]:
        """What is wrong with the pool; empty when all is well. O(blocks)."""
        return self.pool.violations(self.live_tables().values())
