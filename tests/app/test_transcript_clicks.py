"""Selecting in the transcript by words and paragraphs, and for the middle button."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QClipboard, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from app.widgets.transcript import mouse
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import shown_transcript

LEFT = Qt.MouseButton.LeftButton
TEXT = "Some words in **one** paragraph.\n\nAnother one."


@pytest.fixture
def transcript(qtbot, qapp: QApplication) -> Transcript:
    view = shown_transcript(qtbot)
    view.set_messages([MessageView("a1", False, TEXT)])
    return view


def place(view: Transcript, char: int, box: int = 0) -> QPoint:
    """In the middle of a character."""
    item = view.items[0]
    made = item.sections[0].boxes[box]
    document = made.document
    assert document is not None
    line = document.firstBlock().layout().lineAt(0)
    x, _at = line.cursorToX(char)
    y = item.top + made.y + made.text_y + line.y() + line.height() / 2.0
    left = view.page.box_left(item) + made.text_x
    return QPoint(round(left + x) + 2, round(y) - view.verticalScrollBar().value())


def press_thrice(view: Transcript, point: QPoint) -> None:
    QTest.mouseDClick(view.viewport(), LEFT, pos=point)
    QTest.mousePress(view.viewport(), LEFT, pos=point)


def second_press(widget: QWidget, point: QPoint) -> QMouseEvent:
    """The press of a double click, with no release after it."""
    kind, none = QEvent.Type.MouseButtonDblClick, Qt.KeyboardModifier.NoModifier
    place = point.toPointF()
    return QMouseEvent(kind, place, widget.mapToGlobal(place), LEFT, LEFT, none)


def test_a_drag_after_two_clicks_goes_on_by_words(transcript: Transcript) -> None:
    viewport = transcript.viewport()
    point = place(transcript, 7)
    QTest.mouseClick(viewport, LEFT, pos=point)
    QApplication.sendEvent(viewport, second_press(viewport, point))
    assert transcript.copy_selection() == "words"
    QTest.mouseMove(viewport, place(transcript, 13))
    assert transcript.copy_selection() == "words in"
    QTest.mouseMove(viewport, place(transcript, 1))
    assert transcript.copy_selection() == "Some words"


def test_three_clicks_select_the_paragraph(transcript: Transcript) -> None:
    press_thrice(transcript, place(transcript, 7))
    assert transcript.copy_selection() == "Some words in one paragraph."


def test_a_third_click_elsewhere_or_later_selects_nothing(transcript: Transcript, qtbot) -> None:
    viewport = transcript.viewport()
    QTest.mouseDClick(viewport, LEFT, pos=place(transcript, 7))
    QTest.mousePress(viewport, LEFT, pos=place(transcript, 25))
    assert transcript.copy_selection() == ""
    QTest.mouseRelease(viewport, LEFT, pos=place(transcript, 25))
    QTest.mouseDClick(viewport, LEFT, pos=place(transcript, 7))
    qtbot.wait(QApplication.styleHints().mouseDoubleClickInterval() + 50)
    QTest.mousePress(viewport, LEFT, pos=place(transcript, 7))
    assert transcript.copy_selection() == ""


class FakeClipboard:
    def __init__(self) -> None:
        self.texts: dict[QClipboard.Mode, str] = {}

    def supportsSelection(self) -> bool:
        return True

    def setText(self, text: str, mode: QClipboard.Mode) -> None:
        self.texts[mode] = text


def test_what_is_selected_is_there_for_the_middle_button(
    transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    clipboard = FakeClipboard()
    monkeypatch.setattr(mouse.QGuiApplication, "clipboard", lambda: clipboard)
    QTest.mouseDClick(transcript.viewport(), LEFT, pos=place(transcript, 7))
    QTest.mouseRelease(transcript.viewport(), LEFT, pos=place(transcript, 7))
    assert clipboard.texts == {QClipboard.Mode.Selection: "words"}
    QTest.mouseClick(transcript.viewport(), LEFT, pos=place(transcript, 20))
    assert clipboard.texts == {QClipboard.Mode.Selection: "words"}
