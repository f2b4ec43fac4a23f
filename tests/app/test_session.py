"""The session's answers with a scripted engine: sending, refusals, stopping, regenerating."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import ASSISTANT, USER, MessageStatus
from app.session_state import ModelStatus
from engine.api.errors import (
    ErrorInfo,
    PromptTooLongError,
)
from engine.api.events import (
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    RequestFinished,
    RequestUsage,
)
from engine.api.params import SamplingParams
from tests.helpers.fake_engine import MODEL
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage

TOO_LONG = PromptTooLongError("Prompt of 9,000 tokens, context of 2,048.", prompt_tokens=9000)


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        yield made


def test_an_answer_streams_in_and_ends_with_its_figures(stage: Stage) -> None:
    pieces: list[str] = []
    stage.session.text_appended.connect(lambda _c, _m, text: pieces.append(text))
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "How are you?")
    stage.wait_idle(conversation_id)
    question, answer = stage.path(conversation_id)
    assert (question.role, question.content) == (USER, "How are you?")
    assert answer.content == "".join(pieces)
    assert answer.content.startswith("You asked: How are you?")
    assert (answer.role, answer.status, answer.model) == (ASSISTANT, MessageStatus.DONE, MODEL.name)
    assert answer.turn is not None
    assert answer.usage is not None
    assert answer.usage.output_tokens == len(answer.turn.output_ids)
    assert answer.seed is not None
    assert len(pieces) > 3


def test_the_engine_gets_system_prompt_question_and_sampling(stage: Stage) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=5)
    stage.session.change_settings(sampling=sampling)
    stage.start()
    conversation_id = stage.session.new_conversation("Be brief.")
    stage.session.send(conversation_id, "Hi")
    stage.wait_idle(conversation_id)
    (submit,) = stage.submits()
    assert [(m.role, m.content) for m in submit.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    assert submit.params == sampling
    assert submit.conversation_id == conversation_id
    assert stage.path(conversation_id)[-1].limit == "max_tokens"


def test_the_next_turn_sends_the_exact_ids_of_the_one_before(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    for text in ("one", "two"):
        stage.session.send(conversation_id, text)
        stage.wait_idle(conversation_id)
    turn = stage.path(conversation_id)[1].turn
    assert turn is not None
    assert stage.submits()[1].messages[2].turn == turn


def test_a_fork_sends_the_same_history_with_the_same_ids(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    fork_id = stage.session.fork(conversation_id)
    assert stage.session.conversation_ids() == [conversation_id, fork_id]
    for each in (conversation_id, fork_id):
        stage.session.send(each, "two")
        stage.wait_idle(each)
    assert stage.submits()[1].messages == stage.submits()[2].messages
    assert len(stage.path(conversation_id)) == len(stage.path(fork_id)) == 4


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_message_is_refused_with_a_notice(stage: Stage, text: str) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert not stage.session.send(conversation_id, text)
    assert stage.codes() == ["empty_message"]
    assert stage.path(conversation_id) == []


def test_a_second_message_while_answering_is_refused(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "one")
    assert not stage.session.send(conversation_id, "two")
    assert stage.codes() == ["answer_running"]
    stage.wait_idle(conversation_id)


def test_a_refused_prompt_goes_back_to_the_composer(stage: Stage) -> None:
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "very long")
    question, answer = stage.path(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id) == []
    assert stage.said[-3:] == [
        ("message_removed", conversation_id, answer.message_id),
        ("message_removed", conversation_id, question.message_id),
        ("draft_restored", conversation_id, "very long"),
    ]
    assert stage.codes() == ["prompt_too_long"]
    assert stage.notices[0].conversation_id == conversation_id
    stage.engine.refusal = lambda _submit: None
    assert stage.session.send(conversation_id, "short")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_refused_message_leaves_no_title_behind(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "Hello")
    stage.wait_idle(conversation_id)
    conversation = stage.session.conversation(conversation_id)
    assert conversation.title == "Hello"
    stage.engine.refusal = lambda _submit: TOO_LONG
    assert stage.session.send(conversation_id, "Explain volcanoes")
    assert conversation.title == "Explain volcanoes"
    stage.wait_idle(conversation_id)
    assert conversation.title == "Hello"
    conversation.title, conversation.title_is_automatic = "Explain volcanoes", False
    assert stage.session.send(conversation_id, "Explain volcanoes")
    stage.wait_idle(conversation_id)
    assert conversation.title == "Explain volcanoes"


def test_a_refused_prompt_leaves_nothing_in_the_store_but_the_draft(stage: Stage) -> None:
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "very long")
    stage.wait_idle(conversation_id)
    stage.restart()
    assert stage.path(conversation_id) == []
    assert stage.session.conversation(conversation_id).draft == "very long"


def test_stop_keeps_what_has_come(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "stop me")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.session.stop(conversation_id)
    stage.wait_idle(conversation_id)
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.STOPPED
    assert answer.turn is not None
    assert 20 < len(answer.content) < 200


def test_stop_works_while_the_model_is_still_loading(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "early")
    stage.session.stop(conversation_id)
    assert not stage.session.is_busy(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.STOPPED
    stage.start()
    stage.qtbot.wait(50)
    assert stage.submits() == []


def test_stop_without_an_answer_does_nothing(stage: Stage) -> None:
    stage.session.stop(stage.session.new_conversation())
    assert stage.notices == []


def test_regenerate_makes_a_second_version_and_keeps_the_first(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    first = stage.path(conversation_id)[-1]
    stage.engine.script = lambda _submit: "Another answer."
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    second = stage.path(conversation_id)[-1]
    assert second.content == "Another answer."
    conversation = stage.session.conversation(conversation_id)
    assert conversation.siblings(first.message_id) == [first, second]
    assert len(stage.submits()[1].messages) == 2
    stage.session.select_version(conversation_id, first.message_id)
    assert stage.path(conversation_id)[-1] is first


def test_a_refused_regeneration_shows_the_old_answer_again(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one")
    stage.wait_idle(conversation_id)
    first = stage.path(conversation_id)[-1]
    stage.engine.refusal = lambda _submit: TOO_LONG
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1] is first
    assert "draft_restored" not in stage.names()
    stage.restart()
    assert stage.path(conversation_id)[-1].content == first.content


def test_regenerate_without_an_answer_is_refused(stage: Stage) -> None:
    stage.start()
    assert not stage.session.regenerate(stage.session.new_conversation())
    assert stage.codes() == ["empty_message"]


def test_four_conversations_stream_at_once_and_stay_apart(stage: Stage) -> None:
    stage.start()
    ids = [stage.session.new_conversation() for _ in range(4)]
    for n, conversation_id in enumerate(ids):
        assert stage.session.send(conversation_id, f"number {n}")
    assert all(stage.session.is_busy(conversation_id) for conversation_id in ids)
    for n, conversation_id in enumerate(ids):
        stage.wait_idle(conversation_id)
        assert f"number {n}" in stage.path(conversation_id)[-1].content


def test_a_dead_engine_fails_the_answer_and_leaves_the_session_usable(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    stage.session.engine_died("RuntimeError: boom")
    error = ErrorInfo("internal", "RuntimeError: boom")
    stage.engine.post(EngineStatusChanged(EngineStatus.FAILED, error=error))
    stage.qtbot.wait(50)
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.ERROR
    assert answer.error is not None
    assert stage.codes() == ["engine_died"]
    assert not stage.session.send(conversation_id, "more")
    assert stage.session.new_conversation() in stage.session.conversation_ids()
    stage.session.load_model()
    assert stage.session.model_state.status is ModelStatus.FAILED
    assert stage.codes() == ["engine_died", "no_model", "engine_died"]


def test_an_error_in_the_middle_keeps_the_text(stage: Stage) -> None:
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "go on")
    stage.wait(lambda: len(stage.path(conversation_id)[-1].content) > 20)
    error = ErrorInfo("out_of_memory", "No memory for 3 blocks.", "Close something.")
    (submit,) = stage.submits()
    stage.engine.post(
        RequestFinished(
            submit.request_ids[0],
            conversation_id,
            FinishReason.ERROR,
            "",
            RequestUsage(),
            None,
            1,
            error=error,
        )
    )
    stage.wait_idle(conversation_id)
    answer = stage.path(conversation_id)[-1]
    assert (answer.status, answer.error) == (MessageStatus.ERROR, error)
    assert len(answer.content) > 20
    assert stage.names().count("message_removed") == 0
