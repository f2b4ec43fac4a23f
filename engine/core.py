"""EngineCore: add, cancel and step, synchronous and without a thread; what tests and benchmarks
drive. No torch.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from engine.answer import Ending, TextStream
from engine.api.errors import ErrorInfo
from engine.api.events import (
    FinishReason,
    RequestEvent,
    RequestPaused,
    RequestResumed,
    RequestTruncated,
    WaitReason,
)
from engine.api.params import EngineConfig, SamplingParams
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.event_log import PoolEventLog
from engine.holds import BlockHolds
from engine.ledger import RequestLedger
from engine.limits import ModelLimits, check_cut, check_prompt_size
from engine.metrics import EngineMetrics
from engine.offline import GenerationOutput, generate
from engine.pins import Pins
from engine.pool_audit import audit
from engine.request import Request
from engine.scheduler import Scheduler
from engine.scheduler_output import Runner
from engine.step_loop import StepLoop


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
        self.scheduler = Scheduler(self.manager, config, self.metrics, runner.prompt_size)
        self.pins = Pins(self.manager)
        self.holds = BlockHolds(self.pool)
        self._runner = runner
        self._clock = clock
        self._ledger = RequestLedger(
            self.scheduler.queues, runner, limits, self.pins, make_stream, clock
        )
        self._loop = StepLoop(
            self.scheduler,
            self.manager,
            self._ledger,
            runner,
            self.metrics,
            config.lag or 0,
            clock,
        )

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
        self._ledger.require_new(request_id)
        check_prompt_size(prompt_ids, self.limits, self.manager)
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
        self._ledger.enrol(request, turn_start, answer_chars)
        self.scheduler.add(request)
        return request

    def cancel(self, request_id: str) -> bool:
        """Ends a request in any phase. False if there is none of this id."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        with self._loop.keeping_order():
            self._ledger.finish(request, Ending(FinishReason.CANCELLED), "cancel")
        return True

    def fail(self, request_id: str, error: ErrorInfo) -> None:
        """Ends a request because the engine cannot go on. Nothing happens if there is none."""
        request = self.requests.get(request_id)
        if request is not None:
            self._ledger.fail(request, error)

    def note_pause(self, paused: bool) -> None:
        """No step will run for now: requests that wait for nothing else are told so; or it is over.

        The next step tells what each waits for itself.
        """
        reason = WaitReason.ENGINE_PAUSED if paused else WaitReason.NONE
        stale = WaitReason.NONE if paused else WaitReason.ENGINE_PAUSED
        for request in self.scheduler.waiting:
            if request.waits_for is stale and not request.paused:
                self.scheduler.queues.explain(request, reason)
        self._ledger.report_notes()

    def fork(self, request_id: str, child_id: str, conversation_id: str, seed: int | None) -> None:
        """Splits a request: the child has its tokens, shares its blocks and goes on by itself.

        ``seed`` None draws a new one, so that the two go different ways when they sample.

        Raises:
            UnknownIdError: there is no such request, or it has just ended.
            DuplicateIdError: the child's id is in use.
        """
        self._ledger.require_new(child_id)
        self._loop.drain()
        parent = self._ledger.require(request_id)
        drawn = secrets.randbits(64) if seed is None else seed
        child = parent.child(child_id, conversation_id, drawn, self._clock())
        self._ledger.enrol(child, 0, parent=self._ledger.answers[request_id])
        with self._loop.keeping_order():
            self.scheduler.fork(parent, child)

    def pause(self, request_id: str) -> None:
        """The request computes no further until it is resumed.

        Raises:
            UnknownIdError: there is no such request.
        """
        request = self._ledger.require(request_id)
        with self._loop.keeping_order():
            self.scheduler.pause(request)
        self._ledger.report_notes()
        self._ledger.events.append(RequestPaused(request_id, request.conversation_id))

    def resume(self, request_id: str) -> None:
        """A paused request goes on.

        Raises:
            UnknownIdError: there is no such request.
        """
        request = self._ledger.require(request_id)
        with self._loop.keeping_order():
            self.scheduler.resume(request)
        self._ledger.events.append(RequestResumed(request_id, request.conversation_id))

    def truncate(self, request_id: str, num_tokens: int) -> None:
        """Takes a request back to its first ``num_tokens`` tokens, prompt and output together.

        It goes on from there; ``RequestTruncated`` tells what is left of its text.

        Raises:
            UnknownIdError: there is no such request, or it has just ended.
            InvalidValueError: fewer tokens than its prompt, or more than it has.
        """
        self._loop.drain()
        request = self._ledger.require(request_id)
        answer = self._ledger.answers[request_id]
        check_cut(num_tokens, answer.num_given_tokens, request.num_tokens)
        # The text first: if it cannot be read again, the request goes on as it was.
        stream = self._ledger.make_stream(request, answer.num_given_tokens)
        answer.rewind(stream, num_tokens)
        with self._loop.keeping_order():
            self._runner.forget(request_id)
            self.scheduler.truncate(request, num_tokens)
        self._ledger.events.append(
            RequestTruncated(
                request_id,
                request.conversation_id,
                num_tokens=num_tokens,
                output_tokens=answer.num_output,
                num_chars=answer.num_chars,
            )
        )

    # --- settings ---

    def configure(self, config: EngineConfig) -> None:
        """Other limits of steps, from the next one on."""
        self.config = config
        self.scheduler.configure(config)
        self._loop.lag = config.lag or 0

    def restart_cache(
        self, root: bytes, *, prefix_caching: bool, change: Callable[[], None] = lambda: None
    ) -> None:
        """Drops every block's KV and computes all requests anew.

        Nothing is lost but time: requests go on where they were, pins hold again once their blocks
        have been computed.

        Args:
            root: of the hashes from now on; see ``block_hash.root_hash``.
            prefix_caching: whether blocks are found again from now on.
            change: what makes the KV void; called while no step is in flight and no request holds
                a block.
        """
        self._loop.drain()
        with self._loop.keeping_order():
            self.pins.lapse()
            self.scheduler.restart(root, prefix_caching=prefix_caching)
        self._ledger.report_notes()
        self.limits = self._ledger.limits = replace(self.limits, root=root)
        change()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
    ) -> list[GenerationOutput]:
        """Answers prompts of token ids all together; see ``offline.generate``."""
        return generate(self, prompts, params)

    # --- steps ---

    @property
    def requests(self) -> dict[str, Request]:
        """Requests that have not ended, by id."""
        return self._ledger.requests

    @property
    def num_steps(self) -> int:
        """Steps submitted so far."""
        return self._loop.num_steps

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._loop.flights)

    @property
    def is_stuck(self) -> bool:
        """Requests wait, but the last step found nothing to compute and none is in flight."""
        return self._loop.is_stuck

    def step(self) -> list[RequestEvent]:
        """Runs one step and returns what happened since the last call."""
        self._loop.step()
        return self.take_events()

    def take_events(self) -> list[RequestEvent]:
        """Events that have not been returned yet (a cancellation makes some between two steps)."""
        return self._ledger.take_events()

    # --- looking in ---

    def live_requests(self) -> dict[str, Request]:
        """Requests by id, with those that have ended while a step in flight names them."""
        draining = {
            chunk.request.request_id: chunk.request
            for flight in self._loop.flights
            for chunk in flight.output.chunks
        }
        return draining | self.requests

    def held_tables(self) -> list[list[int]]:
        """Block tables of all that hold blocks: requests, and those who look into the pool."""
        return [*self.live_tables().values(), *self.holds.tables()]

    def live_tables(self) -> dict[str, list[int]]:
        """Block tables by request of all that hold blocks, those still draining included."""
        return {
            name: request.block_table
            for name, request in self.live_requests().items()
            if request.block_table
        }

    def violations(self) -> list[str]:
        """What is wrong with the pool; empty when all is well. O(blocks)."""
        return self.pool.violations(self.held_tables())

    def violation_slices(self, part_size: int = 256) -> Iterator[list[str]]:
        """``violations`` in parts of half a millisecond or so; to be dropped once something
        changes.
        """
        return audit(self.pool, self.held_tables(), part_size)
