"""How a step's prompt tokens are divided among the prompts that are being computed. No torch.

The focused conversation gets at most half of them while others wait; within the focused and within
the others deficit round-robin by tokens: each turn a request may spend a quantum and what it could
not spend before, so that long and short prompts get the same share whatever the sizes of blocks and
chunks (Shreedhar and Varghese, 1995).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from engine.request import Request
from engine.scheduler_output import ScheduledChunk


class PrefillPlanner:
    """Divides prompt tokens, step by step.

    ``block_size``: chunks end at the end of a block where they can, since a block is found by
    others only when it is full.
    """

    def __init__(self, block_size: int) -> None:
        self._focused = _RoundRobin(block_size)
        self._others = _RoundRobin(block_size)
        self._has_odd_one = False

    def plan(
        self, pending: Sequence[Request], budget: int, is_focused: Callable[[Request], bool]
    ) -> list[ScheduledChunk]:
        """One chunk for each request that computes in this step, the focused first.

        Args:
            pending: requests with prompt tokens left to compute, in order of admission.
            budget: tokens that may be computed.
            is_focused: whether a request counts as the focused conversation's.
        """
        focused = [request for request in pending if is_focused(request)]
        others = [request for request in pending if not is_focused(request)]
        taken: dict[Request, int] = {}
        self._focused.enter(focused)
        self._others.enter(others)
        first = budget
        if focused and others:
            # The odd token goes to either in turn: it may be all that there is.
            self._has_odd_one = not self._has_odd_one
            first = (budget + self._has_odd_one) // 2
        self._focused.spend(first, taken)
        self._others.spend(budget - sum(taken.values()), taken)
        # What the others leave over.
        self._focused.spend(budget - sum(taken.values()), taken)
        return [
            _chunk(request, taken[request]) for request in (*focused, *others) if request in taken
        ]


class _RoundRobin:
    """Requests in a ring. The first one's turn goes on in the next step if tokens ran out in it."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._ring: deque[Request] = deque()
        self._deficits: dict[Request, int] = {}
        self._in_turn = False

    def enter(self, active: Sequence[Request]) -> None:
        """Takes up newcomers at the end and drops those that are not active any more."""
        present = set(active)
        if self._ring and self._ring[0] not in present:
            self._in_turn = False
        self._ring = deque(request for request in self._ring if request in present)
        self._deficits = {request: self._deficits[request] for request in self._ring}
        for request in active:
            if request not in self._deficits:
                self._ring.append(request)
                self._deficits[request] = 0

    def spend(self, budget: int, taken: dict[Request, int]) -> None:
        """Adds to ``taken`` what each request computes of ``budget`` tokens."""
        num_before = len(taken)
        size = self._block_size
        quantum = max(size, budget // max(len(self._ring), 1) // size * size)
        while self._ring and budget > 0:
            request = self._ring[0]
            if not self._in_turn:
                self._deficits[request] += quantum
                self._in_turn = True
            had = taken.get(request, 0)
            allowed = min(self._deficits[request], budget)
            is_first = not had and len(taken) == num_before
            count = self._whole_blocks(request, had, allowed, may_split=is_first)
            if count:
                taken[request] = had + count
                self._deficits[request] -= count
                budget -= count
            if request.num_uncomputed_tokens == had + count:
                self._leave(request)
            elif self._deficits[request] < size:
                self._ring.rotate(-1)
                self._in_turn = False
            else:
                # The budget ends within a block: the turn goes on in the next step.
                return

    def _leave(self, request: Request) -> None:
        self._ring.popleft()
        del self._deficits[request]
        self._in_turn = False

    def _whole_blocks(self, request: Request, had: int, allowed: int, may_split: bool) -> int:
        """How many tokens of ``allowed``: all that are left, else up to the end of a block.

        A part of a block only for the first of a share: with shares of less than a block, focused
        and others move on in each step all the same.
        """
        left = request.num_uncomputed_tokens - had
        if left <= allowed:
            return left
        start = request.num_computed_tokens + had
        whole = (start + allowed) // self._block_size * self._block_size - start
        if whole > 0:
            return whole
        return allowed if may_split else 0


def _chunk(request: Request, num_tokens: int) -> ScheduledChunk:
    start = request.num_computed_tokens
    return ScheduledChunk(
        request, start, num_tokens, samples=start + num_tokens == request.num_tokens
    )
