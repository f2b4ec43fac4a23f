"""Pool events on their way to whoever subscribed.

One counter, no gaps, no cost when nobody listens.
"""

from __future__ import annotations

from engine.api.events import PoolEvent


class PoolEventLog:
    """Collects the pool's events between two deliveries.

    ``seq`` is the number of the last event. Events get numbers only while ``enabled``, so that the
    sequence a subscriber sees has no gaps; a snapshot taken in between carries ``seq`` as
    ``last_seq``.
    """

    __slots__ = ("_events", "enabled", "seq", "step")

    def __init__(self) -> None:
        self.enabled = False
        self.seq = 0
        self.step = 0
        self._events: list[PoolEvent] = []

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def append(self, event: PoolEvent) -> None:
        self._events.append(event)

    def drain(self) -> tuple[PoolEvent, ...]:
        """Events since the last call, in order."""
        events = tuple(self._events)
        self._events.clear()
        return events
