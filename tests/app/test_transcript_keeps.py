"""Nothing but the user moves what is read, or takes the selection away."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.theme import ThemeManager
from app.widgets.transcript.scroll import Scroll
from app.widgets.transcript.selection import Position
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import (
    answer,
    light_theme,
    question,
    refresh,
    shown_transcript,
    text_at_top,
    wheel,
)

NUMBERED = " ".join(f"w{n}" for n in range(400))
LONG = "\n\n".join(f"Paragraph {n}: {NUMBERED}" for n in range(12))
# Short lines first: half of the height is not half of the words, nor half of a narrow height.
UNEVEN = "  \n".join(f"s{n}" for n in range(60)) + "".join(f" w{n}" for n in range(400))
SELECTED = (Position(1, 0, 0, 11), Position(1, 0, 1, 14))


@pytest.fixture
def themes(qapp) -> ThemeManager:
    return light_theme()


@pytest.fixture
def transcript(qtbot, themes: ThemeManager) -> Transcript:
    view = shown_transcript(qtbot, themes)
    view.set_messages([question(1), answer(1, LONG, True)])
    wheel(view, 20)
    assert not view.follows
    return view


def offset_in_lines(view: Transcript, word: str) -> float:
    """How far below the top of the viewport a word's line is, in lines."""
    for item in view.items:
        for box in item.boxes:
            if box.document is None:
                continue
            cursor = box.document.find(f" {word} ")
            if cursor.isNull():
                continue
            block = cursor.block()
            line = block.layout().lineForTextPosition(cursor.selectionStart() + 1)
            y = item.top + box.y + box.text_y + line.y() - view.verticalScrollBar().value()
            return y / line.height()
    raise AssertionError(f"{word} is not laid out")


def test_a_window_made_narrow_and_wide_again_shows_what_it_showed(
    transcript: Transcript, qtbot
) -> None:
    before = text_at_top(transcript)
    value = transcript.verticalScrollBar().value()
    for width in (*range(690, 300, -17), *range(300, 700, 13), 700):
        transcript.resize(width, 500)
    assert text_at_top(transcript) == before
    assert transcript.verticalScrollBar().value() == value


def test_a_narrow_window_begins_with_the_same_words(transcript: Transcript) -> None:
    word = text_at_top(transcript).split()[2]
    transcript.resize(420, 500)
    assert -1.01 < offset_in_lines(transcript, word) < 1.01


def test_a_narrow_window_begins_with_the_same_words_in_an_uneven_paragraph(
    transcript: Transcript,
) -> None:
    transcript.set_messages([question(1), answer(1, f"{UNEVEN}\n\n{LONG}")])
    transcript.scroll_by(-100_000)
    transcript.scroll_by(transcript.items[1].top + transcript.items[1].boxes[0].height - 240)
    word = text_at_top(transcript).split()[2]
    assert word.startswith("w")
    transcript.resize(380, 500)
    assert -1.01 < offset_in_lines(transcript, word) < 1.01


def test_a_resized_window_still_stays_at_the_end_that_it_followed(transcript: Transcript) -> None:
    transcript.jump_to_latest()
    for width in (420, 700, 380):
        transcript.resize(width, 500)
        bar = transcript.verticalScrollBar()
        assert bar.value() == bar.maximum()


@pytest.mark.parametrize("is_hidden", [False, True])
def test_another_theme_moves_nothing(
    transcript: Transcript, themes: ThemeManager, is_hidden: bool
) -> None:
    before, value = text_at_top(transcript), transcript.verticalScrollBar().value()
    transcript.setVisible(not is_hidden)
    themes.set_mode("dark")
    transcript.show()
    themes.set_mode("light")
    assert text_at_top(transcript) == before
    assert transcript.verticalScrollBar().value() == value


@pytest.mark.parametrize("is_hidden", [False, True])
def test_larger_letters_begin_with_the_same_words(
    transcript: Transcript, themes: ThemeManager, is_hidden: bool
) -> None:
    before = text_at_top(transcript)
    word = before.split()[2]
    transcript.setVisible(not is_hidden)
    themes.set_zoom(1.6)
    transcript.show()
    assert -1.01 < offset_in_lines(transcript, word) < 1.6
    themes.set_zoom(1.0)
    assert text_at_top(transcript) == before


