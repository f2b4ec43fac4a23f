"""The line above the first message that the model reads: its room, its paint, and who moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QApplication

from app.theme import ThemeManager
from app.widgets.transcript.message import DIVIDER_HEIGHT, MessageItem, MessageView
from app.widgets.transcript.page import MESSAGE_GAP
from app.widgets.transcript.painter import divider_rect
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import light_theme, refresh

WORDS = "12 earlier messages are no longer read by the model"


@pytest.fixture
def themes(qapp: QApplication) -> ThemeManager:
    return light_theme()


@pytest.fixture
def transcript(qtbot, themes: ThemeManager) -> Transcript:
    """Twenty questions with their answers, from the end."""
    view = Transcript(themes)
    qtbot.addWidget(view)
    view.resize(700, 500)
    views = [
        MessageView(f"{n}", n % 2 == 0, f"Message {n} with some words in it.") for n in range(40)
    ]
    view.set_messages(views)
    view.show()
    qtbot.waitExposed(view)
    return view


def divide(view: Transcript, number: int, words: str = WORDS) -> MessageItem:
    """Gives a message a divider, or takes it away."""
    item = view.items[number]
    view.update_message(replace(item.view, divider=words))
    return item


def offset(view: Transcript, item: MessageItem) -> float:
    """Where a message is in the window."""
    return item.top - view.verticalScrollBar().value()


def stacked(view: Transcript) -> bool:
    """Every message begins where the one before it ends."""
    pairs = zip(view.items, view.items[1:], strict=False)
    return all(abs(b.top - a.top - a.height - MESSAGE_GAP) < 0.01 for a, b in pairs)


@pytest.mark.parametrize("number", [20, 21])
def test_a_divider_takes_its_room_above_a_question_or_an_answer(
    transcript: Transcript, number: int
) -> None:
    transcript.scroll_by(
        transcript.items[number].top - 100 - transcript.verticalScrollBar().value()
    )
    before = [(item.height, item.boxes[0].y) for item in transcript.items[number - 1 : number + 2]]
    divide(transcript, number)
    refresh(transcript)
    after = [(item.height, item.boxes[0].y) for item in transcript.items[number - 1 : number + 2]]
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] == (before[1][0] + DIVIDER_HEIGHT, before[1][1] + DIVIDER_HEIGHT)
    assert stacked(transcript)
    divide(transcript, number, "")
    refresh(transcript)
    item = transcript.items[number]
    assert (item.height, item.boxes[0].y) == before[1]
    assert stacked(transcript)


def test_a_divider_far_above_does_not_move_what_is_read(transcript: Transcript) -> None:
    transcript.scroll_by(-300)
    assert not transcript.follows
    bar = transcript.verticalScrollBar()
    reading = transcript.items[transcript.page.index_at(bar.value())]
    assert transcript.items.index(reading) > 20
    height, place = transcript.page.height, offset(transcript, reading)
    divide(transcript, 2)
    refresh(transcript)
    assert abs(offset(transcript, reading) - place) <= 1.0
    assert transcript.page.height == height + DIVIDER_HEIGHT
    assert stacked(transcript)


def test_who_follows_the_end_still_sees_it(transcript: Transcript) -> None:
    divide(transcript, 2)
    refresh(transcript)
    bar = transcript.verticalScrollBar()
    assert transcript.follows
    assert bar.value() == bar.maximum()


def test_a_divider_from_the_start_has_its_room_before_it_was_ever_seen(
    transcript: Transcript,
) -> None:
    plain = [item.view for item in transcript.items]
    transcript.set_messages(plain)
    height = transcript.page.height
    transcript.set_messages([*plain[:3], replace(plain[3], divider=WORDS), *plain[4:]])
    assert not transcript.items[3].boxes
    assert transcript.page.height == height + DIVIDER_HEIGHT
    transcript.scroll_by(-10_000)
    assert transcript.items[3].boxes[0].y == DIVIDER_HEIGHT
    assert stacked(transcript)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_line_is_drawn_on_both_sides_of_its_words(
    transcript: Transcript, themes: ThemeManager, mode: str
) -> None:
    themes.set_mode(mode)
    transcript.scroll_by(transcript.items[20].top - 100 - transcript.verticalScrollBar().value())
    item = divide(transcript, 20)
    refresh(transcript)
    rect = divider_rect(transcript.page, item)
    image = transcript.viewport().grab().toImage()
    y = round(rect.center().y()) - transcript.verticalScrollBar().value()
    line = themes.theme.color("strong_line").name()
    for x in (rect.left() + 4, rect.right() - 4):
        colors = {image.pixelColor(round(x), y + by).name() for by in (-1, 0, 1)}
        assert line in colors
    # Words in the middle, and nothing else in the gaps beside them.
    middle = round(rect.center().x())
    words = {image.pixelColor(x, y).name() for x in range(middle - 60, middle + 60)}
    assert len(words) > 2
    assert line not in words
