"""How much of a core the panel takes, so that it can hold back. Free of Qt."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

_SMOOTHING = 0.3


class Meter:
    """``with meter:`` around the panel's work counts the thread's time; ``spent_s`` in all."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._depth = 0
        self._begin_s = 0.0

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._begin_s = time.thread_time()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += time.thread_time() - self._begin_s


class Pacer:
    """Spaces refreshes so that ``meter``'s work stays under ``share`` of a core.

    ``shortest_ms`` to ``longest_ms`` between two; on a fast machine always the shortest.
    """

    def __init__(self, meter: Meter, share: float, shortest_ms: int, longest_ms: int) -> None:
        self._meter = meter
        self._share = share
        self._shortest_ms, self._longest_ms = shortest_ms, longest_ms
        self._seen_s = 0.0
        self._cost_s = 0.0
        self.interval_ms = shortest_ms

    def note_refresh(self) -> None:
        """A refresh begins: what was spent since the one before, paints and all, was its cost."""
        spent, self._seen_s = self._meter.spent_s - self._seen_s, self._meter.spent_s
        self._cost_s += _SMOOTHING * (spent - self._cost_s)
        wanted = round(self._cost_s / self._share * 1000)
        self.interval_ms = max(self._shortest_ms, min(self._longest_ms, wanted))
