"""The panel as a widget: what it shows, and that it costs nothing while hidden."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest
import shiboken6
from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QLabel, QMainWindow
from pytestqt.qtbot import QtBot

from app.cache_panel import metrics
from app.cache_panel.block_tables import BlockTables
from app.session_state import ModelState, ModelStatus
from engine.api.commands import SubscribePool, UnsubscribePool
from engine.api.events import EngineStats
from tests.helpers.panel_stage import PanelStage, grid_of, live_of, panel_stage, shown, texts_of
from tests.helpers.scripted_pool import ScriptedPool, four_conversations

# Said by the offscreen platform about every window with a least size.
pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

MakeStage = Callable[..., PanelStage]


@pytest.fixture
def make_stage(qtbot: QtBot) -> MakeStage:
    return partial(panel_stage, qtbot)


def tables_of(stage: PanelStage) -> BlockTables:
    tables = stage.panel.findChild(BlockTables)
    assert tables is not None
    return tables


def test_panel_follows_the_pool_from_one_snapshot_and_events(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = shown(qtbot, make_stage())
    stage.publish_on_subscribe = False
    for token in range(40):
        stage.scripted.append("r2", token)
        stage.deliver()
        qtbot.wait(2)
    stage.scripted.finish("r1")
    stage.deliver()
    model, pool = stage.panel.model, stage.scripted.pool
    assert model is not None
    qtbot.waitUntil(lambda: model.last_seq == stage.scripted.log.seq)
    assert stage.panel.model is model
    assert [model.view(b) for b in range(512)] == [pool.view(b) for b in range(512)]


def test_refreshes_are_at_most_fifteen_a_second(
    qtbot: QtBot, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = shown(qtbot, make_stage())
    refreshes: list[int] = []
    live = stage.panel.live
    assert live is not None
    real = live.refresh
    monkeypatch.setattr(live, "refresh", lambda: (refreshes.append(1), real()))
    begin = time.monotonic()
    for token in range(60):
        stage.scripted.append("r1", token)
        stage.deliver()
        qtbot.wait(5)
    qtbot.waitUntil(lambda: stage.panel.model.last_seq == stage.scripted.log.seq)
    assert 2 <= len(refreshes) <= (time.monotonic() - begin) * 15.2 + 2
    assert len(refreshes) < 60


class TimerEvents(QObject):
    count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Timer
        return False


def test_hidden_panel_does_nothing(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage()
    assert stage.commands == []
    shown(qtbot, stage)
    grid_of(stage).refresh({1, 2}, {1, 2})
    assert grid_of(stage).is_animating
    stage.panel.hide()
    qtbot.wait(20)
    assert stage.subscriptions == 0
    assert not any(timer.isActive() for timer in stage.panel.findChildren(QTimer))
    model, reads = stage.panel.model, stage.snapshot_reads
    assert model is not None
    seq = model.last_seq
    counter = TimerEvents()
    for part in [stage.panel, *stage.panel.findChildren(QObject)]:
        part.installEventFilter(counter)
    stage.scripted.append("r1", 2)
    stage.publish()
    stage.deliver()
    stage.session.model_state_changed.emit()
    stage.session.conversation_changed.emit("c1")
    qtbot.wait(150)
    assert counter.count == 0
    assert stage.snapshot_reads == reads
    assert model.last_seq == seq


def test_shown_again_it_starts_from_a_new_snapshot(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    stage.panel.hide()
    stage.scripted.finish("r1")
    stage.scripted.drain()
    stage.panel.show()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    kinds = [type(command) for command in stage.commands]
    assert kinds == [SubscribePool, UnsubscribePool, SubscribePool]
    model = stage.panel.model
    assert model is not None
    assert set(model.tables) == {"r2", "r3", "r4"}
    assert [strip.is_live for strip in tables_of(stage).strips] == [False, True, True, True]


def test_timers_rest_when_nothing_happens(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    stage.scripted.append("r1", 1)
    stage.deliver()
    qtbot.waitUntil(lambda: stage.panel.model.last_seq == stage.scripted.log.seq)
    timers = stage.panel.findChildren(QTimer)
    assert any(timer.isActive() for timer in timers)
    qtbot.waitUntil(lambda: not any(timer.isActive() for timer in timers))
    qtbot.wait(100)
    assert not any(timer.isActive() for timer in timers)


def test_lost_events_lead_to_a_new_subscription(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    stage.scripted.append("r1", 1)
    stage.scripted.drain()
    assert stage.panel.live is not None
    stage.panel.live._last_subscription_s -= 10
    stage.scripted.append("r1", 2)
    stage.deliver()
    qtbot.waitUntil(lambda: stage.subscriptions == 1 and len(stage.commands) == 3)
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    model = stage.panel.model
    assert model is not None
    assert not model.inconsistency
    assert model.last_seq == stage.scripted.log.seq


def test_savings_are_said_in_words(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage(four_conversations(prefix=200)))
    text = texts_of(stage.panel)
    assert "12 blocks shared by 4 conversations: 36 blocks, 13.3 MB and ≈ 0.4 s of prefill" in text


def test_free_cached_and_used_are_kept_apart(qtbot: QtBot, make_stage: MakeStage) -> None:
    scripted = four_conversations()
    scripted.finish("r1")
    stage = shown(qtbot, make_stage(scripted))
    pool = scripted.pool
    texts = texts_of(stage.panel).split("\n")
    for number in (pool.num_free, pool.num_cached, pool.num_used):
        assert f"{number:,}" in texts


def test_strips_line_up_at_the_shared_prefix(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    strips = tables_of(stage).strips
    assert [strip.number for strip in strips] == [1, 2, 3, 4]
    assert {strip.shared_blocks for strip in strips} == {12}
    assert len({strip.blocks[:12] for strip in strips}) == 1
    assert [strip.cached_tokens for strip in strips] == [0, 192, 192, 192]
    assert [strip.tokens for strip in strips] == [
        request.num_computed_tokens for request in stage.scripted.requests.values()
    ]


def test_finished_conversation_stays_as_a_ghost_until_it_is_closed(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = shown(qtbot, make_stage())
    stage.scripted.finish("r3")
    stage.deliver()
    qtbot.waitUntil(lambda: not tables_of(stage).strips[2].is_live)
    ghost = tables_of(stage).strips[2]
    assert ghost.kept_blocks == len(ghost.blocks) - 1
    del stage.session.open["c3"]
    stage.session.conversation_closed.emit("c3")
    qtbot.waitUntil(lambda: [strip.number for strip in tables_of(stage).strips] == [1, 2, 4])


def test_tabs_asked_together_are_named_together(
    qtbot: QtBot, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = shown(qtbot, make_stage())
    named: list[int] = []
    view = stage.panel.live.view
    forget = view.forget_names
    monkeypatch.setattr(view, "forget_names", lambda: (named.append(1), forget()))
    for number in range(1, 5):
        stage.session.open[f"c{number}"].title = "Asked"
        stage.session.conversation_changed.emit(f"c{number}")
    assert not named
    qtbot.waitUntil(lambda: bool(named))
    qtbot.wait(150)
    assert named == [1]
    stage.session.conversation_changed.emit("c1")
    qtbot.wait(100)
    assert named == [1]
    stage.panel.hide()
    stage.session.open["c1"].title = "Another"
    stage.session.conversation_changed.emit("c1")
    assert named == [1, 1]


def test_keyboard_cursor_reads_blocks(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    grid = grid_of(stage)
    grid.setFocus()
    qtbot.keyClick(grid, Qt.Key.Key_End)
    assert grid.cursor_block == 511
    assert "Block 511: free" in texts_of(stage.panel)
    qtbot.keyClick(grid, Qt.Key.Key_Home)
    qtbot.keyClick(grid, Qt.Key.Key_Right)
    assert grid.cursor_block == 1
    assert "Block 1: shared, 4 references" in texts_of(stage.panel)
    assert "Tokens 16 to 31 (logical block 1)" in grid.accessibleDescription()
    layout = grid.layout_in_use
    assert layout is not None
    qtbot.keyClick(grid, Qt.Key.Key_Down)
    assert grid.cursor_block == 1 + layout.columns


def test_grid_grows_with_the_touched_part_of_a_large_pool(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = shown(qtbot, make_stage(four_conversations(num_blocks=4000)))
    grid = grid_of(stage)
    qtbot.wait(50)
    before = grid.layout_in_use
    assert before is not None
    assert before.num_blocks + grid.num_hidden == 4000
    assert f"and {grid.num_hidden:,} more free blocks" in texts_of(stage.panel)
    tokens = range(7000, 7000 + 16 * before.num_blocks)
    assert stage.scripted.admit("r9", "c1", tokens)
    stage.deliver()
    qtbot.waitUntil(lambda: grid.layout_in_use != before)
    after = grid.layout_in_use
    assert after is not None
    assert max(stage.scripted.requests["r9"].block_table) < after.num_blocks
    assert after.side < before.side
    assert f"and {grid.num_hidden:,} more free blocks" in texts_of(stage.panel)


def test_title_that_looks_like_markup_is_shown_as_it_is(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    title = "<img src=x onerror=alert(1)> & <b>bold</b>"
    stage = shown(qtbot, make_stage(titles=[title, "b", "c", "d"]))
    grid_of(stage).move_cursor(stage.scripted.requests["r1"].block_table[-1])
    assert title in texts_of(stage.panel)
    assert {label.textFormat() for label in stage.panel.findChildren(QLabel)} == {
        Qt.TextFormat.PlainText
    }


def test_theme_changes_at_run_time(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    # Labels take their height from their width: the grid's place is final when that has settled.
    qtbot.wait(60)
    light = grid_of(stage).grab().toImage()
    stage.theme.set_mode("dark")
    dark = grid_of(stage).grab().toImage()
    stage.theme.set_mode("light")
    qtbot.waitUntil(lambda: grid_of(stage).grab().toImage() == light)
    assert dark != light


def test_unloaded_model_takes_the_pool_with_it(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    stage.client.post(EngineStats(9, 4, 0, 60, 0, 452, 12, 40.0, 900.0, 0))
    qtbot.waitUntil(lambda: live_of(stage).metrics.metrics.latest(metrics.SPEED) == 40.0)
    stage.session.model_state = ModelState(ModelStatus.NO_MODEL)
    stage.session.model_state_changed.emit()
    assert stage.panel.model is None
    assert "when a model is loaded" in texts_of(stage.panel)
    # No figure of the pool that went stays.
    labels = [label for label in stage.panel.findChildren(QLabel) if label.isVisible()]
    with_digits = [label.text() for label in labels if any(map(str.isdigit, label.text()))]
    assert with_digits == ["Private 0", "Shared 0", "Pinned 0"]
    assert math.isnan(live_of(stage).metrics.metrics.latest(metrics.SPEED))
    stage.scripted = ScriptedPool(64)
    stage.publish()
    stage.session.model_state = ModelState(ModelStatus.READY)
    stage.session.model_state_changed.emit()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    assert stage.panel.model is not None
    assert stage.panel.model.num_blocks == 64


def test_an_empty_pool_says_that_there_are_no_tables_and_no_past(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = shown(qtbot, make_stage(ScriptedPool(64)))
    tables = tables_of(stage)
    empty = tables.grab().toImage()
    tables.say_when_empty("")
    assert tables.grab().toImage() != empty
    assert live_of(stage).time_bar.timeline.words == "height: 16 blocks"


def test_importing_the_panel_loads_no_numpy() -> None:
    """The window's first paint waits for these imports."""
    code = "import sys, app.cache_panel.panel; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_window_is_painted_before_the_panel_is_made(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage()
    seen: list[bool] = []

    class Window(QMainWindow):
        def paintEvent(self, event: QPaintEvent) -> None:
            seen.append(stage.panel.live is None)

    window = Window()
    qtbot.addWidget(window)
    window.setCentralWidget(stage.panel)
    window.show()
    qtbot.waitUntil(lambda: stage.panel.live is not None)
    window.takeCentralWidget()
    assert seen
    assert seen[0]


def test_panel_outlives_its_bridge_without_an_error(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    shiboken6.delete(stage.bridge)
    with qtbot.captureExceptions() as exceptions:
        stage.panel.hide()
    assert exceptions == []
