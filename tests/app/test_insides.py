"""Code and links of a message by keyboard: they are in its menu."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QMenu

from app.widgets.transcript.message import MessageView
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import shown_transcript

TEXT = (
    "[a](https://a.example/?x=1&y=2) and [bad](javascript:1) https://b.example\n\n"
    "```py\n\nx = 1\n```\n\n- item\n  ```\n  plain & simple\n  ```\n\n`[no](https://c.example)`\n\n"
    '```\n<a href="https://d.example">\n```'
)


@pytest.fixture
def transcript(qtbot, qapp: QApplication) -> Transcript:
    return shown_transcript(qtbot, height=700)


def entries(view: Transcript, message_id: str, title: str) -> dict[str, object]:
    menu = QMenu(view)
    view.menu_opened.emit(menu, message_id)
    found = [a.menu() for a in menu.actions() if a.text() == title]
    return {a.text(): a for a in found[0].actions()} if found else {}


def test_code_is_copied_from_the_menu(transcript: Transcript) -> None:
    transcript.set_messages([MessageView("a", False, TEXT)])
    found = entries(transcript, "a", "Copy code")
    assert list(found) == ["py: x = 1", "plain && simple", '<a href="https://d.example">']
    found["py: x = 1"].trigger()
    assert QGuiApplication.clipboard().text() == "\nx = 1"


def test_links_are_opened_from_the_menu(transcript: Transcript, qtbot) -> None:
    transcript.set_messages([MessageView("a", False, TEXT)])
    found = entries(transcript, "a", "Open link")
    assert list(found) == ["https://a.example/?x=1&&y=2", "https://b.example"]
    with qtbot.waitSignal(transcript.link_activated) as told:
        found["https://b.example"].trigger()
    assert told.args == ["https://b.example"]


def test_a_question_has_neither(transcript: Transcript) -> None:
    transcript.set_messages([MessageView("q", True, TEXT)])
    assert entries(transcript, "q", "Copy code") == {}
    assert entries(transcript, "q", "Open link") == {}
