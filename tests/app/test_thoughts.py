"""Reasoning in the transcript: shown while it comes, folded afterwards, unfolded on demand."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QToolButton

from app.answer_facts import note_thought
from app.conversation import ASSISTANT, Message
from app.markdown_thoughts import THOUGHT_SECONDS
from app.theme import ThemeManager
from app.widgets.transcript.message import MessageItem, MessageView
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import shown_transcript

TEXT = "<think>\nFirst this.\n\nThen that.\n</think>\n\nThe answer."


def answer(text: str, is_open: bool = False, **more) -> MessageView:
    return MessageView("a1", False, text, is_open=is_open, **more)


@pytest.fixture
def transcript(qtbot, qapp: QApplication) -> Transcript:
    return shown_transcript(qtbot)


def seen(view: Transcript) -> list[str]:
    """What is shown of all messages, from top to bottom."""
    found = []
    for item, boxes in view.page.visible(0.0, view.page.height):
        for box in boxes:
            if box.block.kind == "thought":
                found.append(item.thoughts.words(box.block.level, item.view.thought_s))
            elif box.height > 0:
                found.append(box.plain_text())
    return found


def buttons(view: Transcript) -> list[QToolButton]:
    found = view.viewport().findChildren(QToolButton)
    return [b for b in found if b.property("kind") == "line" and b.isVisible()]


def test_finished_reasoning_is_folded(transcript: Transcript) -> None:
    transcript.set_messages([answer(TEXT, thought_s=12.3)])
    assert seen(transcript) == ["Thought for 12 s", "The answer."]


def test_a_click_unfolds_and_folds(transcript: Transcript) -> None:
    transcript.set_messages([answer(TEXT)])
    folded = transcript.page.height
    (button,) = buttons(transcript)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert seen(transcript) == ["Thoughts", "First this.", "Then that.", "The answer."]
    assert transcript.page.height > folded
    QTest.mouseClick(buttons(transcript)[0], Qt.MouseButton.LeftButton)
    assert seen(transcript) == ["Thoughts", "The answer."]
    assert transcript.page.height == folded


def test_the_keyboard_unfolds_and_a_screen_reader_hears_it(transcript: Transcript) -> None:
    transcript.set_messages([answer(TEXT, thought_s=75)])
    (button,) = buttons(transcript)
    assert button.accessibleName() == "Thought for 1 min 15 s"
    assert button.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert not button.isChecked()
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Space)
    assert "First this." in seen(transcript)
    assert button.isChecked()


def test_reasoning_is_seen_while_it_streams_and_folded_after(transcript: Transcript) -> None:
    transcript.set_messages([answer("", True)])
    states = []
    for start in range(0, len(TEXT), 3):
        transcript.append_text("a1", TEXT[start : start + 3])
        transcript._on_refresh_timeout()
        states.append(seen(transcript))
    assert ["Thinking…", "First this.", "The"] in states
    assert states[-1] == ["Thoughts", "The answer."]
    transcript.update_message(answer(TEXT, thought_s=3.0))
    transcript._on_refresh_timeout()
    assert seen(transcript) == ["Thought for 3 s", "The answer."]


def test_what_the_user_folded_stays_folded_while_it_streams(transcript: Transcript) -> None:
    transcript.set_messages([answer("<think>\nA.\n\nB", True)])
    item = transcript.items[0]
    transcript.content.thought_buttons.toggle(item, 1)
    transcript.append_text("a1", ".\n\nC.\n\n")
    transcript._on_refresh_timeout()
    assert seen(transcript) == ["Thinking…"]


def test_unfolded_stays_unfolded_when_the_branch_is_shown_anew(transcript: Transcript) -> None:
    transcript.set_messages([answer(TEXT)])
    transcript.content.thought_buttons.toggle(transcript.items[0], 1)
    transcript.set_messages([answer(TEXT)])
    assert "First this." in seen(transcript)


def test_reasoning_that_never_ended_is_shown(transcript: Transcript) -> None:
    transcript.set_messages([answer("<think>\nOn and on")])
    assert seen(transcript) == ["Thought without coming to an end", "On and on"]


def test_empty_reasoning_has_no_line(transcript: Transcript) -> None:
    transcript.set_messages([answer("<think>\n\n</think>\n\nHi.")])
    assert seen(transcript) == ["Hi."]
    transcript.set_messages([answer("", True)])
    for piece in ("<think>", "\n\n", "</think>", "\n\nHi."):
        transcript.append_text("a1", piece)
        transcript._on_refresh_timeout()
    assert seen(transcript) == ["Hi."]


def test_reasoning_that_the_template_began_is_folded_when_it_ends(transcript: Transcript) -> None:
    transcript.set_messages([answer("", True)])
    for piece in ("So.\n\nHm.", "\n</th", "ink>", "\n\nDone."):
        transcript.append_text("a1", piece)
        transcript._on_refresh_timeout()
    assert seen(transcript) == ["Thoughts", "Done."]


def test_a_tag_in_code_stays_in_the_code(transcript: Transcript) -> None:
    transcript.set_messages([answer("```\n<think>\nx\n</think>\n```")])
    assert seen(transcript) == ["<think>\nx\n</think>"]


def test_long_reasoning_is_not_parsed_while_it_is_folded() -> None:
    paragraphs = "\n\n".join(f"Thought {n} " + "word " * 40 for n in range(400))
    item = MessageItem(answer(f"<think>\n{paragraphs}\n</think>\n\nDone."))
    from app.theme import load_theme
    from app.widgets.transcript.documents import DocumentFactory

    factory = DocumentFactory(load_theme("light"))
    item.sync(600.0, factory)
    item.lay_out(600.0, 0.0, 800.0, factory)
    parsed = [section for section in item.sections if section.is_parsed and section.thought]
    assert parsed == []


@pytest.mark.parametrize("pieces", [["<think>a", "</think>"], ["<think>a</", "thi", "nk>"]])
def test_how_long_it_took_is_noted_once(pieces: list[str]) -> None:
    message = Message(ASSISTANT, "")
    for seconds, piece in enumerate(pieces, 1):
        message.content += piece
        note_thought(message, piece, float(seconds))
    message.content += "x</think>"
    assert not note_thought(message, "x</think>", 99.0)
    assert message.facts == {THOUGHT_SECONDS: float(len(pieces))}


def test_another_transcript_of_the_same_messages_is_folded_alike(
    transcript: Transcript, qtbot
) -> None:
    transcript.set_messages([answer(TEXT)])
    transcript.content.thought_buttons.toggle(transcript.items[0], 1)
    other = Transcript(ThemeManager("light"))
    qtbot.addWidget(other)
    other.resize(700, 500)
    other.set_messages([answer(TEXT)])
    other.restore_view_state(transcript.view_state())
    other.show()
    qtbot.waitExposed(other)
    assert "First this." in seen(other)
