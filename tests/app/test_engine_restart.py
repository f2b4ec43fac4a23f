"""The engine dies under the window: what stays, and how the user goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt

from app.conversation import MessageStatus
from app.session_state import ModelStatus, Notice, Severity
from app.widgets.words import model_words
from engine.api.commands import LoadModel, SetFocus, Submit, SubscribePool
from engine.api.errors import DeviceLostError, ErrorInfo
from tests.helpers.window_stage import Stage, window_stage

FAULT = ErrorInfo("internal", "ZeroDivisionError: division by zero (core.py:1)")
LOST = DeviceLostError("The device failed and cannot be used again: CUDA error: …").info()
LONG = "one two three four five six seven eight nine ten " * 20


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot, lambda _submit: LONG, tokens_per_s=200.0) as stage:
        yield stage


def ask(stage: Stage, qtbot, text: str = "go on") -> str:
    """Asks in the tab in front and waits until the answer has begun."""
    conversation_id = stage.window.tab_area.tabs.current_id()
    assert stage.window.submit_text(conversation_id, text)
    qtbot.waitUntil(lambda: len(path(stage, conversation_id)[-1].content) > 20)
    return conversation_id


def path(stage: Stage, conversation_id: str):
    return stage.session.conversation(conversation_id).path()


def die(stage: Stage, qtbot, error: ErrorInfo = FAULT) -> None:
    stage.engine.die(error)
    qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.FAILED)


def card(stage: Stage):
    return stage.page.model_card


def press(qtbot, button) -> None:
    assert button.isVisible()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_answer_keeps_its_text_and_its_ids(stage, qtbot):
    conversation_id = ask(stage, qtbot)
    die(stage, qtbot)
    answer = path(stage, conversation_id)[-1]
    assert answer.status is MessageStatus.ERROR
    assert answer.error == FAULT
    words = answer.content.split()
    assert LONG.split()[: len(words)] == words
    assert len(answer.turn.output_ids) == len(words)
    assert answer.turn.covered_chars == len(answer.content)


def test_report_of_the_dead_thread_does_not_outrun_what_the_engine_said(stage, qtbot):
    conversation_id = ask(stage, qtbot)
    stage.engine.die(FAULT)
    stage.engine._thread.join(5.0)
    stage.session.engine_died("ZeroDivisionError: division by zero")
    answer = path(stage, conversation_id)[-1]
    assert answer.turn is not None
    assert answer.error == FAULT
    assert FAULT.message in stage.session.model_state.error.message


def test_card_offers_a_new_engine_and_nothing_that_cannot_help(stage, qtbot):
    ask(stage, qtbot)
    die(stage, qtbot)
    assert card(stage).isVisible()
    assert card(stage).restart_engine_button.isVisible()
    assert FAULT.message in card(stage).cause.text()
    assert model_words(stage.session.model_state) == "The engine has stopped"
    assert "Restart the engine" in card(stage).action.text()
    for name in ("retry_button", "choose_button", "fetch_button", "restart_program_button"):
        assert not getattr(card(stage), name).isVisible(), name


def test_restarted_engine_has_the_model_and_the_conversation_goes_on(stage, qtbot):
    conversation_id = ask(stage, qtbot)
    loads = [c for c in stage.engine.commands if isinstance(c, LoadModel)]
    die(stage, qtbot)
    partial = path(stage, conversation_id)[-1]
    press(qtbot, card(stage).restart_engine_button)
    qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY)
    assert len(stage.engines) == 2
    assert not card(stage).isVisible()
    again = [c for c in stage.engine.commands if isinstance(c, LoadModel)]
    assert [(c.path, c.models_dir, c.config) for c in again] == [
        (c.path, c.models_dir, c.config) for c in loads
    ]
    assert SetFocus(conversation_id) in stage.engine.commands
    ask(stage, qtbot, "and then?")
    (submit,) = [c for c in stage.engine.commands if isinstance(c, Submit)]
    assert [m.role for m in submit.messages][-3:] == ["user", "assistant", "user"]
    assert submit.messages[-2].content == partial.content
    assert submit.messages[-2].turn == partial.turn


def test_question_that_was_not_answered_yet_is_back_in_the_composer(stage, qtbot):
    stage.engine.hold_load.set()
    stage.session.load_model()
    conversation_id = stage.window.tab_area.tabs.current_id()
    stage.window.submit_text(conversation_id, "precious words")
    stage.engine.hold_load.clear()
    stage.engine.die(FAULT)
    qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.page.composer.edit.toPlainText() == "precious words"
    assert path(stage, conversation_id) == []


def test_cache_panel_is_subscribed_at_the_new_engine_too(stage, qtbot):
    qtbot.waitUntil(lambda: any(isinstance(c, SubscribePool) for c in stage.engine.commands))
    die(stage, qtbot)
    stage.session.retry_model()
    qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY)
    assert len(stage.engines) == 2
    assert any(isinstance(c, SubscribePool) for c in stage.engine.commands)
    ask(stage, qtbot)
    qtbot.waitUntil(lambda: stage.window.cache_panel.isVisible())
    assert stage.session.is_busy(stage.window.tab_area.tabs.current_id())


def test_it_can_die_again_and_be_restarted_again(stage, qtbot):
    for count in (2, 3):
        die(stage, qtbot)
        press(qtbot, card(stage).restart_engine_button)
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY)
        assert len(stage.engines) == count


def test_lost_device_offers_a_new_process_only(stage, qtbot):
    ask(stage, qtbot)
    die(stage, qtbot, LOST)
    assert stage.session.model_state.error == LOST
    assert card(stage).restart_program_button.isVisible()
    assert not card(stage).restart_engine_button.isVisible()
    assert not card(stage).choose_button.isVisible()
    stage.session.retry_model()
    stage.session.load_model("other.gguf")
    qtbot.wait(50)
    assert len(stage.engines) == 1
    assert stage.session.model_state.error == LOST
    with qtbot.waitSignal(stage.session.program_restart_requested, timeout=1000):
        press(qtbot, card(stage).restart_program_button)


def test_report_of_the_thread_does_not_hide_that_the_device_is_lost(stage, qtbot):
    stage.engine.die(LOST)
    stage.engine._thread.join(5.0)
    stage.session.engine_died("DeviceLostError: …")
    assert stage.session.model_state.error == LOST


def test_same_words_are_not_shown_twice(stage, qtbot):
    conversation_id = ask(stage, qtbot)
    # As a question does that had no answer yet, just before the engine says why it ended.
    stage.session.notice_raised.emit(Notice(Severity.ERROR, FAULT, conversation_id))
    assert len(stage.page.notices.bars) == 1
    die(stage, qtbot)
    assert stage.page.notices.bars == []
    assert FAULT.message in card(stage).cause.text()
