"""The transcript for those who do not see it or do not use a mouse."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.theme import ThemeManager
from app.widgets.transcript import access
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import (
    answer,
    light_theme,
    question,
    refresh,
    shown_transcript,
)

MANY = "\n\n".join(f"Paragraph {n} with some words in it." for n in range(60))
ROLE, TEXT = QAccessible.Role, QAccessible.Text


@pytest.fixture
def transcript(qtbot, qapp) -> Transcript:
    themes = ThemeManager("light")
    themes.apply()
    view = shown_transcript(qtbot, themes)
    view.set_messages(
        [
            question(1, "What is *paging*?"),
            answer(1, "Some **bold** text and `code`:\n\n1. one\n2. $x_1$", footer="3 tokens"),
            question(2),
            answer(2, MANY, True),
        ]
    )
    return view


def interface(view: Transcript):
    return QAccessible.queryAccessibleInterface(view)


def test_an_error_in_making_the_interface_is_told_and_leaves_qt_in_order(
    qtbot, transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_view: Transcript) -> access.TranscriptAccess:
        raise ValueError("no interface")

    with monkeypatch.context() as patch, qtbot.captureExceptions() as told:
        patch.setattr(access, "TranscriptAccess", fail)
        other = Transcript(light_theme())
        qtbot.addWidget(other)
        interface(other)
    assert {str(error) for _kind, error, _trace in told} == {"no interface"}


def focus(view: Transcript) -> None:
    view.setFocus(Qt.FocusReason.TabFocusReason)
    assert QApplication.focusWidget() is view


def test_each_message_is_a_child_with_who_says_what(transcript: Transcript) -> None:
    found = interface(transcript)
    assert found.role() == ROLE.List
    assert found.text(TEXT.Name) == "Transcript"
    assert found.childCount() == 4
    first, second = found.child(0), found.child(1)
    assert {first.role(), second.role()} == {ROLE.ListItem}
    assert first.text(TEXT.Name) == "You: What is *paging*?"
    assert second.text(TEXT.Name) == "Answer: Some bold text and code:\n1. one\n2. $x_1$"
    assert second.text(TEXT.Description) == "Message 2 of 4 · 3 tokens"
    assert found.child(4) is None
    assert second.parent() is not None
    assert found.indexOfChild(second) == 1


def test_a_long_answer_is_named_by_its_beginning_and_valued_whole(transcript: Transcript) -> None:
    text = "\n\n".join(f"Paragraph {n} with some words in it." for n in range(400))
    transcript.update_message(answer(2, text))
    last = interface(transcript).child(3)
    assert len(last.text(TEXT.Name)) < 4_100
    assert last.text(TEXT.Value).splitlines() == text.split("\n\n")


def test_a_table_from_right_to_left_is_spoken_from_its_first_column(
    transcript: Transcript,
) -> None:
    table = "| אחת | שתיים |\n|---|---|\n| א $z$ | API |"
    transcript.set_messages([question(1), answer(1, table)])
    said = interface(transcript).child(1).text(TEXT.Value)
    assert said.split("\n") == ["אחת", "שתיים", "א $z$", "API"]


def test_children_are_where_they_are_painted(transcript: Transcript) -> None:
    transcript.scroll_by(-100_000)
    found = interface(transcript)
    rect = found.child(0).rect()
    top = transcript.viewport().mapToGlobal(QPoint(0, 0)).y()
    assert rect.top() - top == round(transcript.items[0].top)
    middle = rect.center()
    hit = found.childAt(middle.x(), middle.y())
    assert hit.text(TEXT.Name) == found.child(0).text(TEXT.Name)
    assert found.childAt(-10_000, -10_000) is None


def test_states_tell_what_is_in_sight_and_what_still_grows(transcript: Transcript) -> None:
    found = interface(transcript)
    assert found.child(0).state().offscreen
    assert not found.child(3).state().offscreen
    assert found.child(3).state().busy
    transcript.update_message(answer(2, transcript.items[3].text))
    assert not found.child(3).state().busy


def test_a_removed_message_is_no_longer_valid(transcript: Transcript) -> None:
    last = interface(transcript).child(3)
    transcript.remove_message("a2")
    assert not last.isValid()
    assert last.text(TEXT.Name) == ""
    assert interface(transcript).childCount() == 3


def test_arrow_keys_go_through_a_long_message_and_on_to_the_next(transcript: Transcript) -> None:
    focus(transcript)
    QTest.keyClick(transcript, Qt.Key.Key_Home)
    assert transcript.keys.current is transcript.items[0]
    seen = []
    for _ in range(200):
        QTest.keyClick(transcript, Qt.Key.Key_Down)
        item = transcript.keys.current
        assert item.top < transcript.verticalScrollBar().value() + transcript.viewport().height()
        if item.index not in seen:
            seen.append(item.index)
        bar = transcript.verticalScrollBar()
        if bar.value() == bar.maximum():
            break
    assert seen == [1, 2, 3]
    assert transcript.follows
    for _ in range(200):
        QTest.keyClick(transcript, Qt.Key.Key_Up)
        if transcript.verticalScrollBar().value() == 0:
            break
    assert transcript.verticalScrollBar().value() == 0
    QTest.keyClick(transcript, Qt.Key.Key_End)
    assert transcript.keys.current is transcript.items[3]
    assert transcript.follows


def test_the_message_reached_by_keyboard_has_the_focus_and_a_ring(transcript: Transcript) -> None:
    focus(transcript)
    QTest.keyClick(transcript, Qt.Key.Key_Home)
    found = interface(transcript)
    assert found.focusChild().text(TEXT.Name).startswith("You: What is")
    assert found.child(0).state().focused
    ringed = transcript.viewport().grab().toImage()
    QTest.mouseClick(transcript.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(5, 5))
    assert transcript.keys.current is None
    assert found.focusChild() is None
    assert transcript.viewport().grab().toImage() != ringed


def test_a_screen_reader_hears_of_the_message_reached_and_of_a_finished_answer(
    transcript: Transcript, monkeypatch
) -> None:
    told = []

    class Reader:
        Event, Role, Text, State = (
            QAccessible.Event,
            QAccessible.Role,
            QAccessible.Text,
            QAccessible.State,
        )

        @staticmethod
        def isActive() -> bool:
            return True

        @staticmethod
        def updateAccessibility(event) -> None:
            message = event.message() if hasattr(event, "message") else ""
            told.append((event.type(), event.child(), message))

    monkeypatch.setattr(access, "QAccessible", Reader)
    focus(transcript)
    QTest.keyClick(transcript, Qt.Key.Key_Home)
    assert told[-1][:2] == (QAccessible.Event.Focus, 0)
    transcript.append_text("a2", "\n\nThe end.")
    assert told[-1][0] == QAccessible.Event.Focus
    refresh(transcript)
    transcript.update_message(answer(2, transcript.items[3].text))
    kind, _child, message = told[-1]
    assert kind == QAccessible.Event.Announcement
    assert message.startswith("Answer: Paragraph 0 with")


def test_right_to_left_paragraphs_begin_at_the_right(transcript: Transcript) -> None:
    transcript.set_messages(
        [
            question(1, "مرحبا بكم"),
            answer(1, "هذا نص عربي مع `code` و **خط عريض**.\n\nEnglish again.\n\n- بند أول"),
        ]
    )
    boxes = transcript.items[1].boxes
    arabic, english, item = (box.document for box in boxes)
    assert arabic.firstBlock().textDirection() == Qt.LayoutDirection.RightToLeft
    assert english.firstBlock().textDirection() == Qt.LayoutDirection.LeftToRight
    assert item.firstBlock().textDirection() == Qt.LayoutDirection.RightToLeft
    line = arabic.firstBlock().layout().lineAt(0)
    assert line.naturalTextRect().right() > boxes[0].text_width - 2
    english_line = english.firstBlock().layout().lineAt(0)
    assert english_line.naturalTextRect().left() < 2


def test_each_line_of_a_question_has_a_direction_of_its_own(transcript: Transcript) -> None:
    transcript.set_messages([question(1, "שלום\n\n| 1 | a |\nעולם")])
    (box,) = transcript.items[0].boxes
    block = box.document.begin()
    found = []
    while block.isValid():
        found.append((block.text(), block.textDirection()))
        block = block.next()
    left, right = Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft
    assert found == [("שלום", right), ("", left), ("| 1 | a |", left), ("עולם", right)]
    last = box.document.lastBlock().layout().lineAt(0).naturalTextRect()
    assert last.right() == pytest.approx(box.document.textWidth(), abs=2.0)


def test_a_right_to_left_question_lies_within_its_bubble(transcript: Transcript) -> None:
    transcript.set_messages([question(1, "مرحبا بكم")])
    item = transcript.items[0]
    line = item.boxes[0].document.firstBlock().layout().lineAt(0)
    left = transcript.page.box_left(item) + line.naturalTextRect().left()
    right = transcript.page.box_left(item) + line.naturalTextRect().right()
    edge = transcript.page.left + transcript.page.column
    assert edge - item.bubble_width < left < right < edge


def test_markers_of_right_to_left_items_stand_at_their_right(transcript: Transcript) -> None:
    transcript.set_messages([answer(1, "- بند أول\n- English")])
    image = transcript.viewport().grab().toImage()
    page, item = transcript.page, transcript.items[0]
    y0 = -transcript.verticalScrollBar().value()

    def has_ink(box, left: float) -> bool:
        columns = range(round(page.left + left), round(page.left + left) + 18)
        top = round(item.top + box.y) + y0
        paper = image.pixelColor(2, 2)
        rows = range(top, top + round(box.height))
        return any(image.pixelColor(x, y) != paper for x in columns for y in rows)

    arabic, english = item.boxes
    assert has_ink(arabic, page.column - 20)
    assert not has_ink(arabic, 2)
    assert has_ink(english, 2)
    assert not has_ink(english, page.column - 20)
