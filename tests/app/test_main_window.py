"""Chatting in the whole window over the scripted engine, by mouse and keyboard; refusals."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.conversation import MessageStatus
from app.session_state import ModelStatus
from app.widgets.swatch import Activity
from engine.api.commands import LoadModel, Submit
from engine.api.errors import ModelFileError, PromptTooLongError, StarterModelMissingError
from engine.api.events import FinishReason
from tests.helpers.window_stage import SHORT, Stage, send, wait_idle, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
LEFT = Qt.MouseButton.LeftButton
LONG = "Many words come here. " * 400


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


@pytest.fixture
def slow_stage(qtbot):
    with window_stage(qtbot, script=lambda _submit: LONG, tokens_per_s=100.0) as made:
        yield made


def test_a_question_is_answered(stage: Stage, qtbot) -> None:
    send(stage, "What is a block?")
    assert stage.page.composer.text() == ""
    wait_idle(stage, qtbot)
    assert stage.shown_texts == ["What is a block?", SHORT]
    footer = stage.page.transcript.items[1].view.footer
    assert footer.startswith("3 tokens · ")
    assert "prompt tokens from cache" in footer
    assert "first token" in footer
    assert stage.window.windowTitle() == "What is a block? — Quire"


def test_the_second_turn_takes_tokens_from_the_cache(stage: Stage, qtbot) -> None:
    send(stage, "one two three four five six seven eight nine ten eleven twelve")
    wait_idle(stage, qtbot)
    send(stage, "And then?")
    wait_idle(stage, qtbot)
    answer = stage.page.last_answer()
    assert answer is not None
    assert answer.usage is not None
    assert answer.usage.cached_tokens >= 16
    assert f"{answer.usage.cached_tokens} of" in stage.page.transcript.items[3].view.footer


def test_stop_ends_the_answer_and_keeps_its_text(slow_stage: Stage, qtbot) -> None:
    conversation_id = send(slow_stage, "Tell me")
    qtbot.waitUntil(lambda: "words" in slow_stage.shown_texts[1])
    QTest.keyClick(slow_stage.window, Qt.Key.Key_Escape)
    wait_idle(slow_stage, qtbot)
    answer = slow_stage.page.last_answer()
    assert answer is not None
    assert answer.status is MessageStatus.STOPPED
    assert answer.content == slow_stage.shown_texts[1]
    assert slow_stage.page.transcript.items[1].view.footer.startswith("Stopped")
    assert not slow_stage.session.is_busy(conversation_id)


def test_the_stop_button_is_there_while_streaming(slow_stage: Stage, qtbot) -> None:
    send(slow_stage, "Tell me")
    button = slow_stage.page.composer.send_button
    assert button.accessibleName() == "Stop"
    qtbot.waitUntil(lambda: "words" in slow_stage.shown_texts[1])
    QTest.mouseClick(button, LEFT)
    wait_idle(slow_stage, qtbot)
    assert button.accessibleName() == "Send"


def test_four_tabs_stream_at_once(slow_stage: Stage, qtbot) -> None:
    window = slow_stage.window
    ids = [slow_stage.page.conversation_id] + [window.new_tab() for _ in range(3)]
    for number, conversation_id in enumerate(ids):
        assert window.submit_text(conversation_id, f"Question {number}")
    texts = {i: slow_stage.session.conversation(i).path()[1] for i in ids}
    qtbot.waitUntil(lambda: all(len(m.content) > 60 for m in texts.values()), timeout=10_000)
    tabs = window.tab_area.tabs
    names = [tabs.accessibleTabName(n) for n in range(4)]
    assert all(name.endswith("answering") for name in names)
    hidden = window.tab_area.page(ids[0]).transcript
    assert all(box.document is None for item in hidden.items for box in item.boxes)
    for conversation_id in ids:
        slow_stage.session.stop(conversation_id)
    wait_idle(slow_stage, qtbot)


def test_a_question_refused_in_the_back_is_marked_as_failed(stage: Stage, qtbot) -> None:
    first = send(stage, "Question")
    wait_idle(stage, qtbot)
    stage.engine.refusal = lambda _submit: PromptTooLongError("too long")
    stage.window.submit_text(first, "Another")
    stage.window.new_tab()
    tabs = stage.window.tab_area.tabs
    qtbot.waitUntil(lambda: tabs._marks[first][1] is Activity.FAILED_UNSEEN)
    wait_idle(stage, qtbot)
    assert tabs._marks[first][1] is Activity.FAILED_UNSEEN
    stage.window.show_conversation(first)
    assert tabs._marks[first][1] is Activity.IDLE


def test_an_answer_that_breaks_off_in_the_back_is_marked_as_failed(
    slow_stage: Stage, qtbot
) -> None:
    first = send(slow_stage, "Question")
    answer = slow_stage.session.conversation(first).path()[-1]
    qtbot.waitUntil(lambda: len(answer.content) > 20)
    slow_stage.window.new_tab()
    (running,) = slow_stage.engine._requests.running
    error = ModelFileError("gone").info()
    slow_stage.engine._requests.finish(running, FinishReason.ERROR, error)
    tabs = slow_stage.window.tab_area.tabs
    qtbot.waitUntil(lambda: tabs._marks[first][1] is Activity.FAILED_UNSEEN)


def test_an_answer_in_the_back_is_marked_until_it_is_seen(stage: Stage, qtbot) -> None:
    first = send(stage, "Question")
    stage.window.new_tab()
    wait_idle(stage, qtbot)
    tabs = stage.window.tab_area.tabs
    assert tabs._marks[first][1] is Activity.DONE_UNSEEN
    stage.window.show_conversation(first)
    assert tabs._marks[first][1] is Activity.IDLE
    assert stage.shown_texts == ["Question", SHORT]


def test_streaming_in_another_tab_never_moves_this_one(slow_stage: Stage, qtbot) -> None:
    first = send(slow_stage, "Question")
    qtbot.waitUntil(lambda: len(slow_stage.shown_texts[1]) > 300, timeout=10_000)
    slow_stage.session.stop(first)
    wait_idle(slow_stage, qtbot)
    bar = slow_stage.page.transcript.verticalScrollBar()
    value, maximum = bar.value(), bar.maximum()
    other = slow_stage.session.new_conversation()
    slow_stage.window.submit_text(other, "Another")
    slow_stage.window.show_conversation(first)
    qtbot.wait(200)
    assert (bar.value(), bar.maximum()) == (value, maximum)


def test_regenerate_keeps_both_versions(stage: Stage, qtbot) -> None:
    answers = iter(["First version.", "Second version."])
    stage.engine.script = lambda _submit: next(answers)
    send(stage, "Question")
    wait_idle(stage, qtbot)
    QTest.keyClick(stage.window, Qt.Key.Key_R, CONTROL)
    wait_idle(stage, qtbot)
    item = stage.page.transcript.items[1]
    assert (item.text, item.view.version, item.view.num_versions) == ("Second version.", 2, 2)
    stage.page.transcript.action_requested.emit("previous_version", item.view.message_id)
    item = stage.page.transcript.items[1]
    assert (item.text, item.view.version) == ("First version.", 1)


def test_a_refused_message_comes_back_into_the_composer(qtbot) -> None:
    def refuse(_submit: Submit) -> PromptTooLongError:
        return PromptTooLongError("The prompt has 9 tokens, the context 4.", tokens=9, limit=4)

    with window_stage(qtbot, refusal=refuse) as stage:
        send(stage, "Far too long")
        qtbot.waitUntil(lambda: stage.page.composer.text() == "Far too long")
        assert stage.shown_texts == []
        assert stage.page.notices.bars
        stage.engine.refusal = lambda _submit: None
        QTest.keyClick(stage.page.composer.edit, Qt.Key.Key_Return)
        wait_idle(stage, qtbot)
        assert stage.shown_texts == ["Far too long", SHORT]
        assert not stage.page.notices.bars


def test_a_missing_model_offers_to_fetch_it(qtbot) -> None:
    error = StarterModelMissingError("The starter model is not there.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model()
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.FAILED)
        card = stage.page.model_card
        assert card.isVisible()
        assert card.fetch_button.isVisible()
        assert not card.retry_button.isVisible()
        stage.engine.load_error = None
        QTest.mouseClick(card.fetch_button, LEFT)
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY)
        assert not card.isVisible()


def test_in_a_narrow_window_the_buttons_of_the_card_are_whole(qtbot) -> None:
    error = StarterModelMissingError("The starter model is not there.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model()
        card = stage.page.model_card
        qtbot.waitUntil(card.isVisible)
        buttons = (card.fetch_button, card.choose_button, card.library_button)
        for width, num_lines in ((1300, 1), (740, 2), (1300, 1)):
            stage.window.resize(width, 700)
            qtbot.waitUntil(lambda n=num_lines: len({b.y() for b in buttons}) == n)
            assert all(b.width() >= b.sizeHint().width() for b in buttons)
            assert all(card.rect().contains(b.geometry()) for b in buttons)
        # A low one leaves the card its height too.
        stage.window.resize(stage.window.minimumSize())
        qtbot.waitUntil(lambda: len({b.y() for b in buttons}) == 2)
        for label in (card.cause, card.action):
            assert label.height() >= label.heightForWidth(label.width())


def test_a_failed_load_says_why_and_can_be_tried_again(qtbot) -> None:
    error = ModelFileError("The file ends after 12 of 94 MB.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model()
        card = stage.page.model_card
        qtbot.waitUntil(card.isVisible)
        assert "12" in card.cause.text()
        assert not stage.window.tab_area.notices.isVisible()
        assert card.action.text()
        assert not card.fetch_button.isVisible()
        assert stage.window.submit_text(stage.page.conversation_id, "Hello") is False
        assert stage.page.composer.text() == "Hello"
        stage.engine.load_error = None
        QTest.mouseClick(card.retry_button, LEFT)
        qtbot.waitUntil(lambda: not card.isVisible())


def test_retry_asks_for_the_same_file(qtbot) -> None:
    error = ModelFileError("The file ends after 12 of 94 MB.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model("some/model.gguf")
        qtbot.waitUntil(stage.page.model_card.isVisible)
        QTest.mouseClick(stage.page.model_card.retry_button, LEFT)
        qtbot.waitUntil(stage.page.model_card.isVisible)
        loads = [c.path for c in stage.engine.commands if isinstance(c, LoadModel)]
        assert loads == ["some/model.gguf"] * 2


def test_the_keyboard_reaches_the_buttons_of_the_last_answer(stage: Stage, qtbot) -> None:
    send(stage, "Question")
    wait_idle(stage, qtbot)
    stage.window.activateWindow()
    QTest.keyClick(stage.window, Qt.Key.Key_L, CONTROL | SHIFT)
    buttons = stage.page.transcript.buttons
    assert buttons.isVisible()
    QTest.keyClick(stage.page.transcript, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is buttons.copy
    QTest.keyClick(buttons.copy, Qt.Key.Key_Space)
    assert QGuiApplication.clipboard().text() == SHORT


def test_a_message_sent_while_loading_is_answered_later(qtbot) -> None:
    with window_stage(qtbot, load=False) as stage:
        stage.engine.hold_load.set()
        stage.session.load_model()
        send(stage, "Early")
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.LOADING)
        assert stage.window.status_strip.progress.isVisible()
        assert "model" in stage.page.transcript.items[1].view.footer
        stage.engine.hold_load.clear()
        wait_idle(stage, qtbot)
        assert stage.shown_texts == ["Early", SHORT]
        assert not stage.window.status_strip.progress.isVisible()
