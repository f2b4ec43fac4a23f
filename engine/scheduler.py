"""Which tokens the next step computes: continuous batching over a paged pool. No torch.

A step computes all running decodes, then chunks of prompts under a token budget and a time budget.
Waiting requests are admitted in order of arrival when the pool has room for all of their known
tokens; one whose next block a running request is computing waits for that block instead of
computing it twice. When a decode finds no block, a later request is preempted and computed again
through the prefix cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine.admissions import Admissions
from engine.api.events import WaitReason
from engine.api.params import EngineConfig
from engine.block_manager import BlockManager
from engine.failure_guard import FailureGuard
from engine.metrics import LEAST_MEASURED_TOKENS, EngineMetrics
from engine.prefill_planner import PrefillPlanner
from engine.prompt_sizes import PromptSize, fitting, unpadded
from engine.queues import RequestQueues
from engine.request import Phase, Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.victims import choose_victim

_UNMEASURED_CHUNK_TOKENS = 64
_ALONE_FACTOR = 4
_PREFILL_TIME_MS = 45.0


class Scheduler:
    """Queues of requests and the rules of who computes next.

    ``waiting`` and ``running`` are those of ``queues``, which collects what the core has to report.
    ``focus``: the conversation in front. ``held``: no step is begun, so that the core's next one
    only commits what is in flight.
    """

    def __init__(
        self,
        manager: BlockManager,
        config: EngineConfig,
        metrics: EngineMetrics | None = None,
        prompt_size: PromptSize = unpadded,
    ) -> None:
        self.manager = manager
        self.focus = ""
        self.held = False
        self._metrics = metrics or EngineMetrics()
        self._prompt_size = prompt_size
        self.queues = RequestQueues(manager, self._metrics)
        self.guard = FailureGuard(config.token_budget, manager.block_size)
        self._prefills = PrefillPlanner(manager.block_size)
        self._admissions = Admissions(manager, self.queues, self.guard.may_compute)
        self._step = 0
        self._copies: list[tuple[int, int]] = []
        self.configure(config)

    @property
    def waiting(self) -> deque[Request]:
        return self.queues.waiting

    @property
    def running(self) -> list[Request]:
        return self.queues.running

    @property
    def has_work(self) -> bool:
        """Whether a request could compute: one that is not paused."""
        return self.queues.has_work

    def reset(self, requests: Sequence[Request], reason: str) -> None:
        """Begins anew after the books themselves broke; no step may be in flight.

        Whatever the tables and the pool said, all blocks are free afterwards and every request
        waits to be computed again.

        Args:
            requests: all that have not ended.
            reason: why they lose their blocks.
        """
        self.queues.reset(requests, reason)
        for request in requests:
            request.num_in_flight, request.release_cause, request.twin_hash = 0, "", None
            self.manager.disown(request)
        self.manager.reset()

    def configure(self, config: EngineConfig) -> None:
        """Other limits from the next step on. What runs beyond a lower limit goes on."""
        self._config = config
        # Whole blocks, and so many that their time is measured: after one slow step chunks would
        # stay small for ever otherwise.
        least = self.manager.num_blocks_for(LEAST_MEASURED_TOKENS) * config.block_size
        self._least_prefill = config.least_prefill_tokens or least
        self._prefill_time_s = (config.prefill_time_budget_ms or _PREFILL_TIME_MS) / 1000.0
        self.guard.set_budget(config.token_budget)
        self.watermark_blocks = int(config.watermark * self.manager.pool.num_blocks)

    def add(self, request: Request) -> None:
        """Queues a new request. The caller has checked that it can ever fit."""
        self.waiting.append(request)

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
        self._admissions.admit(
            budget > 0, self._config.max_running_requests, self.watermark_blocks, self.focus
        )
        return decodes, self._schedule_prefills(budget)

    # --- pausing and forking ---

    def pause(self, request: Request) -> None:
        """The request computes no further; it keeps its blocks while nobody needs them."""
        if request.paused:
            return
        request.paused = True
        self.manager.withdraw(request)
        if request.phase in (Phase.WAITING, Phase.PREEMPTED):
            self.queues.explain(request, WaitReason.PAUSED)

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
            self._admissions.start_fork(parent, child, parent.num_computed_tokens)
        else:
            self.waiting.append(child)

    def truncate(self, request: Request, num_tokens: int) -> None:
        """Takes the request's ids back to the first ``num_tokens``; no step may be in flight."""
        assert request.num_in_flight == 0, "a step that names the request is in flight"
        del request.token_ids[num_tokens:]
        self.manager.truncate(request)
        request.tokens_since_admission = 0
        if request.phase is not Phase.PREFILL:
            return
        if request.num_uncomputed_tokens == 1:
            # It may lie in a block that others read: decodes copy such a block first.
            request.phase = Phase.DECODE
        elif not request.paused:
            self.manager.renew_promise(request)

    def recompute(self, requests: list[Request], reason: str) -> None:
        """Takes the blocks of these requests away, so that they start from the prefix cache.

        After a step broke off nobody can vouch for the KV in them. No step may be in flight.
        """
        for request in reversed(requests):
            if request in self.running:
                # Not for want of room, which is what the usual cause tells.
                self.queues.preempt(request, reason, "recompute")

    def restart(self, root: bytes, *, prefix_caching: bool) -> None:
        """All KV is void: every request is computed again, its hashes beginning at ``root``."""
        self.recompute(list(self.running), "the cache was dropped")
        self.manager.restart(root, prefix_caching=prefix_caching)
        for request in self.waiting:
            request.chain = request.twin_hash = None

    # --- decodes ---

    def _schedule_decodes(self) -> list[ScheduledChunk]:
        scheduled: dict[str, ScheduledChunk] = {}
        for request in list(self.running):
            if request.phase is not Phase.DECODE or not self.guard.may_compute(request):
                continue
            if len(request.token_ids) > request.num_owned_slots:
                if not self._make_slot(request, scheduled):
                    continue
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
            if self.queues.num_draining:
                return False
            victim = choose_victim(request, self.running, self.focus, self.manager.block_size)
            if victim is None and self.manager.can_ever_fit(request.token_ids):
                # It took over a block that it may not write to, and there is none for a copy: alone
                # it begins anew, with that block free.
                victim = request
            if victim is None:
                # A step in flight may still bring its last token, or end it.
                if not request.num_in_flight:
                    self.queues.notes.outgrown.append(request)
                return False
            # Its copies too: the next block given away may be one that they were to fill.
            self._copies = [pair for pair in self._copies if pair[1] not in victim.block_table]
            self.queues.preempt(victim, "pool full")
            scheduled.pop(victim.request_id, None)
            if victim is request:
                return False
        return True

    # --- prompts ---

    def _prefill_budget(self, num_decodes: int) -> int:
        """Prompt tokens that this step may compute, so that running decodes do not stall.

        Without decodes a step may take some times longer, since only newcomers wait for its end.
        """
        budget = self.guard.token_budget - num_decodes
        rate = self._metrics.safe_padded_tokens_per_s
        in_time = int(rate * self._prefill_time_s) if rate else _UNMEASURED_CHUNK_TOKENS
        if not num_decodes:
            in_time *= _ALONE_FACTOR
        return max(min(budget, max(in_time, self._least_prefill)), 0)

    def _schedule_prefills(self, budget: int) -> list[ScheduledChunk]:
        pending = [
            r for r in self.running if r.phase is Phase.PREFILL and self.guard.may_compute(r)
        ]
        if not pending or not budget:
            return []
        # Padding takes as long as tokens do: no more of them than fill a size that fits.
        return self._prefills.plan(pending, fitting(budget, self._prompt_size), self._is_urgent)

    def _is_urgent(self, request: Request) -> bool:
        return request.conversation_id == self.focus or request.inherits_focus
