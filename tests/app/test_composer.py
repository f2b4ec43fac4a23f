"""The composer: Enter, input methods, large pastes, Stop."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QFontMetricsF, QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.theme import ThemeManager
from app.widgets.composer import LARGE_PASTE, MAX_LINES, Composer

# The offscreen platform says so when a window of its own has a smallest size.
pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

ENTER = Qt.Key.Key_Return
SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def composer(qtbot) -> Composer:
    themes = ThemeManager("light")
    themes.apply()
    widget = Composer(themes)
    qtbot.addWidget(widget)
    widget.resize(600, 120)
    widget.show()
    qtbot.waitExposed(widget)
    widget.edit.setFocus()
    return widget


def preedit(composer: Composer, text: str, commit: str = "") -> None:
    event = QInputMethodEvent(text, [])
    event.setCommitString(commit)
    QApplication.sendEvent(composer.edit, event)


def paste(composer: Composer, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    composer.edit.insertFromMimeData(data)


def test_enter_sends_and_keeps_the_text(composer: Composer, qtbot) -> None:
    QTest.keyClicks(composer.edit, "Hello there")
    with qtbot.waitSignal(composer.submitted) as sent:
        QTest.keyClick(composer.edit, ENTER)
    assert sent.args == ["Hello there"]
    assert composer.text() == "Hello there"


def test_shift_enter_breaks_the_line(composer: Composer, qtbot) -> None:
    with qtbot.assertNotEmitted(composer.submitted):
        QTest.keyClicks(composer.edit, "a")
        QTest.keyClick(composer.edit, ENTER, SHIFT)
        QTest.keyClicks(composer.edit, "b")
    assert composer.text() == "a\nb"


def test_keypad_enter_sends_too(composer: Composer, qtbot) -> None:
    QTest.keyClicks(composer.edit, "a")
    with qtbot.waitSignal(composer.submitted):
        QTest.keyClick(composer.edit, Qt.Key.Key_Enter)


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_nothing_is_not_sent(composer: Composer, qtbot, text: str) -> None:
    composer.set_text(text)
    with qtbot.assertNotEmitted(composer.submitted):
        QTest.keyClick(composer.edit, ENTER)
    assert not composer.send_button.isEnabled()


def test_enter_while_composing_does_not_send(composer: Composer, qtbot) -> None:
    composer.set_text("typed before")
    preedit(composer, "nihao")
    assert composer.edit.is_composing
    with qtbot.assertNotEmitted(composer.submitted):
        QTest.keyClick(composer.edit, ENTER)
        composer.submit()


def test_enter_after_committing_sends(composer: Composer, qtbot) -> None:
    preedit(composer, "nihao")
    preedit(composer, "", commit="你好")
    assert not composer.edit.is_composing
    with qtbot.waitSignal(composer.submitted) as sent:
        QTest.keyClick(composer.edit, ENTER)
    assert sent.args == ["你好"]


def test_while_busy_enter_does_nothing_and_the_button_stops(composer: Composer, qtbot) -> None:
    composer.set_text("next question")
    composer.set_busy(True)
    with qtbot.assertNotEmitted(composer.submitted):
        QTest.keyClick(composer.edit, ENTER)
    assert composer.send_button.accessibleName() == "Stop"
    with qtbot.waitSignal(composer.stop_requested):
        QTest.mouseClick(composer.send_button, Qt.MouseButton.LeftButton)
    composer.set_busy(False)
    assert composer.text() == "next question"
    assert composer.send_button.accessibleName() == "Send"


def test_it_grows_to_eight_lines(composer: Composer, qtbot) -> None:
    heights = []
    for lines in range(1, MAX_LINES + 5):
        composer.set_text("\n".join("x" for _ in range(lines)))
        qtbot.wait(1)
        heights.append(composer.edit.height())
    assert heights[0] < heights[1] < heights[MAX_LINES - 1]
    assert heights[MAX_LINES - 1] == heights[-1]


@pytest.mark.parametrize("line", ["x", "写一首诗", "x 诗"])
def test_eight_lines_are_seen_whole_in_any_letters(composer: Composer, line: str, qtbot) -> None:
    edit = composer.edit
    for lines in (1, 2, MAX_LINES):
        composer.set_text("\n".join([line] * lines))
        assert edit.verticalScrollBar().maximum() == 0
    tallest = edit.document().firstBlock().layout().lineAt(0).height()
    composer.set_text("\n".join([line] * 300))
    qtbot.waitUntil(lambda: edit.verticalScrollBar().maximum() > 0)
    assert edit.viewport().height() >= MAX_LINES * tallest
    assert edit.viewport().height() < (MAX_LINES + 1) * tallest


def test_it_grows_when_a_line_gets_a_taller_letter(composer: Composer) -> None:
    # The widest line stays as it is: the document says nothing of another size.
    composer.set_text("a long line of words\nx")
    before = composer.edit.height()
    composer.edit.insertPlainText("诗")
    line = composer.edit.document().lastBlock().layout().lineAt(0)
    assert composer.edit.verticalScrollBar().maximum() == 0
    if line.height() > QFontMetricsF(composer.edit.font()).height() + 1.0:
        assert composer.edit.height() > before


def test_wrapped_lines_count(composer: Composer, qtbot) -> None:
    composer.set_text("word " * 100)
    qtbot.wait(1)
    assert composer.edit.height() > 3 * composer.edit.fontMetrics().lineSpacing()


def test_a_large_paste_becomes_an_attachment(composer: Composer, qtbot) -> None:
    large = "x" * (LARGE_PASTE + 1)
    paste(composer, large)
    QTest.keyClicks(composer.edit, "what is this?")
    assert composer.edit.toPlainText() == "what is this?"
    assert composer.attachments.texts == [large]
    with qtbot.waitSignal(composer.submitted) as sent:
        QTest.keyClick(composer.edit, ENTER)
    assert sent.args == [f"{large}\n\nwhat is this?"]


@pytest.mark.parametrize(("text", "is_chip"), [("ab" * 10_000, True), ("ab " * 10_000, False)])
def test_a_paste_that_has_no_places_to_break_becomes_an_attachment(
    composer: Composer, text: str, is_chip: bool
) -> None:
    paste(composer, text)
    assert bool(composer.attachments.items) is is_chip


def test_a_small_paste_is_inserted_as_plain_text(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold")
    composer.edit.insertFromMimeData(data)
    assert composer.text() == "bold"


def test_an_attachment_can_be_removed(composer: Composer) -> None:
    paste(composer, "x" * (LARGE_PASTE + 1))
    chip = composer.attachments._chips[0].frame
    button = chip.findChildren(type(composer.send_button))[-1]
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert composer.attachments.texts == []
    assert not composer.attachments.isVisible()


def test_a_large_text_comes_back_as_an_attachment(composer: Composer) -> None:
    large = "y" * (LARGE_PASTE + 1)
    composer.set_text(large)
    assert composer.edit.toPlainText() == ""
    assert composer.text() == large
    composer.clear()
    assert composer.text() == ""


def test_each_change_tells_the_draft(composer: Composer, qtbot) -> None:
    drafts: list[str] = []
    composer.draft_changed.connect(drafts.append)
    QTest.keyClicks(composer.edit, "ab")
    assert drafts == ["a", "ab"]
