"""What the scheduler does differently after a step broke off. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.request import Phase, Request

_STEPS_UNTIL_GROWTH = 32


class FailureGuard:
    """Finds the request that makes steps fail, and keeps steps small enough for the memory.

    While there are *suspects* only the first of them computes, so that a request that breaks a step
    alone is known and only that one ends. ``token_budget``: tokens of a step, halved when memory
    ran out, at the least to a block, and grown again slowly. ``num_shortages``: how often that was.
    """

    def __init__(self, token_budget: int, block_size: int) -> None:
        self._block_size = block_size
        self.set_budget(token_budget)
        self._steps_since_shrink = 0
        self.num_shortages = 0
        self._suspects: deque[Request] = deque()

    @property
    def has_suspects(self) -> bool:
        return bool(self._suspects)

    @property
    def first_suspect(self) -> Request | None:
        """The one that computes alone just now, or None."""
        return self._suspects[0] if self._suspects else None

    def may_compute(self, request: Request) -> bool:
        return not request.paused and (not self._suspects or self._suspects[0] is request)

    def suspect(self, requests: Iterable[Request]) -> None:
        """One of these broke the step that they were in."""
        self._suspects.extend(r for r in requests if r not in self._suspects)

    def clear(self, request: Request) -> None:
        """The request has got through what it was suspected of breaking."""
        if request in self._suspects:
            self._suspects.remove(request)

    def pass_over(self) -> None:
        """The first suspect cannot run now: the others go on."""
        self._suspects.popleft()

    def skip_idle(self) -> None:
        """Drops suspects that have ended or are paused from the front."""
        while self._suspects and (
            self._suspects[0].phase is Phase.FINISHED or self._suspects[0].paused
        ):
            self._suspects.popleft()

    def set_budget(self, token_budget: int) -> None:
        """Another full budget; what has been shrunk since memory ran out may grow up to it."""
        self._full_budget = token_budget
        self._least_budget = min(self._block_size, token_budget)
        self.token_budget = token_budget

    def shrink_budget(self) -> bool:
        """Halves the tokens of a step after memory ran out. False if they are at the least."""
        self._steps_since_shrink = 0
        self.num_shortages += 1
        if self.token_budget <= self._least_budget:
            return False
        self.token_budget = max(self.token_budget // 2, self._least_budget)
        return True

    def step_succeeded(self) -> None:
        """Lets a shrunk budget grow again, slowly."""
        self._steps_since_shrink += 1
        if self._steps_since_shrink >= _STEPS_UNTIL_GROWTH:
            self._steps_since_shrink = 0
            self.token_budget = min(self.token_budget * 2, self._full_budget)
