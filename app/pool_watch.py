"""Extremes of the pool over a run, for the self-test."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from app.bridge import Bridge
from engine.api.events import BlockChanged, BlockEvents, EngineStats
from engine.api.snapshot import Snapshot


class PoolWatch(QObject):
    """Keeps the extremes of the pool while the test runs.

    Answers of a fast GPU share their blocks for less than the time between two snapshots: only the
    events tell of each moment, to whoever has the pool shown.
    """

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self.shared_max = 0
        self.used_max = 0
        self.violations = 0
        self._bridge = bridge
        self._seen: Snapshot | None = None
        self._shared: set[int] = set()
        self._bridge.block_events_received.connect(self._on_bridge_block_events_received)
        self._bridge.stats_changed.connect(self._on_bridge_stats_changed)

    def look(self) -> None:
        """Reads the newest snapshot."""
        snapshot = self._bridge.latest_snapshot()
        if snapshot is None or snapshot is self._seen:
            return
        self._seen = snapshot
        counts = memoryview(snapshot.pool.ref_count).cast("H")
        self.shared_max = max(self.shared_max, sum(1 for count in counts if count > 1))
        self.used_max = max(self.used_max, snapshot.num_used)
        self.violations = max(self.violations, snapshot.invariant_violations)

    @Slot(object)
    def _on_bridge_block_events_received(self, received: BlockEvents) -> None:
        if not received.events:
            # Another pool, or the first that is heard of this one.
            self._shared.clear()
        for event in received.events:
            if not isinstance(event, BlockChanged):
                continue
            if event.after.ref_count > 1:
                self._shared.add(event.block_id)
                self.shared_max = max(self.shared_max, len(self._shared))
            else:
                self._shared.discard(event.block_id)

    @Slot(object)
    def _on_bridge_stats_changed(self, stats: EngineStats) -> None:
        self.shared_max = max(self.shared_max, stats.shared_blocks)
        self.used_max = max(self.used_max, stats.used_blocks)
        self.violations = max(self.violations, stats.invariant_violations)
