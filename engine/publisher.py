"""Snapshots, block events and statistics, to the clients that want them and no faster than they
want.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.api.client import QueueClient
from engine.api.errors import InvalidValueError
from engine.api.events import BlockEvents, EngineStats, PoolEvent
from engine.api.snapshot import Snapshot
from engine.event_log import PoolEventLog
from engine.snapshotter import Snapshotter

_STATS_INTERVAL_S = 0.5


@dataclass(slots=True)
class _Subscription:
    client: QueueClient
    interval_s: float
    due_s: float
    pending: list[PoolEvent]
    seen: Snapshot | None = None


class Publisher:
    """Delivers what the pool does. Nothing is collected while nobody subscribes."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, _Subscription] = {}
        self._log: PoolEventLog | None = None
        self._snapshotter: Snapshotter | None = None
        self._stats_due_s = 0.0
        self._told: EngineStats | None = None

    def attach(self, log: PoolEventLog, snapshotter: Snapshotter, now_s: float) -> None:
        """A new pool: every subscriber starts again from a snapshot of it."""
        self._log, self._snapshotter, self._told = log, snapshotter, None
        log.enabled = bool(self._subscriptions)
        for subscription in self._subscriptions.values():
            subscription.pending.clear()
            self._begin(subscription, now_s)

    def detach(self) -> None:
        """The pool is gone."""
        self._log = self._snapshotter = None
        for subscription in self._subscriptions.values():
            subscription.pending.clear()

    def subscribe(self, client: QueueClient, max_rate_hz: float, now_s: float) -> None:
        """One snapshot at once, then events.

        Raises:
            InvalidValueError: ``max_rate_hz`` is out of bounds.
        """
        # No thread can sleep for as long as a still lower rate may ask.
        if not 0.001 <= max_rate_hz <= 1000.0:
            raise InvalidValueError(
                f"max_rate_hz = {max_rate_hz}: 0.001 to 1000", name="max_rate_hz"
            )
        self._collect()
        interval = 1.0 / max_rate_hz
        subscription = _Subscription(client, interval, now_s + interval, [])
        self._subscriptions[id(client)] = subscription
        if self._log is not None:
            self._log.enabled = True
        self._begin(subscription, now_s)

    def unsubscribe(self, client: QueueClient) -> None:
        self._subscriptions.pop(id(client), None)
        if self._log is not None and not self._subscriptions:
            self._log.enabled = False
            self._log.drain()

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until a delivery is due; None when nothing is pending."""
        self._collect()
        due = [s.due_s - now_s for s in self._subscriptions.values() if s.pending]
        return max(0.0, min(due)) if due else None

    def deliver(self, now_s: float) -> None:
        """Hands out what is due."""
        if not self._subscriptions:
            return
        self._collect()
        for subscription in self._subscriptions.values():
            if subscription.pending and now_s >= subscription.due_s:
                subscription.due_s = now_s + subscription.interval_s
                events, subscription.pending = tuple(subscription.pending), []
                # First the snapshot: whoever starts again from it skips the events it contains.
                self._publish_snapshot(subscription, now_s)
                subscription.client.post(BlockEvents(events))

    def stats(self, clients: Iterable[QueueClient], now_s: float, *, force: bool = False) -> None:
        """The status strip's counters, about twice a second."""
        if self._snapshotter is None or (now_s < self._stats_due_s and not force):
            return
        self._tell_stats(clients, now_s, self._snapshotter.stats(now_s))

    def settle(self, clients: Iterable[QueueClient], now_s: float) -> None:
        """Nothing goes on until a command comes: what was told last has to be true meanwhile, also
        after a pin, a comparison or a single step, or with a request that waits in a paused engine.
        """
        if self._snapshotter is None:
            return
        event = self._snapshotter.stats(now_s)
        if self._told is None or _counts(event) != _counts(self._told):
            self._tell_stats(clients, now_s, event)
        for subscription in self._subscriptions.values():
            if self._is_outdated(subscription, self._snapshotter):
                self._begin(subscription, now_s)

    @staticmethod
    def _is_outdated(subscription: _Subscription, snapshotter: Snapshotter) -> bool:
        """Whether something has changed that only a snapshot tells, and no event of the pool: a
        request that waits, a setting, what a recount has found. Events that are still to be
        delivered bring a snapshot with them.
        """
        seen = subscription.seen
        return (
            seen is not None
            and not subscription.pending
            and (seen.watermark_blocks, seen.invariant_violations, seen.requests)
            != (snapshotter.watermark_blocks, snapshotter.num_faults, snapshotter.rows())
        )

    def _tell_stats(self, clients: Iterable[QueueClient], now_s: float, event: EngineStats) -> None:
        self._stats_due_s = now_s + _STATS_INTERVAL_S
        self._told = event
        for client in clients:
            client.post(event)

    def _collect(self) -> None:
        if self._log is None or not self._subscriptions:
            return
        events = self._log.drain()
        if events:
            for subscription in self._subscriptions.values():
                subscription.pending.extend(events)

    def _begin(self, subscription: _Subscription, now_s: float) -> None:
        """A snapshot, and word that it is there: an idle engine has no event to say so."""
        if self._snapshotter is not None:
            self._publish_snapshot(subscription, now_s)
            subscription.client.post(BlockEvents(()))

    def _publish_snapshot(self, subscription: _Subscription, now_s: float) -> None:
        if self._snapshotter is not None:
            subscription.seen = self._snapshotter.snapshot(now_s)
            subscription.client.publish(subscription.seen)


def _counts(stats: EngineStats) -> tuple[int, ...]:
    return (
        stats.num_running,
        stats.num_waiting,
        stats.used_blocks,
        stats.cached_blocks,
        stats.free_blocks,
        stats.shared_blocks,
    )
