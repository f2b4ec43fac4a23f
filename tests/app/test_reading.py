"""The actions of reading: find, zoom and copy, by key and from the menu."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.markdown_thoughts import THOUGHT_SECONDS
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.view import Transcript
from app.zoom import NORMAL, STEPS, stepped, zoom_of
from tests.helpers.transcript_stage import light_theme, shown_transcript
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")
CTRL = Qt.KeyboardModifier.ControlModifier


def answered(stage: Stage, qtbot) -> Transcript:
    stage.page.submit("A question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id), timeout=8000)
    stage.window.activateWindow()
    qtbot.waitUntil(stage.window.isActiveWindow)
    return stage.page.transcript


def keys(stage: Stage, action_id: str) -> list[str]:
    return [keys.toString() for keys in stage.window.actions_registry[action_id].shortcuts()]


def wheel(view: Transcript, clicks: int) -> None:
    event = QWheelEvent(
        QPointF(200, 200),
        view.viewport().mapToGlobal(QPointF(200, 200)),
        QPoint(),
        QPoint(0, clicks * 120),
        Qt.MouseButton.NoButton,
        CTRL,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(view.viewport(), event)


# --- find ---


def test_ctrl_f_finds_in_the_conversation_and_ctrl_shift_f_in_all(qtbot) -> None:
    with window_stage(qtbot) as stage:
        assert keys(stage, "find") == ["Ctrl+F"]
        assert keys(stage, "search") == ["Ctrl+Shift+F"]
        view = answered(stage, qtbot)
        QTest.keyClick(stage.window, Qt.Key.Key_F, CTRL)
        bar = view.content.find_bar
        assert bar.isVisible()
        assert bar.edit.hasFocus()


def test_escape_in_the_find_bar_does_not_stop_an_answer(qtbot) -> None:
    with window_stage(qtbot) as stage:
        view = answered(stage, qtbot)
        stopped = []
        stage.window.actions_registry["stop"].triggered.connect(stopped.append)
        stage.page.composer.edit.setFocus()
        stage.window.actions_registry["find"].trigger()
        QTest.keyClick(view.content.find_bar.edit, Qt.Key.Key_Escape)
        assert not view.content.find_bar.isVisible()
        assert stopped == []
        assert stage.page.composer.edit.hasFocus()


# --- zoom ---


def test_steps_go_up_and_down_and_end() -> None:
    assert stepped(1.0, 1) == 1.1
    assert stepped(1.0, -1) == 0.9
    assert stepped(STEPS[-1], 1) == STEPS[-1]
    assert stepped(STEPS[0], -1) == STEPS[0]
    assert stepped(1.05, 1) == 1.1
    assert stepped(1.05, -1) == 1.0


@pytest.mark.parametrize(("text", "zoom"), [("1.25", 1.25), ("", 1.0), ("x", 1.0), ("99", 1.0)])
def test_what_was_kept_of_the_zoom(text: str, zoom: float) -> None:
    assert zoom_of(text) == zoom


def test_zoom_is_for_all_tabs_and_kept(qtbot) -> None:
    with window_stage(qtbot) as stage:
        view = answered(stage, qtbot)
        size = view.page.factory.body_font.pointSizeF()
        stage.window.actions_registry["zoom_in"].trigger()
        stage.window.actions_registry["zoom_in"].trigger()
        assert view.page.factory.body_font.pointSizeF() == pytest.approx(size * 1.25)
        assert stage.session.window_state("zoom") == "1.25"
        stage.window.actions_registry["zoom_reset"].trigger()
        assert view.page.factory.body_font.pointSizeF() == size
        stage.session.set_window_state("zoom", "1.5")
        stage.window.rebuilder.request()
        qtbot.waitUntil(lambda: stage.themes.zoom == 1.5)


def test_ctrl_and_the_wheel_zoom(qtbot) -> None:
    with window_stage(qtbot) as stage:
        view = answered(stage, qtbot)
        wheel(view, 1)
        assert stage.themes.zoom == stepped(NORMAL, 1)
        wheel(view, -1)
        assert stage.themes.zoom == NORMAL


def test_zooming_keeps_what_is_read_at_the_top(qtbot, qapp: QApplication) -> None:
    themes = light_theme()
    view = shown_transcript(qtbot, themes)
    text = "\n\n".join(f"Paragraph {n} " + "with some words " * 12 for n in range(80))
    view.set_messages([MessageView("a1", False, text)])
    view.scroll_by(-3000.0)

    def at_top() -> str:
        found = view.page.box_at(float(view.verticalScrollBar().value() + 4))
        assert found is not None
        return found[1].plain_text()[:14]

    before = at_top()
    for zoom in (1.5, 2.0, 0.8, 1.0):
        themes.set_zoom(zoom)
        assert at_top() == before


# --- copy ---


def test_the_conversation_is_copied_as_markdown(qtbot) -> None:
    with window_stage(qtbot, script=lambda _submit: "**Said.**") as stage:
        answered(stage, qtbot)
        stage.window.actions_registry["copy_conversation"].trigger()
        text = QGuiApplication.clipboard().text()
        assert text.startswith("# ")
        assert "A question" in text
        assert "**Said.**" in text


def test_the_selection_is_copied_as_markdown_by_key(qtbot) -> None:
    with window_stage(qtbot, script=lambda _submit: "**Said.**") as stage:
        view = answered(stage, qtbot)
        view.selection.select_all()
        stage.window.actions_registry["copy_markdown"].trigger()
        assert QGuiApplication.clipboard().text() == "A question\n\n**Said.**"


# --- reasoning ---


def test_how_long_an_answer_thought_is_measured_shown_and_not_copied(qtbot) -> None:
    words = " ".join(["hm"] * 12)
    script = f"<think> {words} </think> \n\nSaid."
    with window_stage(qtbot, script=lambda _submit: script, tokens_per_s=60.0) as stage:
        view = answered(stage, qtbot)
        message = stage.page.last_answer()
        assert message is not None
        assert 0.1 <= float(message.facts[THOUGHT_SECONDS]) < 5.0
        item = view.item(message.message_id)
        assert item is not None
        qtbot.waitUntil(
            lambda: item.thoughts.words(1, item.view.thought_s).startswith("Thought for ")
        )
        stage.window.actions_registry["copy_answer"].trigger()
        assert QGuiApplication.clipboard().text() == "Said."
