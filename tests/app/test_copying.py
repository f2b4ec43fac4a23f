"""Copying: whole blocks as their source, parts as they are shown, formulas always as LaTeX."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.widgets.transcript.copying import fenced, html, markdown, message_markdown
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.selection import position_of
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import shown_transcript

ANSWER = (
    "# Title\n\nSome **bold** and $x^2$.\n\n- one\n  - two\n- *three*\n\n"
    "```python\nx = 1\n\ny\n```\n\n"
    "$$\n\\frac{a}{b}\n$$\n\n| a | b |\n|---|---|\n| 1 | 2 |"
)


@pytest.fixture
def transcript(qtbot, qapp: QApplication) -> Transcript:
    return shown_transcript(qtbot, height=900)


def show(view: Transcript, text: str, qtbot) -> None:
    view.set_messages([MessageView("q1", True, "A *question*"), MessageView("a1", False, text)])
    qtbot.waitUntil(lambda: not view.content.is_drawing, timeout=20_000)
    view._on_refresh_timeout()


def select(view: Transcript, first: tuple[int, int, int], last: tuple[int, int, int]) -> None:
    """Each as (message, number of the box, character)."""
    ends = []
    for message, box, char in (first, last):
        item = view.items[message]
        ends.append(position_of(item, item.boxes[box], char))
    view.selection.anchor, view.selection.caret = ends


def test_a_whole_message_is_its_source(transcript: Transcript, qtbot) -> None:
    show(transcript, ANSWER, qtbot)
    transcript.selection.select_all()
    assert markdown(transcript.selection) == f"A *question*\n\n{ANSWER}"


def test_whole_blocks_are_their_source_and_parts_as_shown(transcript: Transcript, qtbot) -> None:
    show(transcript, ANSWER, qtbot)
    select(transcript, (1, 1, 5), (1, 7, 0))
    assert markdown(transcript.selection) == (
        "bold and $x^2$.\n\n- one\n  - two\n- *three*\n\n```python\nx = 1\n\ny\n```\n\n"
        "$$\n\\frac{a}{b}\n$$"
    )


def test_a_part_of_an_item_with_items_below_it(transcript: Transcript, qtbot) -> None:
    show(transcript, ANSWER, qtbot)
    select(transcript, (1, 2, 0), (1, 2, 3))
    assert markdown(transcript.selection) == "- one"


def test_plain_text_has_latex_in_place_of_pictures(transcript: Transcript, qtbot) -> None:
    show(transcript, "😀 is $x^2$ and $y$ here", qtbot)
    select(transcript, (1, 0, 3), (1, 0, 13))
    assert transcript.copy_selection() == "is $x^2$ and $y$"
    transcript.selection.select_all()
    assert transcript.copy_selection() == "A *question*\n\n😀 is $x^2$ and $y$ here"


def test_folded_reasoning_is_not_copied(transcript: Transcript, qtbot) -> None:
    show(transcript, "<think>\nHm.\n</think>\n\nSaid.", qtbot)
    transcript.selection.select_all()
    assert markdown(transcript.selection) == "A *question*\n\nSaid."
    assert transcript.copy_selection() == "A *question*\n\nSaid."
    assert message_markdown(transcript.items[1]) == "Said."
    transcript.content.thought_buttons.toggle(transcript.items[1], 1)
    assert message_markdown(transcript.items[1]).startswith("<think>")
    assert transcript.copy_selection() == "A *question*\n\nHm.\nSaid."


def test_html_is_escaped_and_has_the_structure(transcript: Transcript, qtbot) -> None:
    show(transcript, "# T\n\na <b>x</b> **y** $z$\n\n```\n<i>\n```", qtbot)
    transcript.selection.select_all()
    assert html(transcript.selection) == (
        "<p>A *question*</p>\n<h1>T</h1>\n<p>a &lt;b&gt;x&lt;/b&gt; <b>y</b> $z$</p>\n"
        "<pre><code>&lt;i&gt;</code></pre>"
    )


def test_a_table_from_right_to_left_is_copied_as_it_is_read(transcript: Transcript, qtbot) -> None:
    show(transcript, "| אחת | שתיים |\n|---|---|\n| א $z$ | API |", qtbot)
    transcript.selection.select_all()
    assert transcript.selection.text() == "A *question*\n\nאחת\nשתיים\nא $z$\nAPI"
    table = html(transcript.selection).partition("\n")[2]
    assert table.startswith('<table border="1" dir="rtl"><tr><th ')
    assert re.findall(r">([^<>]+)</t", table) == ["אחת", "שתיים", "א $z$", "API"]


def test_the_clipboard_gets_every_form(transcript: Transcript, qtbot) -> None:
    show(transcript, "**y**", qtbot)
    select(transcript, (1, 0, 0), (1, 0, 1))
    QTest.keyClick(transcript, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    data = QGuiApplication.clipboard().mimeData()
    assert (data.text(), data.html()) == ("y", "<p><b>y</b></p>")
    assert bytes(data.data("text/markdown").data()) == b"**y**"


def test_a_streamed_fence_is_a_fence(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([MessageView("a1", False, "", is_open=True)])
    for piece in ("Text\n\n```c\nin", "t a;\n```\nend"):
        transcript.append_text("a1", piece)
        transcript._on_refresh_timeout()
    select(transcript, (0, 0, 1), (0, 1, 6))
    assert markdown(transcript.selection) == "ext\n\n```c\nint a;\n```"


def test_a_fence_is_longer_than_any_in_its_code() -> None:
    assert fenced("```\nx\n```", "md") == "````md\n```\nx\n```\n````"
