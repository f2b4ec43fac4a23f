"""The only crossing between Qt and the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from engine.api.client import EngineClient
from engine.api.commands import Command, SubscribePool, UnsubscribePool
from engine.api.events import (
    BlockEvents,
    EngineStats,
    EngineStatusChanged,
    Event,
    ModelLoaded,
    ModelUnloaded,
    TokensGenerated,
)
from engine.api.snapshot import Snapshot

DRAIN_INTERVAL_MS = 16
POOL_RATE_HZ = 10.0
"""Deliveries of the pool's events a second: as many as the cache panel shows."""


class Bridge(QObject):
    """Carries commands to the engine and its events to the GUI thread.

    The engine thread wakes it with one queued signal; it drains at most every 16 ms, and not at
    all while nothing happens. All methods are for the GUI thread. Commands sent before ``start``
    are kept and sent then.

    Signals:
        engine_event(Event): every event but the two below, in order. Consecutive
            ``TokensGenerated`` of one request within a drain arrive as one.
        block_events_received(BlockEvents): only while subscribed.
        stats_changed(EngineStats)
        status_changed(EngineStatusChanged): told as an ``engine_event`` too.

    For who comes later: ``latest_stats``, the newest of the loaded model, and ``latest_status``,
    which also tells the pace; None without any.
    """

    engine_event = Signal(object)
    block_events_received = Signal(object)
    stats_changed = Signal(object)
    status_changed = Signal(object)
    _woken = Signal()

    def __init__(
        self, start_engine: Callable[[], EngineClient], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._start_engine = start_engine
        self._client: EngineClient | None = None
        self._early_commands: list[Command] = []
        self._subscribers = 0
        self.latest_stats: EngineStats | None = None
        self.latest_status: EngineStatusChanged | None = None
        self._closed = False
        self._last_drain_s = 0.0
        self._drain_timer = QTimer(self)
        self._drain_timer.setSingleShot(True)
        self._drain_timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._drain_timer.timeout.connect(self._drain)
        self._woken.connect(self._on_woken, Qt.ConnectionType.QueuedConnection)

    @property
    def is_started(self) -> bool:
        """True from ``start`` to ``close``."""
        return self._client is not None and not self._closed

    @property
    def is_subscribed(self) -> bool:
        """Whether anybody has asked for snapshots and block events."""
        return self._subscribers > 0

    def start(self) -> None:
        """Starts the engine thread and sends it what was kept. A second call does nothing."""
        if self._client is not None or self._closed:
            return
        client = self._start_engine()
        self._client = client
        client.set_wakeup(self._woken.emit)
        for command in self._early_commands:
            client.send(command)
        self._early_commands.clear()

    def restart(self) -> None:
        """Starts a new engine in place of one that has ended. Subscriptions go on with it."""
        if self._client is None or self._closed:
            return
        self._client.set_wakeup(None)
        self._client.close(0.0)
        self.latest_stats = self.latest_status = None
        self._client = client = self._start_engine()
        client.set_wakeup(self._woken.emit)
        if self._subscribers:
            client.send(SubscribePool(POOL_RATE_HZ))

    def drain(self) -> None:
        """Tells now what has come from the engine, without waiting for the next drain."""
        self._drain()

    def send(self, command: Command) -> None:
        """Hands a command to the engine. Never blocks."""
        if self._closed:
            return
        if self._client is None:
            self._early_commands.append(command)
        else:
            self._client.send(command)

    def subscribe_pool(self) -> None:
        """Asks for snapshots and block events; counted, so that each call needs an
        ``unsubscribe_pool``.
        """
        self._subscribers += 1
        if self._subscribers == 1:
            self.send(SubscribePool(POOL_RATE_HZ))

    def unsubscribe_pool(self) -> None:
        """Takes one ``subscribe_pool`` back; the engine stops sending at the last one."""
        if self._subscribers == 0:
            raise RuntimeError("unsubscribe_pool without subscribe_pool")
        self._subscribers -= 1
        if self._subscribers == 0:
            self.send(UnsubscribePool())

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot of the pool, or None. Cheap."""
        return None if self._client is None else self._client.latest_snapshot()

    def close(self, timeout_s: float = 4.0) -> bool:
        """Ends the engine thread; waits at most ``timeout_s``. False if it was still alive then."""
        self._closed = True
        self._drain_timer.stop()
        if self._client is None:
            return True
        self._client.set_wakeup(None)
        return self._client.close(timeout_s)

    @Slot()
    def _on_woken(self) -> None:
        if self._closed or self._drain_timer.isActive():
            return
        waited_ms = (time.monotonic() - self._last_drain_s) * 1000.0
        if waited_ms >= DRAIN_INTERVAL_MS:
            self._drain()
        else:
            self._drain_timer.start(max(1, round(DRAIN_INTERVAL_MS - waited_ms)))

    @Slot()
    def _drain(self) -> None:
        if self._client is None or self._closed:
            return
        self._last_drain_s = time.monotonic()
        for event in coalesced(self._client.poll_events()):
            if isinstance(event, BlockEvents):
                self.block_events_received.emit(event)
            elif isinstance(event, EngineStats):
                self.latest_stats = event
                self.stats_changed.emit(event)
            else:
                if isinstance(event, ModelLoaded | ModelUnloaded):
                    # Another pool.
                    self.latest_stats = None
                if isinstance(event, EngineStatusChanged):
                    self.latest_status = event
                    self.status_changed.emit(event)
                self.engine_event.emit(event)


def coalesced(events: Iterable[Event]) -> list[Event]:
    """Joins the ``TokensGenerated`` of each request that no other event of that request parts.

    The joined event stands where its first part stood; everything else keeps its order.
    """
    result: list[Event] = []
    open_at: dict[str, int] = {}
    parts: dict[int, list[TokensGenerated]] = {}
    for event in events:
        request_id = getattr(event, "request_id", None)
        if isinstance(event, TokensGenerated):
            index = open_at.get(event.request_id)
            if index is not None:
                parts[index].append(event)
                continue
            open_at[event.request_id] = len(result)
            parts[len(result)] = [event]
        elif request_id is not None:
            open_at.pop(request_id, None)
        result.append(event)
    for index, joined in parts.items():
        if len(joined) > 1:
            result[index] = replace(
                joined[0],
                token_ids=tuple(i for part in joined for i in part.token_ids),
                text="".join(part.text for part in joined),
                logprobs=tuple(p for part in joined for p in part.logprobs),
                top_logprobs=tuple(top for part in joined for top in part.top_logprobs),
            )
    return result
