"""The pool of a model that is to go: shown no longer, whatever the engine still tells of it."""

from __future__ import annotations

import math

import pytest
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.cache_panel import metrics
from app.session_state import ModelState, ModelStatus
from app.theme import ThemeManager
from app.widgets.panel_strip import PanelStrip
from app.widgets.status_strip import StatusStrip
from engine.api.events import BlockEvents, EngineStats, EngineStatus, EngineStatusChanged
from tests.helpers.panel_stage import PanelStage, live_of, panel_stage, shown
from tests.helpers.scripted_pool import ScriptedPool

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

STATS = EngineStats(9, 4, 0, 60, 0, 452, 12, 40.0, 900.0, 0)


def turn(stage: PanelStage, status: ModelStatus) -> None:
    stage.session.model_state = ModelState(status)
    stage.session.model_state_changed.emit()


def tell_events(qtbot: QtBot, stage: PanelStage) -> None:
    """A newer snapshot and the events before it, as the engine sends them while answers run."""
    for token in range(20):
        assert stage.scripted.append("r1", token)
    stage.publish()
    with qtbot.waitSignal(stage.bridge.block_events_received):
        stage.deliver()


def test_events_of_a_pool_that_goes_do_not_bring_it_back(qtbot: QtBot) -> None:
    stage = shown(qtbot, panel_stage(qtbot))
    live = live_of(stage)
    turn(stage, ModelStatus.NO_MODEL)
    tell_events(qtbot, stage)
    live.refresh()
    assert stage.panel.model is None
    assert live.view.model is None
    assert not live.pace.record_button.isEnabled()
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    assert math.isnan(live.metrics.metrics.latest(metrics.USED))


def test_next_pool_is_shown_though_its_snapshot_came_before_word_of_its_model(
    qtbot: QtBot,
) -> None:
    stage = shown(qtbot, panel_stage(qtbot))
    turn(stage, ModelStatus.LOADING)
    tell_events(qtbot, stage)
    stage.scripted = ScriptedPool(64)
    stage.publish()
    with qtbot.waitSignal(stage.bridge.block_events_received):
        stage.client.post(BlockEvents(()))
    live_of(stage).refresh()
    assert stage.panel.model is None
    turn(stage, ModelStatus.READY)
    # The engine is idle: nothing more comes.
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    assert stage.panel.model is not None
    assert stage.panel.model.num_blocks == 64
    assert stage.scripted.admit("r1", "c1", range(20))
    stage.deliver()
    qtbot.waitUntil(lambda: "r1" in stage.panel.model.tables)
    assert live_of(stage).restarts == 0
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    assert live_of(stage).metrics.metrics.latest(metrics.USED) == 60


def status_strip(qtbot: QtBot, stage: PanelStage) -> StatusStrip:
    """One that has heard of the pool."""
    strip = StatusStrip(stage.session, stage.bridge)  # type: ignore[arg-type]
    qtbot.addWidget(strip)
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    return strip


def test_status_strip_does_not_tell_of_a_pool_that_goes(qtbot: QtBot) -> None:
    stage = panel_stage(qtbot)
    strip = status_strip(qtbot, stage)
    assert "60" in strip.pool.text()
    turn(stage, ModelStatus.NO_MODEL)
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    assert strip.pool.text() == ""
    assert strip.speed.text() == ""
    # Nor one that is made anew meanwhile, as at a change of language.
    second = StatusStrip(stage.session, stage.bridge)  # type: ignore[arg-type]
    qtbot.addWidget(second)
    assert second.pool.text() == ""
    turn(stage, ModelStatus.READY)
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    assert "60" in strip.pool.text()


def test_strip_of_a_closed_panel_does_not_tell_of_a_pool_that_goes(qtbot: QtBot) -> None:
    stage = panel_stage(qtbot)
    themes = ThemeManager("light")
    strip = PanelStrip(stage.session, stage.bridge, themes)  # type: ignore[arg-type]
    qtbot.addWidget(strip)
    strip.show()
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)

    def begin_of_bar(shown: PanelStrip) -> QColor:
        return shown.grab().toImage().pixelColor(16, shown.height() // 2)

    used, empty = themes.theme.color("accent"), themes.theme.color("raised")
    assert begin_of_bar(strip) == used
    turn(stage, ModelStatus.NO_MODEL)
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    assert begin_of_bar(strip) == empty
    second = PanelStrip(stage.session, stage.bridge, themes)  # type: ignore[arg-type]
    qtbot.addWidget(second)
    second.show()
    assert begin_of_bar(second) == empty


def test_a_paused_engine_has_no_speed(qtbot: QtBot) -> None:
    stage = panel_stage(qtbot)
    strip = status_strip(qtbot, stage)
    assert strip.speed.text() == "40 tok/s"
    for paused, said in ((True, ""), (False, "40 tok/s"), (True, "")):
        with qtbot.waitSignal(stage.bridge.status_changed):
            stage.client.post(EngineStatusChanged(EngineStatus.READY, paused=paused))
        assert strip.speed.text() == said
    # What a single step tells of a rate is no speed of an engine that stands still.
    with qtbot.waitSignal(stage.bridge.stats_changed):
        stage.client.post(STATS)
    assert strip.speed.text() == ""
    second = StatusStrip(stage.session, stage.bridge)  # type: ignore[arg-type]
    qtbot.addWidget(second)
    assert second.speed.text() == ""
