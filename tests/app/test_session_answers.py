"""Several answers to one question, and an answer that runs again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.answer_facts import departure
from app.conversation import ASSISTANT, REPEATS, Message, MessageStatus
from engine.api.errors import ErrorInfo
from engine.api.events import FinishReason, RequestFinished, RequestUsage
from engine.api.params import SamplingParams
from tests.helpers.acting_session import TOO_LONG, asked, stored_texts, story_stage, texts
from tests.helpers.session_stage import SessionStage as Stage

GIVEN = 30
"""Tokens of an answer that is cut off."""


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with story_stage(tmp_path / "profile", qtbot) as made:
        yield made


def several(stage: Stage) -> str:
    numbers = count(1)
    stage.engine.script = lambda _submit: f"Answer number {next(numbers)} of some."
    conversation_id = asked(stage)
    assert stage.session.send(conversation_id, "Which?", num_answers=3)
    return conversation_id


def test_several_answers_are_asked_for_at_once_and_stream_side_by_side(stage: Stage) -> None:
    conversation_id = several(stage)
    (submit,) = [stage.wait(lambda: bool(stage.submits())) or stage.submits()[0]]
    assert len(submit.request_ids) == 3
    compared = stage.session.compared(conversation_id)
    stage.wait_idle(conversation_id)
    conversation = stage.session.conversation(conversation_id)
    shown = [conversation.message(message_id).content for message_id in compared]
    assert shown == [f"Answer number {n} of some." for n in (1, 2, 3)]
    assert stage.path(conversation_id)[-1].message_id == compared[0]


def test_the_chosen_answer_goes_on_and_the_others_stay_as_versions(stage: Stage) -> None:
    conversation_id = several(stage)
    compared = stage.session.compared(conversation_id)
    stage.wait_idle(conversation_id)
    stage.session.end_comparison(conversation_id, compared[1])
    assert stage.session.compared(conversation_id) == ()
    assert stage.session.send(conversation_id, "More")
    stage.wait_idle(conversation_id)
    assert stage.submits()[-1].messages[2].content == "Answer number 2 of some."
    conversation = stage.session.conversation(conversation_id)
    assert [m.message_id for m in conversation.siblings(compared[1])] == list(compared)


def test_choosing_stops_the_others_that_still_run(stage: Stage) -> None:
    stage.engine.script = lambda _submit: "word " * 400
    conversation_id = asked(stage)
    stage.session.send(conversation_id, "Which?", num_answers=2)
    compared = stage.session.compared(conversation_id)
    conversation = stage.session.conversation(conversation_id)
    stage.wait(lambda: all(conversation.message(i).content for i in compared))
    stage.session.end_comparison(conversation_id, compared[1])
    other = conversation.message(compared[0])
    stage.wait(lambda: other.status is MessageStatus.STOPPED)
    assert conversation.message(compared[1]).status is MessageStatus.STREAMING
    stage.session.stop(conversation_id)
    stage.wait_idle(conversation_id)
    assert other.content


def test_one_of_several_answers_can_be_stopped_alone(stage: Stage) -> None:
    stage.engine.script = lambda _submit: "word " * 60
    conversation_id = asked(stage)
    stage.session.send(conversation_id, "Which?", num_answers=2)
    first, second = stage.session.compared(conversation_id)
    conversation = stage.session.conversation(conversation_id)
    stage.wait(lambda: bool(conversation.message(first).content))
    stage.session.stop(conversation_id, first)
    stage.wait_idle(conversation_id)
    assert conversation.message(first).status is MessageStatus.STOPPED
    assert conversation.message(second).status is MessageStatus.DONE


def test_one_of_several_stopped_before_the_model_is_there_is_not_asked_for(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "Which?", num_answers=3)
    stage.session.stop(conversation_id, stage.session.compared(conversation_id)[1])
    stage.start()
    stage.wait_idle(conversation_id)
    (submit,) = stage.submits()
    assert len(submit.request_ids) == 2


def test_refused_together_several_answers_give_the_question_back(stage: Stage) -> None:
    stage.engine.refusal = lambda _submit: TOO_LONG
    conversation_id = asked(stage)
    stage.session.send(conversation_id, "very long", num_answers=3)
    stage.wait_idle(conversation_id)
    conversation = stage.session.conversation(conversation_id)
    assert conversation.messages == {}
    assert conversation.draft == "very long"
    assert stored_texts(stage, conversation_id) == []


def test_one_refused_of_several_leaves_the_others(stage: Stage) -> None:
    stage.restart(tokens_per_s=4.0, script=lambda _submit: "Two words.")
    conversation_id = asked(stage)
    stage.session.send(conversation_id, "Which?", num_answers=2)
    while not stage.submits():
        # Not through the event loop, which would bring the first words.
        time.sleep(0.001)
    first, second = stage.session.compared(conversation_id)
    error = ErrorInfo("out_of_memory", "No memory for 3 blocks.")
    finished = RequestFinished(
        stage.submits()[0].request_ids[0],
        conversation_id,
        FinishReason.ERROR,
        "",
        RequestUsage(),
        None,
        1,
        error=error,
    )
    stage.session._on_bridge_engine_event(finished)
    conversation = stage.session.conversation(conversation_id)
    assert first not in conversation.messages
    stage.wait_idle(conversation_id)
    assert texts(stage, conversation_id) == ["Which?", "Two words."]
    assert stage.path(conversation_id)[-1].message_id == second


def test_an_answer_runs_again_with_its_seed_and_parameters(stage: Stage) -> None:
    conversation_id = asked(stage, "one", temperature=0.3)
    answer = stage.path(conversation_id)[-1]
    stage.session.change_settings(sampling=SamplingParams(temperature=1.0))
    assert stage.session.repeat(conversation_id, answer.message_id)
    stage.wait_idle(conversation_id)
    again = stage.path(conversation_id)[-1]
    assert stage.submits()[1].params.temperature == 0.3
    assert stage.submits()[1].params.seed == answer.seed
    assert stage.submits()[1].messages == stage.submits()[0].messages
    assert again.facts == {REPEATS: answer.message_id}
    assert departure(answer, again).is_same


def test_another_system_prompt_is_why_an_answer_cannot_run_again(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    answer = stage.path(conversation_id)[-1]
    stage.session.set_system_prompt(conversation_id, "Be brief.")
    assert not stage.session.repeat(conversation_id, answer.message_id)
    assert stage.codes() == ["not_repeatable"]
    assert "system prompt" in stage.notices[0].error.message


def test_a_departure_names_the_first_other_token_and_character() -> None:
    first = Message(ASSISTANT, "one two three", finish_reason="stop")
    again = Message(ASSISTANT, "one too three", finish_reason="stop")
    found = departure(first, again)
    assert (found.is_same, found.char) == (False, 6)


def test_an_answer_that_was_stopped_is_the_same_as_far_as_it_goes() -> None:
    first = Message(ASSISTANT, "one two", finish_reason="cancelled")
    again = Message(ASSISTANT, "one two three", finish_reason="stop")
    found = departure(first, again)
    assert (found.is_same, found.is_cut) == (True, True)


def test_what_the_model_has_of_a_running_answer_is_known(stage: Stage) -> None:
    stage.engine.script = lambda _submit: "word " * 400
    conversation_id = asked(stage, "one", max_tokens=GIVEN)
    assert stage.session.tokens_so_far == {}
    answer = stage.path(conversation_id)[-1]
    assert answer.usage is not None
    prompt = answer.usage.prompt_tokens
    # In the rest of an answer what there is of it is part of the prompt, and counts once.
    stage.session.continue_answer(conversation_id)
    seen: list[tuple[int, int]] = []

    def is_going_on() -> bool:
        tokens = stage.session.tokens_so_far.get(answer.message_id, 0)
        seen.append((tokens, len(answer.streamed_ids)))
        return seen[-1][1] > GIVEN + 2

    stage.wait(is_going_on)
    assert all(tokens in (0, prompt + streamed) for tokens, streamed in seen)
    assert seen[-1][0] == prompt + seen[-1][1]
    stage.session.stop(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.session.tokens_so_far == {}
    assert answer.usage.prompt_tokens + answer.usage.output_tokens >= seen[-1][0]


def test_the_facts_of_an_answer_are_there_after_a_restart(stage: Stage) -> None:
    conversation_id = asked(stage, "one", temperature=0.3, max_tokens=5)
    stage.session.continue_answer(conversation_id)
    stage.wait_idle(conversation_id)
    stage.session.repeat(conversation_id, stage.path(conversation_id)[-1].message_id)
    stage.wait_idle(conversation_id)

    def known() -> list[object]:
        messages = stage.session.conversation(conversation_id).messages.values()
        return [
            (m.usage, m.params, m.seed, m.model, m.finish_reason, m.limit, m.turn, m.facts)
            for m in messages
        ]

    before = known()
    stage.restart()
    assert known() == before
