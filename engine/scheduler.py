"""Which tokens the next step computes: continuous batching over a paged pool. No torch.

A step computes all running decodes, then chunks of prompts under a token budget and a time budget.
Waiting requests are admitted in order of arrival when the pool has room for all of their known
tokens; one whose next block a running request is computing waits for that block instead of
computing it twice. When a decode finds no block, a later request is preempted and computed again
through the prefix cache.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.api.events import WaitReason
from engine.api.params import EngineConfig
from engine.block_manager import Admission, BlockManager
from engine.failure_guard import FailureGuard
from engine.metrics import EngineMetrics
from engine.request import Phase, Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput

_UNMEASURED_CHUNK_TOKENS = 256
_SAFE_AFTER_PREEMPTIONS = 2


@dataclass(slots=True)
class SchedulerNotes:
    """What happened to requests while a step was scheduled; the core turns it into events.

    ``preempted``: with the number of blocks that became free, and why. ``outgrown``: requests that
    need more blocks than the pool can ever give them.
    """

    admitted: list[Request] = field(default_factory=list)
    preempted: list[tuple[Request, int, str]] = field(default_factory=list)
    waiting_changed: list[Request] = field(default_factory=list)
    outgrown: list[Request] = field(default_factory=list)


class Scheduler:
    """Queues of requests and the rules of who computes next.

    ``waiting`` is in order of arrival with preempted requests in front; ``running`` in order of
    admission. ``notes`` collects what the core has to report; it takes them with ``take_notes``.
    """

    def __init__(
        self, manager: BlockManager, config: EngineConfig, metrics: EngineMetrics | None = None
    ) -> None:
        self.manager = manager
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.focus = ""
        self._config = config
        self._metrics = metrics or EngineMetrics()
        self._notes = SchedulerNotes()
        self._step = 0
        self._num_admitted = 0
        self._num_draining = 0
        self._copies: list[tuple[int, int]] = []
        self.guard = FailureGuard(config.token_budget, manager.block_size)
        self.watermark_blocks = int(config.watermark * manager.pool.num_blocks)

    @property
    def has_work(self) -> bool:
        """Whether a request could compute: one that is not paused."""
        return any(not r.paused for r in self.running) or any(not r.paused for r in self.waiting)

    def add(self, request: Request) -> None:
        """Queues a new request. The caller has checked that it can ever fit."""
        self.waiting.append(request)

    def take_notes(self) -> SchedulerNotes:
        notes, self._notes = self._notes, SchedulerNotes()
        return notes

    def schedule(self) -> SchedulerOutput:
        """Decides the next step. Blocks for its tokens are in the tables afterwards."""
        self._step += 1
        self.manager.pool.log.step = self._step
        self._copies.clear()
        self.guard.skip_idle()
        decodes, prefills = self._plan()
        while self.guard.has_suspects and not decodes and not prefills:
            # The suspect cannot run now (no room, or it waits for another's block): the others go
            # on.
            self.guard.pass_over()
            decodes, prefills = self._plan()
        return SchedulerOutput(self._step, tuple(decodes), tuple(prefills), tuple(self._copies))

    def _plan(self) -> tuple[list[ScheduledChunk], list[ScheduledChunk]]:
        decodes = self._schedule_decodes()
        budget = self._prefill_budget(len(decodes))
        self._admit_waiting(budget)
        return decodes, self._schedule_prefills(budget)

    # --- pausing and forking ---

    def pause(self, request: Request) -> None:
        """The request computes no further; it keeps its blocks while nobody needs them."""
        if request.paused:
            return
        request.paused = True
        self.manager.withdraw(request)
        if request.phase in (Phase.WAITING, Phase.PREEMPTED):
            self._wait(request, WaitReason.PAUSED)

    def resume(self, request: Request) -> None:
        """The request goes on where it was."""
        if not request.paused:
            return
        request.paused = False
        request.waits_for = WaitReason.NONE
        if request.phase is Phase.PREFILL:
            self.manager.renew_promise(request)

    def fork(self, parent: Request, child: Request) -> None:
        """Adds ``child``, a copy of ``parent`` that goes on by itself; no step may be in flight.

        A decoding parent shares its blocks; otherwise, or if the batch is full, the child waits and
        is served from the prefix cache.
        """
        assert parent.num_in_flight == 0, "a step that names the parent is in flight"
        has_room = len(self.running) < self._config.max_running_requests
        if parent.phase is Phase.DECODE and has_room:
            self._start_fork(parent, child, parent.num_computed_tokens)
        else:
            self.waiting.append(child)

    def _start_fork(self, parent: Request, child: Request, num_tokens: int) -> None:
        self.manager.fork(parent, child, num_tokens)
        self._enter(child, num_tokens, Phase.DECODE)

    def recompute(self, requests: list[Request]) -> None:
        """Takes the blocks of these requests away, so that they start from the prefix cache.

        After a step broke off nobody can vouch for the KV in them. No step may be in flight.
        """
        for request in reversed(requests):
            if request in self.running:
                self._preempt(request, "a step failed")

    # --- leaving ---

    def finish(self, request: Request, cause: str) -> None:
        """Takes a request out in any phase; its blocks go back now or when no step names it."""
        if request.phase is Phase.FINISHED:
            return
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        request.phase = Phase.FINISHED
        self._release(request, cause)

    def step_committed(self, request: Request) -> None:
        """One step in flight that names the request has been committed."""
        request.num_in_flight -= 1
        if request.num_in_flight == 0 and request.release_cause:
            self._num_draining -= 1
            cause, request.release_cause = request.release_cause, ""
            self.manager.free(request, cause)

    def _release(self, request: Request, cause: str) -> int:
        if request.num_in_flight == 0:
            return self.manager.free(request, cause)
        # A step on the device still reads these blocks: they go back at its commit.
        self.manager.withdraw(request)
        if not request.release_cause:
            self._num_draining += 1
        request.release_cause = cause
        return 0

    # --- decodes ---

    def _schedule_decodes(self) -> list[ScheduledChunk]:
        scheduled: dict[str, ScheduledChunk] = {}
        for request in list(self.running):
            if request.phase is not Phase.DECODE or not self.guard.may_compute(request):
                continue
            if self._make_slot(request, scheduled):
                copy = self.manager.own_block(request)
                if copy is not None:
                    self._copies.append(copy)
                scheduled[request.request_id] = ScheduledChunk(
                    request, request.num_computed_tokens, 1, samples=True
                )
        return list(scheduled.values())

    def _make_slot(self, request: Request, scheduled: dict[str, ScheduledChunk]) -> bool:
        """A slot for the request's last token, preempting others if need be.

        False: not this step.
        """
        while not self.manager.append_slot(request):
            if self._num_draining:
                return False
            victim = self._victim(request)
            if victim is None:
                # A step in flight may still bring its last token, or end it.
                if not request.num_in_flight:
                    self._notes.outgrown.append(request)
                return False
            # Its copies too: the next block given away may be one that they were to fill.
            self._copies = [pair for pair in self._copies if pair[1] not in victim.block_table]
            self._preempt(victim, "pool full")
            scheduled.pop(victim.request_id, None)
            if victim is request:
                return False
        return True

    def _victim(self, request: Request) -> Request | None:
        """Who gives up its blocks for ``request``.

        None if it is alone and has outgrown the pool.
        """
        holders = [other for other in self.running if other.block_table]
        if holders == [request]:
            return None
        latest_first = sorted(holders, key=lambda other: other.admitted, reverse=True)
        paused = [other for other in latest_first if other.paused]
        unfocused = [other for other in latest_first if other.conversation_id != self.focus]
        exposed = [other for other in unfocused if not self._is_safe(other)]
        for candidates in (paused, exposed, unfocused, latest_first):
            if candidates:
                return candidates[0]
        return None

    def _is_safe(self, request: Request) -> bool:
        return (
            request.num_preemptions >= _SAFE_AFTER_PREEMPTIONS
            and request.tokens_since_admission < self.manager.block_size
        )

    def _preempt(self, victim: Request, reason: str) -> None:
        self.running.remove(victim)
        victim.phase = Phase.PREEMPTED
        victim.num_preemptions += 1
        self._metrics.num_preemptions += 1
        self.waiting.appendleft(victim)
        self._notes.preempted.append((victim, self._release(victim, "preempt"), reason))

    # --- prompts ---

    def _prefill_budget(self, num_decodes: int) -> int:
        """Prompt tokens that this step may compute, so that running decodes do not stall."""
        budget = self.guard.token_budget - num_decodes
        if num_decodes:
            rate = self._metrics.prefill_tokens_per_s
            in_time = (
                int(rate * self._config.prefill_time_budget_ms / 1000.0)
                if rate
                else _UNMEASURED_CHUNK_TOKENS
            )
            budget = min(budget, max(in_time, self.manager.block_size))
        return max(budget, 0)

    def _admit_waiting(self, budget: int) -> None:
        blocked = WaitReason.NONE if budget > 0 else WaitReason.BATCH_FULL
        short = 0
        for request in list(self.waiting):
            if blocked:
                self._wait(request, blocked, short)
                continue
            if request.num_in_flight or not self.guard.may_compute(request):
                continue
            if len(self.running) >= self._config.max_running_requests:
                blocked = WaitReason.BATCH_FULL
                self._wait(request, blocked)
                continue
            if self._joins_sibling(request) or self.manager.twin_still_computing(request):
                continue
            # The reserve keeps running requests from preempting at once; alone there is none to
            # spare.
            reserve = self.watermark_blocks if self.running else 0
            admission = self._examine(request, reserve)
            if admission.twin is not None:
                self._wait_for_twin(request, admission.twin)
            elif admission.num_short:
                blocked, short = WaitReason.CAPACITY, admission.num_short
                self._wait(request, blocked, short)
            else:
                self._admit(request, admission)

    def _examine(self, request: Request, reserve: int) -> Admission:
        """What admission takes; paused requests give up their blocks where it would not fit."""
        admission = self.manager.examine(request, reserve)
        while admission.num_short and admission.twin is None:
            paused = [other for other in self.running if other.paused and other.block_table]
            if not paused:
                break
            self._preempt(paused[-1], "paused, and another needs the blocks")
            admission = self.manager.examine(request, reserve)
        return admission

    def _joins_sibling(self, request: Request) -> bool:
        """Another answer to a prompt that is being computed: waits for it, then shares its blocks.

        The last token of the prompt is computed again, for its logits; that writes into the shared
        last block, which copy-on-write turns into the answer's own.
        """
        first = request.sibling
        if first is None:
            return False
        num_shared = request.num_prompt_tokens - 1
        if first.phase is Phase.DECODE and not first.paused:
            if first.num_committed_tokens <= num_shared:
                return True
            request.sibling = None
            self.waiting.remove(request)
            self._start_fork(first, request, num_shared)
            return True
        if first.phase in (Phase.FINISHED, Phase.PREEMPTED) or first.paused:
            request.sibling = None
            return False
        self._wait(request, WaitReason.TWIN, waits_on=first.request_id)
        return True

    def _admit(self, request: Request, admission: Admission) -> None:
        self.waiting.remove(request)
        self.manager.admit(request, admission)
        self._enter(request, len(admission.hits) * self.manager.block_size, Phase.PREFILL)

    def _enter(self, request: Request, num_cached: int, phase: Phase) -> None:
        if request.admitted < 0:
            request.num_cached_tokens = num_cached
            self._metrics.total_cached_tokens += num_cached
        request.admitted = self._num_admitted
        self._num_admitted += 1
        request.phase = phase
        request.tokens_since_admission = 0
        request.inherits_focus = False
        request.waits_for, request.blocks_short, request.waits_on = WaitReason.NONE, 0, ""
        self.running.append(request)
        self._notes.admitted.append(request)

    def _wait_for_twin(self, request: Request, twin: Request) -> None:
        if request.conversation_id == self.focus or request.inherits_focus:
            twin.inherits_focus = True
        self._wait(request, WaitReason.TWIN, waits_on=twin.request_id)

    def _wait(
        self, request: Request, reason: WaitReason, short: int = 0, waits_on: str = ""
    ) -> None:
        if (request.waits_for, request.blocks_short, request.waits_on) == (reason, short, waits_on):
            return
        request.waits_for, request.blocks_short, request.waits_on = reason, short, waits_on
        self._notes.waiting_changed.append(request)

    def _schedule_prefills(self, budget: int) -> list[ScheduledChunk]:
        pending = [
            r for r in self.running if r.phase is Phase.PREFILL and self.guard.may_compute(r)
        ]
        pending.sort(key=lambda request: (not self._is_urgent(request), request.admitted))
        chunks: list[ScheduledChunk] = []
        while pending and budget > 0:
            request = pending.pop(0)
            share = self._share(request, budget, len(pending))
            num_tokens = self._chunk_tokens(request, share, budget)
            if num_tokens:
                start = request.num_computed_tokens
                last = start + num_tokens == request.num_tokens
                chunks.append(ScheduledChunk(request, start, num_tokens, samples=last))
                budget -= num_tokens
        return chunks

    def _is_urgent(self, request: Request) -> bool:
        return request.conversation_id == self.focus or request.inherits_focus

    def _share(self, request: Request, budget: int, num_others: int) -> int:
        """The focused conversation gets half while others wait, the rest is split evenly."""
        if num_others == 0:
            return budget
        return budget // 2 if self._is_urgent(request) else budget // (num_others + 1)

    def _chunk_tokens(self, request: Request, share: int, budget: int) -> int:
        """Whole blocks where possible: a block is found by others only when it is full."""
        left, size = request.num_uncomputed_tokens, self.manager.block_size
        if left <= share:
            return left
        offset = request.num_computed_tokens % size
        whole = (share + offset) // size * size - offset
        return whole if whole > 0 else min(left, budget, size - offset)
