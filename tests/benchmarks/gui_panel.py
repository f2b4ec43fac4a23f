"""Refresh and redraw times of the cache panel, and what it costs when hidden."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication

from app.cache_panel.live_panel import REFRESH_MS
from app.cache_panel.pool_grid import PoolGrid
from engine.api.events import BlockChanged, BlockEventKind, BlockEvents, PoolEvent
from tests.helpers.panel_stage import PanelStage
from tests.helpers.scripted_pool import ScriptedPool

SIZES = (2_000, 20_000, 200_000)
CHANGED_CELLS = 64
HIDDEN_S = 1.0


class TimerCounter(QObject):
    """Counts timer events that reach any object of the application."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Timer
        return False


def filled_pool(num_blocks: int) -> ScriptedPool:
    """Four live conversations with a common prefix; the rest is cached, the last block too."""
    scripted = ScriptedPool(num_blocks)
    for index in range(1, 5):
        own = [10_000 * index + i for i in range(200)]
        assert scripted.admit(f"r{index}", f"c{index}", [*range(300), *own])
        scripted.compute(f"r{index}")
    for index in range((num_blocks - scripted.pool.num_used) // 128):
        tokens = [1_000_000 + 4096 * index + i for i in range(128 * 16 + 1)]
        assert scripted.admit(f"x{index}", f"c{index % 4 + 1}", tokens)
        scripted.compute(f"x{index}")
        scripted.finish(f"x{index}")
    scripted.drain()
    return scripted


def changes(scripted: ScriptedPool, blocks: np.ndarray[Any, Any]) -> tuple[PoolEvent, ...]:
    """One event a block: KV written again, which makes the cell dirty and gives it a rim."""
    log = scripted.log
    log.step += 1
    events = []
    for block in blocks.tolist():
        view = scripted.pool.view(block)
        events.append(
            BlockChanged(
                log.next_seq(), log.step, BlockEventKind.FILLED, "computed", block, "r1",
                view.owner, view, view,
            )
        )  # fmt: skip
    return tuple(events)


def refresh_times_ms(stage: PanelStage, rounds: int) -> list[float]:
    """Fold, figures, strips and painting together, with 64 changed cells all over the pool."""
    generator = np.random.default_rng(7)
    num_blocks = stage.scripted.pool.num_blocks
    times = []
    for _ in range(rounds):
        settle(REFRESH_MS * 1.5)
        blocks = generator.choice(num_blocks, CHANGED_CELLS, replace=False)
        batch = BlockEvents(changes(stage.scripted, blocks))
        begin = time.perf_counter()
        stage.bridge.block_events_received.emit(batch)
        QApplication.processEvents()
        times.append((time.perf_counter() - begin) * 1000)
    return times


def redraw_times_ms(stage: PanelStage, rounds: int) -> list[float]:
    """Layout, all cells and painting of the grid."""
    grid = stage.panel.findChild(PoolGrid)
    assert grid is not None
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        grid.redraw()
        QApplication.processEvents()
        times.append((time.perf_counter() - begin) * 1000)
    return times


def settle(wait_ms: float) -> None:
    """Lets timers and paints run for so long."""
    end = time.monotonic() + wait_ms / 1000
    while time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.002)


def hidden_cost(stage: PanelStage) -> dict[str, int]:
    """Timer events, snapshots asked for and subscriptions while the panel is hidden."""
    stage.panel.hide()
    settle(50)
    counter = TimerCounter()
    QApplication.instance().installEventFilter(counter)
    before = len(stage.commands), stage.snapshot_reads
    stage.scripted.append("r1", 7)
    stage.publish()
    stage.deliver()
    settle(HIDDEN_S * 1000)
    QApplication.instance().removeEventFilter(counter)
    assert len(stage.commands) == before[0]
    return {
        "hidden_wakeups": counter.count,
        "hidden_snapshots": stage.snapshot_reads - before[1],
        "hidden_subscriptions": stage.subscriptions,
    }


def measure(width: int = 420, height: int = 860, rounds: int = 41) -> dict[str, Any]:
    """Everything that this benchmark reports, as one JSON object."""
    result: dict[str, Any] = {"refresh_ms": {}, "full_redraw_ms": {}, "panel": [width, height]}
    for num_blocks in SIZES:
        stage = PanelStage(filled_pool(num_blocks))
        stage.panel.resize(width, height)
        stage.panel.show()
        settle(100)
        assert stage.panel.model is not None
        times = refresh_times_ms(stage, rounds)
        assert stage.panel.model.last_seq == stage.scripted.log.seq
        redraws = redraw_times_ms(stage, 15)
        result["refresh_ms"][str(num_blocks)] = summary(times)
        result["full_redraw_ms"][str(num_blocks)] = summary(redraws)
        result |= hidden_cost(stage)
    return result


def summary(times: list[float]) -> dict[str, float]:
    """Median and 99th percentile, in ms."""
    return {
        "median": round(statistics.median(times), 3),
        "p99": round(percentile(times, 0.99), 3),
    }


def percentile(values: list[float], share: float) -> float:
    """The value at ``share`` (0 to 1) of the sorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
