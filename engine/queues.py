"""Which requests wait and which run, and when their blocks go back. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.api.events import WaitReason
from engine.block_manager import BlockManager
from engine.metrics import EngineMetrics
from engine.request import Phase, Request


@dataclass(slots=True)
class SchedulerNotes:
    """What happened to requests while a step was scheduled; the core turns it into events.

    ``preempted``: with the number of blocks that became free, and why. ``outgrown``: requests that
    need more blocks than the pool can give them now that nobody else holds any.
    """

    admitted: list[Request] = field(default_factory=list)
    preempted: list[tuple[Request, int, str]] = field(default_factory=list)
    waiting_changed: list[Request] = field(default_factory=list)
    outgrown: list[Request] = field(default_factory=list)


class RequestQueues:
    """The one owner of a request's phase and of its way between the queues.

    ``waiting`` is in order of arrival with preempted requests in front; ``running`` in order of
    admission. ``num_draining``: requests that have left while a step in flight still reads their
    blocks, which go back at its commit.
    """

    def __init__(self, manager: BlockManager, metrics: EngineMetrics) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.notes = SchedulerNotes()
        self.num_draining = 0
        self.pool = manager.pool
        self._manager = manager
        self._metrics = metrics
        self._num_admitted = 0

    @property
    def has_work(self) -> bool:
        """Whether a request could compute: one that is not paused."""
        return any(not r.paused for r in self.running) or any(not r.paused for r in self.waiting)

    def take_notes(self) -> SchedulerNotes:
        """The notes since the last call."""
        notes, self.notes = self.notes, SchedulerNotes()
        return notes

    def enter(self, request: Request, num_cached: int, phase: Phase) -> None:
        """The request runs from now on. ``num_cached``: tokens that it found in the pool."""
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
        self.notes.admitted.append(request)

    def explain(
        self, request: Request, reason: WaitReason, short: int = 0, waits_on: str = ""
    ) -> None:
        """What the request waits for; noted when it changed."""
        if (request.waits_for, request.blocks_short, request.waits_on) == (reason, short, waits_on):
            return
        request.waits_for, request.blocks_short, request.waits_on = reason, short, waits_on
        self.notes.waiting_changed.append(request)

    def preempt(self, victim: Request, reason: str, cause: str = "preempt") -> None:
        """Takes a running request's blocks; it waits in front of all others. ``cause``: what the
        pool's events say.
        """
        self._to_front(victim)
        self.notes.preempted.append((victim, self._release(victim, cause), reason))

    def reset(self, requests: Sequence[Request], reason: str) -> None:
        """Lets exactly these requests wait, whatever the queues say; their blocks are somebody
        else's affair.
        """
        for request in self.running[::-1]:
            self._to_front(request)
            self.notes.preempted.append((request, len(request.block_table), reason))
        known = dict.fromkeys(requests)
        kept = [request for request in dict.fromkeys(self.waiting) if request in known]
        # One that was just on its way from one queue to the other is in neither.
        lost = [request for request in requests if request not in self.waiting]
        self.waiting = deque((*lost, *kept))
        self.num_draining = 0

    def _to_front(self, request: Request) -> None:
        self.running.remove(request)
        request.phase = Phase.PREEMPTED
        request.num_preemptions += 1
        self._metrics.num_preemptions += 1
        self.waiting.appendleft(request)

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
            self.num_draining -= 1
            cause, request.release_cause = request.release_cause, ""
            self._manager.free(request, cause)

    def _release(self, request: Request, cause: str) -> int:
        if request.num_in_flight == 0:
            return self._manager.free(request, cause)
        # A step on the device still reads these blocks: they go back at its commit.
        self._manager.withdraw(request)
        if not request.release_cause:
            self.num_draining += 1
        request.release_cause = cause
        return 0
