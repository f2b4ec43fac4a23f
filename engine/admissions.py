"""Who of the waiting requests begins to run, and what the others wait for. No torch.

Requests are admitted in order of arrival when the pool has room for all of their known tokens. One
whose next block a running request is computing waits for that block instead of computing it twice;
another answer to a prompt that is being computed waits for it and shares its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.api.events import WaitReason
from engine.block_manager import Admission, BlockManager
from engine.queues import RequestQueues
from engine.request import Phase, Request


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A request that did not fit, and all that could make it fit later."""

    request: Request
    num_tokens: int
    reserve: int
    num_short: int
    num_available: int
    num_found: int


class Admissions:
    """Lets waiting requests in.

    ``may_compute``: whether a request may be in a step just now.
    """

    def __init__(
        self, manager: BlockManager, queues: RequestQueues, may_compute: Callable[[Request], bool]
    ) -> None:
        self._manager = manager
        self._queues = queues
        self._may_compute = may_compute
        self._refusal: _Refusal | None = None

    def admit(self, has_budget: bool, max_running: int, watermark: int, focus: str) -> None:
        """Admits what can run, in order; nobody overtakes one that waits for room in the pool.

        Args:
            has_budget: whether the step has room for prompt tokens.
            max_running: requests that may run at once.
            watermark: blocks that stay available while others run.
            focus: the focused conversation.
        """
        queues = self._queues
        blocked = WaitReason.NONE if has_budget else WaitReason.BATCH_FULL
        short = 0
        for request in list(queues.waiting):
            if blocked:
                queues.explain(request, blocked, short)
                continue
            if request.num_in_flight or not self._may_compute(request):
                continue
            if len(queues.running) >= max_running:
                blocked = WaitReason.BATCH_FULL
                queues.explain(request, blocked)
                continue
            if self._joins_sibling(request) or self._manager.twin_still_computing(request):
                continue
            # The reserve keeps running requests from preempting at once; alone there is none to
            # spare.
            admission = self._examine(request, watermark if queues.running else 0)
            if admission.twin is not None:
                self._wait_for_twin(request, admission.twin, focus)
            elif admission.num_short:
                blocked, short = WaitReason.CAPACITY, admission.num_short
                queues.explain(request, blocked, short)
                if not queues.running and not queues.num_draining:
                    # Only pins hold blocks now, and they have grown since it was accepted.
                    queues.notes.outgrown.append(request)
            else:
                queues.waiting.remove(request)
                self._manager.admit(request, admission)
                num_cached = len(admission.hits) * self._manager.block_size
                queues.enter(request, num_cached, Phase.PREFILL)

    def start_fork(self, parent: Request, child: Request, num_tokens: int) -> None:
        """``child`` runs at once, on the blocks of ``parent``'s first ``num_tokens`` tokens."""
        self._manager.fork(parent, child, num_tokens)
        self._queues.enter(child, num_tokens, Phase.DECODE)

    def _examine(self, request: Request, reserve: int) -> Admission:
        """What admission takes; paused requests give up their blocks where it would not fit, and
        once the last has, ``reserve`` is waived.
        """
        paused = [r for r in self._queues.running if r.paused and r.block_table]
        known = self._refusal
        pool = self._manager.pool
        if (
            known is not None
            and known.request is request
            and not paused
            and (known.num_tokens, known.reserve) == (request.num_tokens, reserve)
            and known.num_found == pool.num_stored + pool.num_hits
            and known.num_available >= pool.num_available
        ):
            # Nothing has been found or freed since: its whole prefix need not be looked up again.
            missing = known.num_available - pool.num_available
            return Admission((), 0, known.num_short + missing, None)
        admission = self._manager.examine(request, reserve)
        while admission.num_short and admission.twin is None and self._may_take(paused):
            self._queues.preempt(paused.pop(), "paused, and another needs the blocks")
            if not self._queues.running:
                reserve = 0
            admission = self._manager.examine(request, reserve)
        self._refusal = None
        if admission.num_short and admission.twin is None:
            self._refusal = _Refusal(
                request,
                request.num_tokens,
                reserve,
                admission.num_short,
                pool.num_available,
                pool.num_stored + pool.num_hits,
            )
        return admission

    def _may_take(self, paused: list[Request]) -> bool:
        """Whether one of ``paused`` is to give up its blocks: not while some are on their way back,
        which may be enough.
        """
        return bool(paused) and not self._queues.num_draining

    def _joins_sibling(self, request: Request) -> bool:
        """Another answer to a prompt that is being computed: waits for it, then shares its blocks.

        The last token of the prompt is computed again, for its logits; that writes into the shared
        last block, which copy-on-write turns into the answer's own.
        """
        first = request.sibling
        if first is None:
            return False
        num_shared = request.num_tokens - 1
        if first.phase is Phase.DECODE and not first.paused:
            if first.num_committed_tokens <= num_shared:
                return True
            request.sibling = None
            self._queues.waiting.remove(request)
            self.start_fork(first, request, num_shared)
            return True
        if first.phase in (Phase.FINISHED, Phase.PREEMPTED) or first.paused:
            request.sibling = None
            return False
        self._queues.explain(request, WaitReason.TWIN, waits_on=first.request_id)
        return True

    def _wait_for_twin(self, request: Request, twin: Request, focus: str) -> None:
        if request.conversation_id == focus or request.inherits_focus:
            twin.inherits_focus = True
        self._queues.explain(request, WaitReason.TWIN, waits_on=twin.request_id)
