"""What the self-test sees of the pool: also what lasts less than the time between snapshots."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.pool_watch import PoolWatch
from engine.api.events import BlockChanged, BlockEventKind, BlockEvents, BlockState, BlockView


class Bridge(QObject):
    block_events_received = Signal(object)
    stats_changed = Signal(object)

    def latest_snapshot(self) -> None:
        return None


def changed(block_id: int, ref_count: int) -> BlockChanged:
    view = BlockView(BlockState.USED, ref_count, b"", "a", 16)
    return BlockChanged(0, 0, BlockEventKind.HIT, "", block_id, "r", "c", view, view)


def test_blocks_that_were_shared_for_a_moment_are_counted(qapp: object) -> None:
    bridge = Bridge()
    watch = PoolWatch(bridge)  # type: ignore[arg-type]
    moments = (changed(1, 2), changed(2, 2), changed(1, 3), changed(1, 1), changed(2, 0))
    bridge.block_events_received.emit(BlockEvents(moments))
    assert watch.shared_max == 2
    bridge.block_events_received.emit(BlockEvents((changed(3, 2), changed(4, 1))))
    assert watch.shared_max == 2


def test_another_pool_starts_from_nothing(qapp: object) -> None:
    bridge = Bridge()
    watch = PoolWatch(bridge)  # type: ignore[arg-type]
    bridge.block_events_received.emit(BlockEvents((changed(1, 2),)))
    bridge.block_events_received.emit(BlockEvents(()))
    bridge.block_events_received.emit(BlockEvents((changed(2, 2),)))
    assert watch.shared_max == 1
