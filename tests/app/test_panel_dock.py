"""Where the cache panel is, that it is remembered, and the strip that stands for a closed one."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.widgets.panel_dock import BELOW, OWN_WINDOW, RIGHT
from app.widgets.panel_strip import strip_words
from engine.api.client import QueueClient
from engine.api.commands import SubscribePool
from engine.api.events import EngineStats, EngineStatus, EngineStatusChanged
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints", r"does not support raise")

STATS = EngineStats(
    step=7,
    num_running=2,
    num_waiting=0,
    used_blocks=25,
    cached_blocks=50,
    free_blocks=25,
    shared_blocks=9,
    decode_tokens_per_s=41.2,
    prefill_tokens_per_s=0.0,
    invariant_violations=0,
)


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def trigger(stage: Stage, action_id: str) -> None:
    stage.window.actions_registry[action_id].trigger()


def checked(stage: Stage) -> list[str]:
    actions = stage.window.actions_registry
    return [p for p in (RIGHT, BELOW, OWN_WINDOW) if actions[f"panel_{p}"].isChecked()]


@pytest.mark.parametrize(
    ("place", "area"),
    [
        (BELOW, Qt.DockWidgetArea.BottomDockWidgetArea),
        (RIGHT, Qt.DockWidgetArea.RightDockWidgetArea),
    ],
)
def test_the_panel_is_docked_where_it_was_asked_for(stage: Stage, place, area) -> None:
    trigger(stage, "panel_window")
    trigger(stage, f"panel_{place}")
    assert stage.window.dockWidgetArea(stage.window.panels.dock) == area
    assert stage.window.cache_panel.isVisible()
    assert stage.window.cache_panel.window() is stage.window
    assert not stage.window.panels.own_window.isVisible()
    assert checked(stage) == [place]


@pytest.mark.parametrize("size", [(740, 520), (1000, 600), (1360, 700)])
def test_below_the_transcript_it_fits_into_a_low_window(stage: Stage, qtbot, size) -> None:
    trigger(stage, "panel_below")
    stage.window.resize(*size)
    qtbot.waitUntil(lambda: stage.window.cache_panel.live is not None)
    qtbot.wait(50)
    panel = stage.window.cache_panel
    assert panel.mapTo(stage.window, QPoint(0, panel.height())).y() <= stage.window.height()
    assert stage.window.centralWidget().geometry().bottom() <= stage.window.panels.dock.y()
    trigger(stage, "panel_right")
    assert panel.minimumHeight() == 400


def test_the_panel_gets_a_window_of_its_own(stage: Stage) -> None:
    trigger(stage, "panel_window")
    own = stage.window.panels.own_window
    assert own.isVisible()
    assert stage.window.cache_panel.isVisible()
    assert stage.window.cache_panel.window() is own
    assert not stage.window.panels.dock.isVisible()
    assert checked(stage) == [OWN_WINDOW]


def test_the_key_closes_the_panel_in_its_own_window_too(stage: Stage) -> None:
    trigger(stage, "panel_window")
    own = stage.window.panels.own_window
    keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    QTest.keyClick(own, Qt.Key.Key_P, keys)
    assert not own.isVisible()
    assert not stage.settings.values.cache_panel_visible
    assert stage.window.panels.strip.isVisible()
    trigger(stage, "toggle_cache_panel")
    assert own.isVisible()


def test_closing_its_window_closes_the_panel(stage: Stage, qtbot) -> None:
    trigger(stage, "panel_window")
    # As the desktop's close button does.
    stage.window.panels.own_window.windowHandle().close()
    qtbot.waitUntil(lambda: not stage.settings.values.cache_panel_visible)
    assert stage.window.panels.strip.isVisible()
    assert not stage.window.actions_registry["toggle_cache_panel"].isChecked()


@pytest.mark.parametrize("place", [RIGHT, BELOW, OWN_WINDOW])
def test_place_and_being_open_are_remembered(stage: Stage, place: str) -> None:
    trigger(stage, f"panel_{place}")
    panels = stage.window.panels
    # As the next start finds it, after the window's own state came back.
    panels._put(RIGHT)
    panels.restore()
    assert panels.place == place
    assert stage.window.cache_panel.isVisible()
    trigger(stage, "toggle_cache_panel")
    panels.restore()
    assert panels.place == place
    assert not stage.window.cache_panel.isVisible()


def test_the_panels_window_is_shown_after_its_owner(stage: Stage, qtbot) -> None:
    trigger(stage, "panel_window")
    window, panels = stage.window, stage.window.panels
    panels.own_window.hide()
    window.hide()
    panels.restore()
    assert not panels.own_window.isVisible()
    window.show()
    qtbot.waitUntil(panels.own_window.isVisible)
    assert panels.own_window.windowHandle().transientParent() is window.windowHandle()


def test_the_main_window_takes_the_panels_window_along(qtbot) -> None:
    with window_stage(qtbot) as stage:
        trigger(stage, "panel_window")
        own = stage.window.panels.own_window
        # The end of a session closes all windows, in any order.
        own.close()
        stage.window.close()
        qtbot.wait(0)
        assert not own.isVisible()
        assert stage.settings.values.cache_panel_visible


@pytest.mark.parametrize("key", [None, Qt.Key.Key_Return, Qt.Key.Key_Space])
def test_the_strip_opens_the_panel(stage: Stage, key) -> None:
    strip = stage.window.panels.strip
    assert not strip.isVisible()
    trigger(stage, "toggle_cache_panel")
    assert strip.isVisible()
    if key is None:
        QTest.mouseClick(strip, Qt.MouseButton.LeftButton)
    else:
        QTest.keyClick(strip, key)
    assert stage.window.cache_panel.isVisible()
    assert not strip.isVisible()


def test_the_strip_shows_the_counters_without_a_subscription(stage: Stage, qtbot) -> None:
    trigger(stage, "toggle_cache_panel")
    qtbot.wait(0)
    stage.engine.commands.clear()
    strip = stage.window.panels.strip
    stage.engine.post(STATS)
    qtbot.waitUntil(lambda: "41" in strip.text())
    assert strip.text() == "Pool 25 % used, 50 % cached  ·  9 shared blocks  ·  41 tok/s"
    assert strip.text() in strip.accessibleName()
    assert not [c for c in stage.engine.commands if isinstance(c, SubscribePool)]


def test_the_strip_tells_of_slow_motion_that_was_left_on(stage: Stage, qtbot) -> None:
    trigger(stage, "toggle_cache_panel")
    strip = stage.window.panels.strip
    stage.engine.post(STATS)
    stage.engine.post(EngineStatusChanged(EngineStatus.READY, steps_per_s=5.0))
    qtbot.waitUntil(lambda: strip.text().endswith("41 tok/s  ·  slowed to 5 steps/s"))
    stage.engine.post(EngineStatusChanged(EngineStatus.READY, paused=True))
    qtbot.waitUntil(lambda: strip.text().endswith("9 shared blocks  ·  Engine paused"))
    stage.engine.post(EngineStatusChanged(EngineStatus.READY))
    qtbot.waitUntil(lambda: strip.text().endswith("41 tok/s"))


def test_a_hidden_strip_makes_no_words(stage: Stage, qtbot) -> None:
    strip = stage.window.panels.strip
    stage.engine.post(STATS)
    qtbot.waitUntil(lambda: strip._stats is not None)
    assert strip.text() == ""
    trigger(stage, "toggle_cache_panel")
    assert "9 shared blocks" in strip.text()


def test_words_without_figures() -> None:
    assert strip_words(None, has_model=False) == "No pool yet: no model is loaded."
    assert strip_words(None, has_model=True) == "The pool is empty."


def test_the_panel_stays_in_its_window_when_all_parts_are_made_anew(stage: Stage, qtbot) -> None:
    trigger(stage, "panel_window")
    before = stage.window.panels
    stage.window.rebuilder.request()
    qtbot.waitUntil(lambda: stage.window.panels is not before)
    assert stage.window.panels.place == OWN_WINDOW
    qtbot.waitUntil(stage.window.cache_panel.isVisible)
    assert stage.window.cache_panel.window() is stage.window.panels.own_window


def test_the_tour_ends_when_all_parts_are_made_anew(stage: Stage, qtbot) -> None:
    ended: list[float] = []

    class Quiet(QueueClient):
        def __init__(self) -> None:
            super().__init__()
            self.attach(lambda: None, lambda timeout_s: not ended.append(timeout_s))

    stage.window.panel_tools._tour_engine = Quiet
    stage.window.actions_registry["guided_tour"].trigger()
    before = stage.window.panel_tools
    stage.window.rebuilder.request()
    qtbot.waitUntil(lambda: stage.window.panel_tools is not before)
    assert ended
    assert stage.window.panel_tools.tour is None
