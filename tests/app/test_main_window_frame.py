"""The whole window around its tabs: panel, side bar, theme, dialogs, notices, status strip."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from app.widgets.dialogs import confirm_link
from tests.helpers.window_stage import Stage, send, wait_idle, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def test_first_painted_comes_once(qtbot) -> None:
    with window_stage(qtbot, load=False) as stage:
        qtbot.waitUntil(lambda: stage.window._was_painted)
        times: list[int] = []
        stage.window.first_painted.connect(lambda: times.append(1))
        stage.window.repaint()
        qtbot.wait(20)
        assert times == []


def test_panel_and_side_bar_are_toggled(stage: Stage) -> None:
    window = stage.window
    assert window.cache_panel.isVisible()
    assert window.panels.dock.width() >= 360
    QTest.keyClick(window, Qt.Key.Key_P, CONTROL | SHIFT)
    assert not window.cache_panel.isVisible()
    assert not stage.settings.values.cache_panel_visible
    assert not window.actions_registry["toggle_cache_panel"].isChecked()
    QTest.keyClick(window, Qt.Key.Key_B, CONTROL)
    assert not window.side_bar.isVisible()
    QTest.keyClick(window, Qt.Key.Key_P, CONTROL | SHIFT)
    QTest.keyClick(window, Qt.Key.Key_B, CONTROL)
    assert window.cache_panel.isVisible()
    assert window.side_bar.isVisible()


def test_a_narrow_window_hides_the_side_bar_by_itself(stage: Stage, qtbot) -> None:
    stage.window.resize(820, 700)
    qtbot.waitUntil(lambda: not stage.window.side_bar.isVisible())
    assert stage.window.tab_area.width() >= 360
    stage.window.resize(1300, 820)
    qtbot.waitUntil(stage.window.side_bar.isVisible)


def test_theme_is_switched_and_kept(stage: Stage) -> None:
    stage.window.actions_registry["theme_dark"].trigger()
    assert stage.themes.theme.dark
    assert stage.settings.values.theme == "dark"
    QTest.keyClick(stage.window, Qt.Key.Key_D, CONTROL | SHIFT)
    assert not stage.themes.theme.dark
    assert stage.window.actions_registry["theme_light"].isChecked()


def test_the_composer_has_the_focus_and_ctrl_l_brings_it_back(stage: Stage) -> None:
    stage.window.activateWindow()
    stage.window.side_bar.search.setFocus()
    QTest.keyClick(stage.window, Qt.Key.Key_L, CONTROL)
    assert QApplication.focusWidget() is stage.page.composer.edit


def test_the_last_answer_is_copied_as_markdown(stage: Stage, qtbot) -> None:
    stage.engine.script = lambda _submit: "Some **bold** text."
    send(stage, "Question")
    wait_idle(stage, qtbot)
    QTest.keyClick(stage.window, Qt.Key.Key_C, CONTROL | SHIFT)
    assert QGuiApplication.clipboard().text() == "Some **bold** text."


def test_a_notice_is_shown_once_and_can_be_dismissed(stage: Stage) -> None:
    for _ in range(2):
        stage.session.report("disk_full", "The disk is full.", "Free some space.")
    bars = stage.window.tab_area.notices.bars
    assert [bar.label.text() for bar in bars] == ["The disk is full. Free some space."]
    QTest.mouseClick(bars[0].close_button, LEFT)
    assert not stage.window.tab_area.notices.isVisible()


def test_that_an_answer_still_comes_is_said_only_while_it_does(stage: Stage, qtbot) -> None:
    stage.engine.script = lambda _submit: "word " * 200
    send(stage, "Question")
    conversation_id = stage.page.conversation_id
    assert not stage.session.send(conversation_id, "Another")
    assert [bar.notice.error.code for bar in stage.page.notices.bars] == ["answer_running"]
    stage.session.stop(conversation_id)
    wait_idle(stage, qtbot)
    assert not stage.page.notices.bars


def test_a_link_is_opened_only_after_a_question(stage: Stage) -> None:
    box = confirm_link("https://example.org/path", stage.window)
    assert isinstance(box, QMessageBox)
    assert "example.org" in box.text()
    assert box.textFormat() is Qt.TextFormat.PlainText
    assert box.defaultButton().text() == box.button(QMessageBox.StandardButton.Cancel).text()
    box.close()
    assert confirm_link("javascript:alert(1)", stage.window) is None


def test_the_real_host_of_a_look_alike_is_shown(stage: Stage) -> None:
    box = confirm_link("https://ex\u0430mple.org/", stage.window)
    assert box is not None
    assert "xn--" in box.text()
    box.close()


def test_the_status_strip_tells_model_and_pool(stage: Stage, qtbot) -> None:
    strip = stage.window.status_strip
    assert strip.model.text().startswith("Scripted · cpu")
    send(stage, "Question")
    wait_idle(stage, qtbot)
    assert "free" in strip.pool.text()
