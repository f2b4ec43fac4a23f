"""Pause, step, rate and record above the live pool: what is sent, shown and reached by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QFileDialog
from pytestqt.qtbot import QtBot

from app.cache_panel.pace_bar import PaceBar
from app.cache_panel.panel import CachePanel
from app.i18n import Language
from engine.api.commands import PauseEngine, ResumeEngine, SetRate, StepEngine
from engine.api.events import EngineStatus, EngineStatusChanged
from engine.api.trace import read_trace
from tests.helpers.panel_stage import PanelStage, panel_stage, shown
from tests.helpers.scripted_pool import four_conversations

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


@pytest.fixture
def stage(qtbot: QtBot) -> PanelStage:
    stage = shown(qtbot, panel_stage(qtbot))
    stage.commands.clear()
    return stage


def pace_of(stage: PanelStage) -> PaceBar:
    assert stage.panel.live is not None
    return stage.panel.live.pace


def tell(qtbot: QtBot, stage: PanelStage, paused: bool, rate: float | None) -> None:
    stage.client.post(EngineStatusChanged(EngineStatus.READY, paused, rate))
    pace = pace_of(stage)
    qtbot.waitUntil(lambda: (pace.is_paused, pace.steps_per_s) == (paused, rate))


def test_pause_and_go_on_follow_what_the_engine_tells(qtbot: QtBot, stage: PanelStage) -> None:
    pace = pace_of(stage)
    pace.pause_button.click()
    assert [type(c) for c in stage.commands] == [PauseEngine]
    assert not pace.is_paused
    tell(qtbot, stage, True, None)
    assert pace.state_label.text() == "Paused"
    assert pace.pause_button.accessibleName() == "Let the engine go on"
    pace.pause_button.click()
    assert isinstance(stage.commands[-1], ResumeEngine)
    tell(qtbot, stage, False, None)
    assert pace.pause_button.accessibleName() == "Pause the engine"


def test_one_step_pauses_a_running_engine_first(qtbot: QtBot, stage: PanelStage) -> None:
    pace = pace_of(stage)
    pace.step_button.click()
    assert stage.commands == [PauseEngine(), StepEngine(1)]
    tell(qtbot, stage, True, None)
    pace.step_button.click()
    assert stage.commands[2:] == [StepEngine(1)]


def test_each_rate_is_sent_and_shown(qtbot: QtBot, stage: PanelStage) -> None:
    pace = pace_of(stage)
    for index in range(pace.rate_box.count()):
        pace.rate_box.activated.emit(index)
    sent = [c.steps_per_s for c in stage.commands if isinstance(c, SetRate)]
    assert sent == [None, 30.0, 10.0, 5.0, 2.0, 1.0, 0.5]
    tell(qtbot, stage, False, 5.0)
    assert pace.rate_box.currentText() == "5 steps/s"
    tell(qtbot, stage, False, 7.5)
    assert pace.rate_box.currentText() == "7.5 steps/s"
    tell(qtbot, stage, False, None)
    assert pace.rate_box.currentText() == "Full speed"


def test_everything_is_reached_by_tab_and_has_a_name(qtbot: QtBot, stage: PanelStage) -> None:
    pace = pace_of(stage)
    stage.panel.activateWindow()
    pace.pause_button.setFocus()
    seen = []
    for _ in range(4):
        widget = stage.panel.focusWidget()
        seen.append(widget)
        interface = QAccessible.queryAccessibleInterface(widget)
        assert interface.text(QAccessible.Text.Name)
        qtbot.keyClick(widget, Qt.Key.Key_Tab)
    assert seen == [pace.pause_button, pace.step_button, pace.rate_box, pace.record_button]


def test_space_presses_and_arrows_choose(qtbot: QtBot, stage: PanelStage) -> None:
    pace = pace_of(stage)
    qtbot.keyClick(pace.pause_button, Qt.Key.Key_Space)
    qtbot.keyClick(pace.rate_box, Qt.Key.Key_Down)
    assert stage.commands == [PauseEngine(), SetRate(30.0)]


def test_record_asks_for_a_file_and_stops_on_the_second_press(
    qtbot: QtBot, stage: PanelStage, tmp_path
) -> None:
    pace = pace_of(stage)
    pace.record_button.click()
    dialog = pace.findChild(QFileDialog)
    assert dialog is not None
    assert dialog.defaultSuffix() == "ndjson"
    dialog.fileSelected.emit(str(tmp_path / "a.ndjson"))
    dialog.close()
    assert pace.record_button.accessibleName() == "Stop recording"
    assert "a.ndjson" in pace.note.text()
    pace.record_button.click()
    assert pace.record_button.accessibleName() == "Record to a file"
    assert "0 events recorded" in pace.note.text()
    assert (tmp_path / "a.ndjson").stat().st_size > 100


def test_chinese_names(qtbot: QtBot) -> None:
    language = Language("zh_CN")
    language.install()
    try:
        stage = PanelStage(four_conversations())
        qtbot.addWidget(stage.panel)
        stage.panel.show()
        qtbot.waitUntil(lambda: stage.panel.live is not None)
        pace = pace_of(stage)
        names = [b.accessibleName() for b in pace.findChildren(QAbstractButton)]
        names += [pace.rate_box.itemText(i) for i in range(pace.rate_box.count())]
        boxes = [b.accessibleName() for b in pace.findChildren(QComboBox)]
        assert all(name and not name.isascii() for name in [*names, *boxes])
    finally:
        language.remove()


def test_a_new_panel_knows_that_the_engine_is_paused_and_slowed_down(
    qtbot: QtBot, stage: PanelStage
) -> None:
    tell(qtbot, stage, True, 5.0)
    second = CachePanel(stage.bridge, stage.session, stage.theme)  # type: ignore[arg-type]
    qtbot.addWidget(second)
    second.show()
    qtbot.waitUntil(lambda: second.live is not None)
    assert second.live is not None
    pace = second.live.pace
    assert pace.is_paused
    assert pace.state_label.text() == "Paused"
    assert pace.rate_box.currentText() == "5 steps/s"
    pace.pause_button.click()
    assert isinstance(stage.commands[-1], ResumeEngine)
    second.hide()


def test_a_recording_goes_on_in_the_panel_that_takes_the_place(
    qtbot: QtBot, stage: PanelStage, tmp_path: Path
) -> None:
    path = tmp_path / "cache.ndjson"
    pace_of(stage).record_to(str(path))
    stage.scripted.append("r1", 5)
    stage.deliver()
    qtbot.wait(50)
    second = CachePanel(stage.bridge, stage.session, stage.theme)  # type: ignore[arg-type]
    qtbot.addWidget(second)
    second.take_over(stage.panel.hand_over())
    stage.panel.hide()
    assert stage.panel.live is not None
    stage.panel.live.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    stage.scripted.append("r1", 6)
    stage.deliver()
    qtbot.wait(50)
    second.show()
    qtbot.waitUntil(lambda: second.live is not None)
    assert second.live is not None
    recorder = second.live.recorder
    assert recorder.is_recording
    assert second.live.pace.record_button.accessibleName() == "Stop recording"
    assert second.live.pace.note.text() == "Recording to cache.ndjson"
    second.live.pace.record_button.click()
    assert not recorder.is_recording
    assert recorder.trouble == ""
    _, events = read_trace(path)
    assert [event.seq for event in events][-1] == stage.scripted.log.seq
    second.hide()


def test_the_rate_can_be_read_while_the_engine_is_paused(qtbot: QtBot, stage: PanelStage) -> None:
    pace = pace_of(stage)
    before = pace.rate_box.width()
    tell(qtbot, stage, True, None)
    qtbot.waitUntil(pace.state_label.isVisible)
    qtbot.wait(20)
    assert pace.rate_box.width() == before
    assert pace.state_label.width() >= pace.state_label.sizeHint().width()
    tell(qtbot, stage, False, None)
    assert not pace.state_label.isVisible()
