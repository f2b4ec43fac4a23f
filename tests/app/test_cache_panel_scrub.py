"""Going back in the live panel: timeline, steps, back to the present."""

from __future__ import annotations

import math
import re
import time
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.cache_panel.meter import Meter, Pacer
from app.cache_panel.past import Past
from app.cache_panel.pool_model import PoolModel
from tests.helpers.panel_stage import PanelStage, live_of, panel_stage, shown
from tests.helpers.recorded_run import state_of

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


@pytest.fixture
def stage(qtbot: QtBot) -> PanelStage:
    return shown(qtbot, panel_stage(qtbot))


def happen(qtbot: QtBot, stage: PanelStage, tokens: int) -> None:
    """So many tokens of the first conversation, each in a step, seen by the panel."""
    for token in range(tokens):
        assert stage.scripted.append("r1", token)
    stage.deliver()
    model = stage.panel.model
    assert model is not None
    qtbot.waitUntil(lambda: model.last_seq == stage.scripted.log.seq)


def model_of(stage: PanelStage) -> PoolModel:
    model = live_of(stage).view.model
    assert model is not None
    return model


def test_one_step_back_shows_the_pool_before_it(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 3)
    before = state_of(model_of(stage))
    happen(qtbot, stage, 1)
    live = live_of(stage)
    live.time_bar.back_button.click()
    assert live.scrubber.is_past
    assert state_of(model_of(stage)) == before
    live.time_bar.step_button.click()
    assert not live.scrubber.is_past
    assert model_of(stage) is stage.panel.model


def test_the_present_goes_on_unseen_and_comes_back(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 4)
    live = live_of(stage)
    live.time_bar.back_button.click()
    then, told = state_of(model_of(stage)), len(live.view.tape.rows)
    stage.scripted.finish("r3", "finish")
    happen(qtbot, stage, 20)
    assert state_of(model_of(stage)) == then
    assert len(live.view.tape.rows) == told
    live.time_bar.live_button.click()
    assert model_of(stage) is stage.panel.model
    pool = stage.scripted.pool
    model = model_of(stage)
    assert [model.view(b) for b in range(512)] == [pool.view(b) for b in range(512)]


def test_a_click_on_the_timeline_goes_there(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 2)
    there = stage.panel.model
    assert there is not None
    seq = there.last_seq
    history = live_of(stage)._feed.history
    happened_s = history.moments[-1].time_s
    qtbot.waitUntil(lambda: time.monotonic() > happened_s + 1.2)
    happen(qtbot, stage, 30)
    live_of(stage)._show_words()
    timeline = live_of(stage).time_bar.timeline
    newest_s = history.moments[-1].time_s
    # The window of a minute ends with the newest moment.
    share = 1 - (newest_s - happened_s - 0.6) / 60
    qtbot.mouseClick(
        timeline, Qt.MouseButton.LeftButton, pos=QPoint(round(share * timeline.width()), 20)
    )
    assert live_of(stage).scrubber.is_past
    assert model_of(stage).last_seq == seq
    assert "ago" in timeline.words


def test_keys_go_back_on_and_to_the_present(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 5)
    timeline = live_of(stage).time_bar.timeline
    seen = [model_of(stage).step]
    for _ in range(3):
        qtbot.keyClick(timeline, Qt.Key.Key_Left)
        seen.append(model_of(stage).step)
    assert seen == sorted(set(seen), reverse=True)
    qtbot.keyClick(timeline, Qt.Key.Key_Right)
    assert model_of(stage).step == seen[-2]
    assert "used" in timeline.accessibleDescription()
    qtbot.keyClick(timeline, Qt.Key.Key_Home)
    history = live_of(stage)._feed.history
    assert history.first == 0
    assert model_of(stage).last_seq == stage.scripted.log.seq - history.end
    qtbot.keyClick(timeline, Qt.Key.Key_End)
    assert not live_of(stage).scrubber.is_past


def test_the_tape_shows_what_had_happened_until_then(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 3)
    stage.scripted.finish("r2", "finish")
    stage.deliver()
    qtbot.waitUntil(lambda: "r2" not in stage.panel.model.tables)
    live = live_of(stage)
    assert live.view.tape.rows[-1].what == "released"
    live.time_bar.back_button.click()
    assert "r2" in model_of(stage).tables
    assert "released" not in [row.what for row in live.view.tape.rows]
    live.time_bar.live_button.click()
    assert live.view.tape.rows[-1].what == "released"


def test_a_step_of_the_engine_returns_to_the_present(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 4)
    live = live_of(stage)
    live.time_bar.back_button.click()
    assert live.scrubber.is_past
    live.pace.step_button.click()
    assert not live.scrubber.is_past


