"""Refresh and redraw times of the cache panel, its memory, and what it costs when hidden."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
import tracemalloc
from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication

from app.cache_panel.history import MAX_EVENTS, SPAN_S, History, Moment
from app.cache_panel.lane import LaneRow
from app.cache_panel.live_panel import REFRESH_MS
from app.cache_panel.past import Past
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import Undo
from engine.api.events import BlockChanged, BlockEventKind, BlockEvents, PoolEvent
from tests.benchmarks import gui_panel_engine
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


class Times:
    """How long something took, each time: on the clock, and of the processor's time."""

    def __init__(self) -> None:
        self.wall_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def __enter__(self) -> None:
        self._begin = time.perf_counter(), time.thread_time()

    def __exit__(self, *_exception: object) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        self.wall_ms.append((wall - self._begin[0]) * 1000)
        self.cpu_ms.append((cpu - self._begin[1]) * 1000)

    def summary(self) -> dict[str, float]:
        """Median and 99th percentile, in ms; the processor's are the same on a busy machine."""
        return {
            "median": round(statistics.median(self.wall_ms), 3),
            "p99": round(percentile(self.wall_ms, 0.99), 3),
            "cpu_median": round(statistics.median(self.cpu_ms), 3),
            "cpu_p99": round(percentile(self.cpu_ms, 0.99), 3),
        }


def refresh_times(stage: PanelStage, rounds: int) -> Times:
    """Fold, history and painting together, with 64 changed cells all over the pool."""
    generator = np.random.default_rng(7)
    num_blocks = stage.scripted.pool.num_blocks
    live = stage.panel.live
    assert live is not None
    times = Times()
    for _ in range(rounds):
        settle(REFRESH_MS * 1.1)
        blocks = generator.choice(num_blocks, CHANGED_CELLS, replace=False)
        batch = BlockEvents(changes(stage.scripted, blocks))
        with times:
            stage.bridge.block_events_received.emit(batch)
            # Not whenever the panel's pace has it next.
            live.refresh()
            QApplication.processEvents()
    return times


def redraw_times(stage: PanelStage, rounds: int) -> Times:
    """Layout, all cells and painting of the grid."""
    grid = stage.panel.findChild(PoolGrid)
    assert grid is not None
    times = Times()
    for _ in range(rounds):
        with times:
            grid.redraw()
            QApplication.processEvents()
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


def history_mb(num_blocks: int) -> float:
    """Memory of a minute in which as much happens as is ever kept, and of a moment gone back to."""
    scripted = filled_pool(num_blocks)
    model = PoolModel.from_snapshot(scripted.snapshot())
    generator = np.random.default_rng(11)
    gc.collect()
    tracemalloc.start()
    before, _peak = tracemalloc.get_traced_memory()
    history = History()
    moments = round(SPAN_S * 1000 / REFRESH_MS)
    for index in range(moments):
        blocks = generator.choice(num_blocks, MAX_EVENTS // moments)
        for event in changes(scripted, blocks):
            history.add(event, Undo(last_step=event.step - 1, step=event.step - 1))
        rows = tuple(
            LaneRow(f"r{n}-{index}", f"c{n}", "decode", 500, 500 + index, 300, index)
            for n in range(4)
        )
        step = scripted.log.step
        history.mark(Moment(float(index), history.end, step, model.counts, 900, rows))
    past = Past(model, history)
    gc.collect()
    after, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert past.position == history.end == MAX_EVENTS // moments * moments
    return (after - before) / 1e6


def measure(
    width: int = 420, height: int = 860, rounds: int = 201, *, with_engine: bool = True
) -> dict[str, Any]:
    """Everything that this benchmark reports, as one JSON object.

    ``with_engine``: also how fast the engine is with and without the panel, which needs the starter
    model and some minutes.
    """
    result: dict[str, Any] = {"refresh_ms": {}, "full_redraw_ms": {}, "panel": [width, height]}
    for num_blocks in SIZES:
        stage = PanelStage(filled_pool(num_blocks))
        stage.panel.resize(width, height)
        stage.panel.show()
        while stage.panel.model is None:
            settle(50)
        # As in the application: what is there for good is not looked through for garbage again.
        gc.freeze()
        times = refresh_times(stage, rounds)
        assert stage.panel.model.last_seq == stage.scripted.log.seq
        redraws = redraw_times(stage, 25)
        result["refresh_ms"][str(num_blocks)] = times.summary()
        result["full_redraw_ms"][str(num_blocks)] = redraws.summary()
        result |= hidden_cost(stage)
        stage.panel.deleteLater()
        gc.unfreeze()
    result["history_mb"] = round(history_mb(SIZES[-1]), 1)
    if with_engine:
        # In a process of its own: the pools made here would lie in its way.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            result |= pool.apply(gui_panel_engine.measure)
    return result


def percentile(values: list[float], share: float) -> float:
    """The value at ``share`` (0 to 1) of the sorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