def test_another_view_of_the_same_messages_begins_with_the_same_words(
    transcript: Transcript, themes: ThemeManager, qtbot
) -> None:
    transcript.selection.anchor, transcript.selection.caret = SELECTED
    chosen = transcript.copy_selection()
    state = transcript.view_state()
    other = shown_transcript(qtbot, themes)
    other.set_messages([item.view for item in transcript.items])
    other.restore_view_state(state)
    assert text_at_top(other) == text_at_top(transcript)
    assert other.copy_selection() == chosen


def test_streaming_moves_neither_what_is_read_nor_the_selection(transcript: Transcript) -> None:
    transcript.selection.anchor, transcript.selection.caret = SELECTED
    before, chosen = text_at_top(transcript), transcript.copy_selection()
    refresh(transcript)
    value = transcript.verticalScrollBar().value()
    for n in range(40):
        transcript.append_text("a1", f"\n\nMore {n}.\n\n```py\nx = {n}\n```")
        refresh(transcript)
    transcript.update_message(answer(1, transcript.items[1].text))
    refresh(transcript)
    assert transcript.verticalScrollBar().value() == value
    assert text_at_top(transcript) == before
    assert transcript.copy_selection() == chosen
    assert chosen.startswith(": w0 w1")


def test_the_selection_survives_theme_letters_and_width(
    transcript: Transcript, themes: ThemeManager
) -> None:
    transcript.selection.anchor, transcript.selection.caret = SELECTED
    chosen = transcript.copy_selection()
    themes.set_mode("dark")
    themes.set_zoom(1.4)
    transcript.resize(500, 400)
    assert transcript.copy_selection() == chosen
    themes.set_mode("light")
    themes.set_zoom(1.0)


def test_streaming_in_one_tab_does_not_touch_another(
    transcript: Transcript, themes: ThemeManager, qtbot, monkeypatch
) -> None:
    other = shown_transcript(qtbot, themes)
    other.set_messages([question(1), answer(1, LONG)])
    wheel(other, 5)
    settled: list[Scroll] = []
    real = Scroll.settle
    monkeypatch.setattr(Scroll, "settle", lambda self, *a: (settled.append(self), real(self, *a)))
    value = other.verticalScrollBar().value()
    for n in range(20):
        transcript.append_text("a1", f"\n\nMore {n}.")
        refresh(transcript)
    assert other.verticalScrollBar().value() == value
    assert settled.count(transcript._scroll) >= 20
    assert other._scroll not in settled


def test_another_version_of_an_answer_leaves_the_question_where_it_is(
    transcript: Transcript,
) -> None:
    views = [question(0), answer(0, LONG), question(1), answer(1, "One"), question(2)]
    transcript.set_messages([*views, answer(2, LONG)])
    transcript.show_message("q1")
    before = transcript.items[2].top - transcript.verticalScrollBar().value()
    transcript.set_messages([*views[:3], answer(7, LONG)])
    after = transcript.items[2].top - transcript.verticalScrollBar().value()
    assert not transcript.follows
    assert abs(after - before) <= 1.0


def test_the_mouse_wheel_turned_to_the_end_follows_again_and_a_drag_does_too(
    transcript: Transcript,
) -> None:
    bar = transcript.verticalScrollBar()
    bar.setSliderPosition(bar.maximum())
    bar.triggerAction(bar.SliderAction.SliderMove)
    assert transcript.follows
    bar.setSliderPosition(bar.maximum() // 2)
    bar.triggerAction(bar.SliderAction.SliderMove)
    assert not transcript.follows
    wheel(transcript, -400)
    assert transcript.follows


def test_a_continued_answer_goes_on_in_its_last_block(transcript: Transcript) -> None:
    transcript.set_messages([answer(1, "```python\nx = 1")])
    transcript.update_message(answer(1, "```python\nx = 1", True))
    transcript.append_text("a1", "2\ny = 3\n```\nend")
    refresh(transcript)
    assert [box.plain_text() for box in transcript.items[0].boxes] == ["x = 12\ny = 3", "end"]


def test_dragging_over_the_edge_selects_on(transcript: Transcript, qtbot) -> None:
    view = transcript.viewport()
    left = Qt.MouseButton.LeftButton
    QTest.mousePress(view, left, pos=QPoint(200, 250))
    QTest.mouseMove(view, QPoint(200, -40))
    value = transcript.verticalScrollBar().value()
    qtbot.waitUntil(lambda: transcript.verticalScrollBar().value() < value - 40)
    QTest.mouseRelease(view, left, pos=QPoint(200, -40))
    assert len(transcript.copy_selection().split()) > 100