def test_the_past_that_is_shown_is_not_forgotten(
    qtbot: QtBot, stage: PanelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen(qtbot, stage, 3)
    live = live_of(stage)
    live.time_bar.back_button.click()
    then = model_of(stage).last_seq
    monkeypatch.setattr("app.cache_panel.history.SPAN_S", 0.0)
    for _ in range(3):
        happen(qtbot, stage, 400)
    history = live._feed.history
    assert history.end > 1200
    live.time_bar.step_button.click()
    assert model_of(stage).last_seq > then
    live.time_bar.back_button.click()
    assert model_of(stage).last_seq == then
    live.time_bar.live_button.click()
    happen(qtbot, stage, 20)
    assert history.end - history.first < 600


@pytest.mark.parametrize("max_events", [100, 1000])
def test_the_past_moves_on_in_slices_when_more_happens_than_can_be_kept(
    qtbot: QtBot, stage: PanelStage, monkeypatch: pytest.MonkeyPatch, max_events: int
) -> None:
    budgets: list[float] = []
    seek = Past.seek

    def seek_noting(past: Past, position: int, budget_s: float = math.inf) -> bool:
        budgets.append(budget_s)
        return seek(past, position, budget_s)

    happen(qtbot, stage, 3)
    live = live_of(stage)
    live.time_bar.back_button.click()
    then = model_of(stage).last_seq
    monkeypatch.setattr("app.cache_panel.history.MAX_EVENTS", max_events)
    monkeypatch.setattr(Past, "seek", seek_noting)
    history = live._feed.history
    while history.end < 1600:
        happen(qtbot, stage, 200)
    qtbot.waitUntil(lambda: not live.scrubber._seek_timer.isActive())
    past = live.scrubber._past
    assert past is not None
    assert max(budgets) < 1.0
    assert live.scrubber.is_past
    assert model_of(stage) is past.model
    assert model_of(stage).last_seq > then
    assert history.first <= past.position <= history.end
    # Not only the pool has moved on, but what is painted of it, the events and the time, too.
    assert past.model.take_dirty() == (set(), set())
    assert all(row.last_step == past.model.step for row in list(live.view.tape.rows)[-1:])
    assert f"Step {past.model.step:,} " in live.time_bar.timeline.words
    truth = Past(live.model, history)
    truth.seek(past.position)
    assert state_of(past.model) == state_of(truth.model)
    live.time_bar.live_button.click()
    assert model_of(stage) is live.model


def test_how_long_ago_it_was_counts_a_rest_too(
    qtbot: QtBot, stage: PanelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen(qtbot, stage, 3)
    live = live_of(stage)
    rest_s = 6.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + rest_s)
    monkeypatch.setattr("app.cache_panel.scrubber.time", clock)

    def ago_s() -> float:
        found = re.search(r"([0-9.]+) s ago", live.time_bar.timeline.words)
        assert found is not None
        return float(found[1])

    live.time_bar.back_button.click()
    assert 6.0 <= ago_s() < 30.0
    # It goes on while nothing happens.
    rest_s = 30.0
    qtbot.waitUntil(lambda: ago_s() >= 30.0)
    live.time_bar.live_button.click()
    assert not live.scrubber._tell_timer.isActive()


def test_a_hidden_panel_gives_the_past_up(qtbot: QtBot, stage: PanelStage) -> None:
    happen(qtbot, stage, 3)
    live = live_of(stage)
    live.time_bar.back_button.click()
    stage.panel.hide()
    assert not live.scrubber.is_past
    assert live._feed.history.end == 0
    stage.panel.show()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    assert model_of(stage) is stage.panel.model


def test_refreshes_are_spaced_so_that_they_stay_under_the_share() -> None:
    meter = Meter()
    pacer = Pacer(meter, share=0.01, shortest_ms=100, longest_ms=500)
    for _ in range(40):
        meter.spent_s += 0.0005
        pacer.note_refresh()
    assert pacer.interval_ms == 100
    for _ in range(40):
        meter.spent_s += 0.003
        pacer.note_refresh()
    assert 295 <= pacer.interval_ms <= 300
    for _ in range(40):
        meter.spent_s += 1.0
        pacer.note_refresh()
    assert pacer.interval_ms == 500


def test_the_way_back_looks_of_no_use_in_the_present(qtbot: QtBot, stage: PanelStage) -> None:
    assert stage.panel.live is not None
    button = stage.panel.live.time_bar.live_button
    assert not button.isEnabled()
    idle = button.grab().toImage()
    button.setEnabled(True)
    assert button.grab().toImage() != idle


def test_the_scheduler_shows_the_past_too_while_the_engine_stands_still(
    qtbot: QtBot, stage: PanelStage
) -> None:
    live = live_of(stage)
    live.view.pages.choose(1)
    for computed in (40, 80):
        stage.row_changes = {"r1": {"num_computed_tokens": computed, "phase": "decode"}}
        stage.publish()
        happen(qtbot, stage, 1)
    # Nothing happens any more, and nothing is due.
    qtbot.wait(700)
    lane = live.view.lane
    assert [row.computed for row in lane.model.rows if row.request_id == "r1"] == [80]
    live.time_bar.back_button.click()
    assert [row.computed for row in lane.model.rows if row.request_id == "r1"] == [40]
    live.time_bar.live_button.click()
    assert [row.computed for row in lane.model.rows if row.request_id == "r1"] == [80]
