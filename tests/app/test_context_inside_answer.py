"""The context is full in the middle of an answer: told, and each policy goes on from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine.api.params import OverflowPolicy
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
CONTEXT = 200


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(
        qtbot, lambda _submit: "word " * 400, tokens_per_s=5000.0, context_length=CONTEXT
    ) as made:
        yield made


def write(stage: Stage, text: str) -> None:
    stage.page.composer.edit.setPlainText(text)
    QTest.keyClick(stage.page.composer.edit, Qt.Key.Key_Return)


def wait_answered(stage: Stage, qtbot, messages: int) -> None:
    conversation_id = stage.page.conversation_id
    conversation = stage.session.conversation(conversation_id)
    qtbot.waitUntil(lambda: len(conversation.path()) == messages)
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))


def test_an_answer_that_fills_the_context_says_so(stage: Stage, qtbot) -> None:
    write(stage, "Question")
    wait_answered(stage, qtbot, 2)
    answer = stage.session.conversation(stage.page.conversation_id).path()[-1]
    assert (answer.finish_reason, answer.limit) == ("length", "context")
    view = stage.page.transcript.items[-1].view
    assert view.footer.startswith("Ended: the model's context is full")
    assert view.tone == "warning"


def test_with_stop_the_next_message_stays_with_the_numbers(stage: Stage, qtbot) -> None:
    write(stage, "Question")
    wait_answered(stage, qtbot, 2)
    write(stage, "And then?")
    page = stage.page
    qtbot.waitUntil(lambda: page.composer.typed_text() == "And then?")
    qtbot.waitUntil(lambda: page.context_notice.isVisible() or bool(page.notices.bars))
    said = page.context_notice.label.text() + "".join(b.label.text() for b in page.notices.bars)
    assert f"{CONTEXT}" in said
    assert len(stage.session.conversation(page.conversation_id).path()) == 2


def test_with_drop_oldest_it_goes_on_below_a_divider(stage: Stage, qtbot) -> None:
    stage.session.set_overflow(stage.page.conversation_id, OverflowPolicy.DROP_OLDEST)
    write(stage, "Question")
    wait_answered(stage, qtbot, 2)
    write(stage, "And then?")
    # What it drops is shown first.
    qtbot.waitUntil(stage.page.context_notice.isVisible)
    QTest.keyClick(stage.page.composer.edit, Qt.Key.Key_Return)
    wait_answered(stage, qtbot, 4)
    dividers = [item.view.divider for item in stage.page.transcript.items if item.view.divider]
    assert dividers == ["2 earlier messages are no longer read by the model"]
