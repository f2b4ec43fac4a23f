"""Find in page: all hits, in order, also in what is folded or was never laid out."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.theme import contrast, load_theme
from app.widgets.transcript.find_bar import FindBar
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.selection import position_of
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import shown_transcript


@pytest.fixture
def transcript(qtbot, qapp: QApplication) -> Transcript:
    return shown_transcript(qtbot)


def pair(number: int, text: str) -> list[MessageView]:
    return [
        MessageView(f"q{number}", True, f"Question {number}?"),
        MessageView(f"a{number}", False, text),
    ]


def fill(view: Transcript, count: int, text: str = "Some **words** here.\n\nAnd more.") -> None:
    view.set_messages([message for n in range(count) for message in pair(n, text)])


def find(view: Transcript, words: str, qtbot) -> FindBar:
    bar = view.content.find_bar
    bar.start()
    bar.edit.setText(words)
    qtbot.waitUntil(lambda: not view.content.finder.is_busy, timeout=20_000)
    return bar


def current_place(view: Transcript) -> tuple[str, int]:
    """(message, y in the viewport) of the current hit."""
    hit = view.content.finder.current
    assert hit is not None
    item = view.items[hit.message]
    box = item.sections[hit.section].boxes[hit.box]
    return item.view.message_id, round(item.top + box.y) - view.verticalScrollBar().value()


def test_all_hits_are_counted_and_gone_through(transcript: Transcript, qtbot) -> None:
    fill(transcript, 3)
    bar = find(transcript, "WORDS here", qtbot)
    assert bar.count.text() == "1 of 3"
    seen = [current_place(transcript)[0]]
    for _ in range(3):
        QTest.keyClick(bar.edit, Qt.Key.Key_Return)
        seen.append(current_place(transcript)[0])
    assert seen == ["a0", "a1", "a2", "a0"]
    QTest.keyClick(bar.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert (current_place(transcript)[0], bar.count.text()) == ("a2", "3 of 3")


def test_it_looks_through_500_messages_without_holding_up_the_window(
    transcript: Transcript, qtbot
) -> None:
    texts = [f"Paragraph **{n}** of many.\n\n- item\n\n```\ncode\n```" for n in range(250)]
    texts[3] += "\n\nHere is the Needle."
    texts[240] = "<think>\nA needle in **thoughts**.\n</think>\n\nDone."
    transcript.set_messages([m for n, text in enumerate(texts) for m in pair(n, text)])
    finder = transcript.content.finder
    longest, slice_of = 0.0, finder._on_timer

    def timed() -> None:
        nonlocal longest
        started = time.thread_time()
        slice_of()
        longest = max(longest, time.thread_time() - started)

    finder._timer.timeout.disconnect()
    finder._timer.timeout.connect(timed)
    bar = find(transcript, "needle", qtbot)
    assert bar.count.text() == "1 of 2"
    assert current_place(transcript)[0] == "a3"
    QTest.keyClick(bar.edit, Qt.Key.Key_Return)
    message, y = current_place(transcript)
    assert message == "a240"
    assert 0 <= y < 500
    assert longest < 0.1


def test_a_hit_in_folded_reasoning_unfolds_it(transcript: Transcript, qtbot) -> None:
    fill(transcript, 1, "<think>\nSecret thought.\n</think>\n\nSaid.")
    assert transcript.items[1].thoughts.is_folded(1)
    find(transcript, "secret", qtbot)
    assert not transcript.items[1].thoughts.is_folded(1)
    assert 0 <= current_place(transcript)[1] < 500


def test_a_hit_in_a_long_message_is_brought_into_sight(transcript: Transcript, qtbot) -> None:
    text = "\n\n".join(f"Paragraph {n} with some words." for n in range(3000))
    transcript.set_messages(pair(0, text))
    bar = find(transcript, "paragraph 1500 ", qtbot)
    assert bar.count.text() == "1 of 1"
    assert 0 <= current_place(transcript)[1] < 500


def test_chinese_is_found(transcript: Transcript, qtbot) -> None:
    fill(transcript, 2, "中文段落，**加粗**文字。😀 后面")
    assert find(transcript, "粗文", qtbot).count.text() == "1 of 2"


def test_signs_in_a_question_are_found_as_they_were_typed(transcript: Transcript, qtbot) -> None:
    question = "if a<b and c>d\nthen &amp; else"
    transcript.set_messages([MessageView("q1", True, question), MessageView("a1", False, "No.")])
    for words in ("a<b and", "d then", "&amp;"):
        assert find(transcript, words, qtbot).count.text() == "1 of 1"
        item = transcript.items[0]
        (mark,) = transcript.content.finder.marks(item, item.boxes[0])
        assert question[mark.start : mark.end].replace("\n", " ") == words


def test_hits_are_marked_where_they_stand(transcript: Transcript, qtbot) -> None:
    fill(transcript, 1, "😀 two words and words")
    find(transcript, "words", qtbot)
    item = transcript.items[1]
    marks = transcript.content.finder.marks(item, item.boxes[0])
    assert [(mark.start, mark.end, mark.is_current) for mark in marks] == [
        (7, 12, True),
        (17, 22, False),
    ]


@pytest.mark.parametrize("words", ["mc^2", "so $e", "2$ and"])
def test_a_formula_is_found_by_its_latex(transcript: Transcript, qtbot, words: str) -> None:
    fill(transcript, 1, "So $E=mc^2$ and $y$, mc")
    qtbot.waitUntil(lambda: not transcript.content.is_drawing, timeout=20_000)
    bar = find(transcript, words, qtbot)
    assert bar.count.text() == "1 of 1"
    item = transcript.items[1]
    (mark,) = transcript.content.finder.marks(item, item.boxes[0])
    assert mark.start <= 3 < mark.end


def test_marks_are_painted(transcript: Transcript, qtbot) -> None:
    fill(transcript, 1)
    find(transcript, "words", qtbot)
    image = transcript.grab().toImage()
    wanted = load_theme("light").color("current_match").name()
    found = {image.pixelColor(x, y).name() for x in range(0, 400) for y in range(60, 160)}
    assert wanted in found


def test_escape_closes_and_gives_the_keyboard_back(transcript: Transcript, qtbot) -> None:
    fill(transcript, 1)
    transcript.activateWindow()
    transcript.setFocus()
    qtbot.waitUntil(transcript.hasFocus)
    bar = find(transcript, "words", qtbot)
    assert bar.edit.hasFocus()
    QTest.keyClick(bar.edit, Qt.Key.Key_Escape)
    assert not bar.isVisible()
    assert transcript.hasFocus()
    assert transcript.content.finder.hits == []


def test_nothing_found_is_said(transcript: Transcript, qtbot) -> None:
    fill(transcript, 1)
    bar = find(transcript, "absent", qtbot)
    assert bar.count.text() == "No hits"
    assert not bar.next.isEnabled()


def test_text_that_comes_later_is_found_too(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([MessageView("a1", False, "one word", is_open=True)])
    bar = find(transcript, "word", qtbot)
    transcript.append_text("a1", "\n\nand a second word")
    qtbot.waitUntil(lambda: bar.count.text() == "1 of 2")


def test_the_selected_word_is_looked_for(transcript: Transcript, qtbot) -> None:
    fill(transcript, 1, "one word")
    item = transcript.items[1]
    start, end = (position_of(item, item.boxes[0], char) for char in (4, 8))
    transcript.selection.anchor, transcript.selection.caret = start, end
    bar = transcript.content.find_bar
    bar.start()
    assert bar.edit.text() == "word"


def test_messages_that_go_take_their_hits_along(transcript: Transcript, qtbot) -> None:
    fill(transcript, 3)
    bar = find(transcript, "words", qtbot)
    transcript.remove_message("a2")
    bar.step(1)
    qtbot.waitUntil(lambda: bar.count.text() == "1 of 2")


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("token", ["match", "current_match"])
def test_marked_text_can_be_read(name: str, token: str) -> None:
    theme = load_theme(name)
    assert contrast(theme.color(f"on_{token}"), theme.color(token)) >= 4.5


@pytest.mark.parametrize("by", [1, -1])
def test_a_hit_of_a_message_that_was_cut_anew_is_looked_for_again(
    transcript: Transcript, qtbot, by: int
) -> None:
    long = "\n\n".join(f"Paragraph {n} with the needle in it." for n in range(60))
    messages = [*pair(0, long), *pair(1, long)]
    transcript.set_messages(messages)
    bar = find(transcript, "needle", qtbot)
    finder = transcript.content.finder
    assert len(finder.hits) == 120
    # It is another text and out of sight: no hit in it is where it was.
    transcript.update_message(replace(messages[3], text="One needle."))
    finder.current = finder.hits[118] if by > 0 else finder.hits[0]
    bar.step(by)
    qtbot.waitUntil(lambda: len(finder.hits) == 61 and not finder.is_busy, timeout=20_000)
    bar.step(by)
    assert finder.current in finder.hits
