"""Acting on messages through the session: continue, edit, pin, fork."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.answer_facts import EDITED
from app.conversation import REPEATS, MessageStatus
from engine.api.commands import Continue, Pin, Unpin
from engine.api.errors import NoModelError, NotSupportedYetError
from engine.api.events import CommandFailed
from engine.api.params import SamplingParams
from tests.helpers.acting_session import STORY, TOO_LONG, asked, stored_texts, story_stage, texts
from tests.helpers.session_stage import SessionStage as Stage


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with story_stage(tmp_path / "profile", qtbot) as made:
        yield made


def test_an_answer_ended_by_its_limit_is_gone_on_with_in_place(stage: Stage) -> None:
    conversation_id = asked(stage, "one", max_tokens=5)
    answer = stage.path(conversation_id)[-1]
    assert answer.content == "It is a long story"
    first_turn = answer.turn
    stage.session.change_settings(sampling=SamplingParams(max_tokens=100))
    answer.params = SamplingParams(max_tokens=100)
    assert stage.session.continue_answer(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1] is answer
    assert answer.content == STORY
    assert (answer.status, answer.limit) == (MessageStatus.DONE, "")
    (command,) = [c for c in stage.engine.commands if isinstance(c, Continue)]
    assert command.messages[-1].turn == first_turn
    assert answer.turn is not None
    assert first_turn is not None
    assert answer.turn.output_ids[:5] == first_turn.output_ids
    assert stored_texts(stage, conversation_id) == ["one", STORY]


def test_the_rest_of_an_answer_is_drawn_with_the_answers_own_seed(stage: Stage) -> None:
    conversation_id = asked(stage, "one", max_tokens=5)
    answer = stage.path(conversation_id)[-1]
    answer.seed = 4711
    stage.session.continue_answer(conversation_id)
    stage.wait_idle(conversation_id)
    (command,) = [c for c in stage.engine.commands if isinstance(c, Continue)]
    assert command.params.seed == 4711


def test_a_complete_answer_is_not_gone_on_with(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    assert not stage.session.continue_answer(conversation_id)
    assert stage.codes() == ["nothing_to_continue"]


def test_an_answer_in_the_middle_is_gone_on_with_as_another_version(stage: Stage) -> None:
    conversation_id = asked(stage, "one", max_tokens=5)
    first = stage.path(conversation_id)[1]
    stage.session.send(conversation_id, "two")
    stage.wait_idle(conversation_id)
    assert stage.session.continue_answer(conversation_id, first.message_id)
    stage.wait_idle(conversation_id)
    path = stage.path(conversation_id)
    assert [m.content.split()[0] for m in path] == ["one", "It"]
    assert path[1] is not first
    assert path[1].content.startswith(first.content + " with")
    stage.session.select_version(conversation_id, first.message_id)
    assert len(stage.path(conversation_id)) == 4


def test_a_refused_continuation_leaves_the_answer_as_it_was(stage: Stage) -> None:
    conversation_id = asked(stage, "one", max_tokens=5)
    answer = stage.path(conversation_id)[-1]
    before = (answer.content, answer.status, answer.limit, answer.turn, answer.usage, answer.facts)
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.session.continue_answer(conversation_id)
    stage.wait_idle(conversation_id)
    after = (answer.content, answer.status, answer.limit, answer.turn, answer.usage, answer.facts)
    assert after == before
    assert stage.codes() == ["prompt_too_long"]
    assert stored_texts(stage, conversation_id) == ["one", "It is a long story"]
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_continuation_stopped_while_the_model_loads_leaves_the_answer_as_it_was(
    stage: Stage,
) -> None:
    conversation_id = asked(stage, "one", max_tokens=5)
    answer = stage.path(conversation_id)[-1]
    stage.engine.hold_load.set()
    stage.session.load_model()
    stage.session.continue_answer(conversation_id)
    assert stage.session.request_state(conversation_id).reason == "loading"
    stage.session.stop(conversation_id)
    stage.engine.hold_load.clear()
    assert (answer.status, answer.limit) == (MessageStatus.DONE, "max_tokens")
    assert not stage.session.is_busy(conversation_id)


def test_an_edited_question_is_another_version_and_the_old_branch_stays(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    question = stage.path(conversation_id)[0]
    assert stage.session.edit(conversation_id, question.message_id, "uno")
    stage.wait_idle(conversation_id)
    assert texts(stage, conversation_id) == ["uno", STORY]
    conversation = stage.session.conversation(conversation_id)
    assert [m.content for m in conversation.siblings(question.message_id)] == ["one", "uno"]
    stage.session.select_version(conversation_id, question.message_id)
    assert texts(stage, conversation_id) == ["one", STORY, "two", STORY]
    assert stored_texts(stage, conversation_id) == ["one", STORY, "two", STORY]


def test_an_edited_question_whose_answer_is_refused_is_not_lost(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    question = stage.path(conversation_id)[0]
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.session.edit(conversation_id, question.message_id, "much longer")
    stage.wait_idle(conversation_id)
    assert texts(stage, conversation_id) == ["much longer"]
    stage.engine.refusal = lambda _submit: None
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    assert stored_texts(stage, conversation_id) == ["much longer", STORY]


def test_an_edited_answer_is_a_version_without_ids_that_can_be_gone_on_with(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    answer = stage.path(conversation_id)[-1]
    stage.session.edit(conversation_id, answer.message_id, "It is a long story")
    edited = stage.path(conversation_id)[-1]
    assert (edited.content, edited.turn) == ("It is a long story", None)
    assert edited.facts == {EDITED: 1}
    assert len(stage.submits()) == 1
    assert stage.session.continue_answer(conversation_id)
    stage.wait_idle(conversation_id)
    assert edited.content == STORY
    assert answer.content == STORY


def test_an_edit_to_the_same_text_asks_nothing(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    question = stage.path(conversation_id)[0]
    assert stage.session.edit(conversation_id, question.message_id, "one")
    assert len(stage.submits()) == 1
    assert len(stage.session.conversation(conversation_id).messages) == 2


def test_the_branch_that_was_shown_last_comes_back_with_its_version(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    first = stage.path(conversation_id)[0]
    stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    older = stage.session.conversation(conversation_id).siblings(
        stage.path(conversation_id)[-1].message_id
    )[0]
    stage.session.select_version(conversation_id, older.message_id)
    stage.session.edit(conversation_id, first.message_id, "uno")
    stage.wait_idle(conversation_id)
    stage.session.select_version(conversation_id, first.message_id)
    assert stage.path(conversation_id)[-1] is older


def pins(stage: Stage) -> list[Pin]:
    return [c for c in stage.engine.commands if isinstance(c, Pin)]


def test_a_pin_follows_the_conversation_as_it_grows(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    stage.session.keep_in_cache(conversation_id, True)
    stage.session.send(conversation_id, "two")
    stage.wait_idle(conversation_id)
    stage.wait(lambda: bool(pins(stage)) and len(pins(stage)[-1].messages) == 5)
    assert pins(stage)[-1].messages[-1].content == STORY
    assert pins(stage)[-1].messages[-1].turn is not None
    stage.session.keep_in_cache(conversation_id, False)
    stage.wait(lambda: any(isinstance(c, Unpin) for c in stage.engine.commands))
    assert not stage.session.is_kept_in_cache(conversation_id)


def test_a_closed_conversation_lets_its_blocks_go(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    stage.session.keep_in_cache(conversation_id, True)
    stage.session.close_conversation(conversation_id)
    stage.wait(lambda: Unpin(conversation_id) in stage.engine.commands)


def test_another_model_is_asked_to_keep_it_too(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    stage.session.keep_in_cache(conversation_id, True)
    stage.wait(lambda: len(pins(stage)) == 1)
    stage.session.load_model()
    stage.wait(lambda: len(pins(stage)) == 2)


def test_a_fork_at_a_question_has_the_question_as_its_draft(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    question = stage.path(conversation_id)[2]
    fork_id = stage.session.fork_question(conversation_id, question.message_id)
    assert texts(stage, fork_id) == ["one", STORY]
    assert stage.session.conversation(fork_id).draft == "two"
    first = stage.session.fork_question(conversation_id, stage.path(conversation_id)[0].message_id)
    assert texts(stage, first) == []
    assert stage.session.conversation(first).draft == "one"
    assert texts(stage, conversation_id) == ["one", STORY, "two", STORY]


def test_a_fork_forgets_which_answer_one_repeats(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    stage.session.repeat(conversation_id, stage.path(conversation_id)[-1].message_id)
    stage.wait_idle(conversation_id)
    fork_id = stage.session.fork(conversation_id)
    assert REPEATS in stage.path(conversation_id)[-1].facts
    assert REPEATS not in stage.path(fork_id)[-1].facts


def test_a_pin_that_came_too_late_for_its_model_is_kept_for_the_next(stage: Stage) -> None:
    """The model went while the pin's messages were encoded."""
    conversation_id = asked(stage, "one")
    stage.session.keep_in_cache(conversation_id, True)
    stage.wait(lambda: len(pins(stage)) == 1)
    error = NoModelError("The model was unloaded.").info()
    stage.engine.post(CommandFailed(pins(stage)[0].command_id, "Pin", error))
    stage.session.load_model()
    stage.wait(lambda: len(pins(stage)) == 2)
    assert stage.session.is_kept_in_cache(conversation_id)
    assert stage.codes() == []


def test_a_pin_that_is_refused_is_told_and_over(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    stage.session.keep_in_cache(conversation_id, True)
    stage.wait(lambda: len(pins(stage)) == 1)
    error = NotSupportedYetError("Pin is not supported yet.").info()
    stage.engine.post(CommandFailed(pins(stage)[0].command_id, "Pin", error))
    stage.wait(lambda: stage.codes() == ["not_supported_yet"])
    assert not stage.session.is_kept_in_cache(conversation_id)


def test_the_interrupted_rest_of_an_answer_is_not_taken_for_its_beginning(stage: Stage) -> None:
    stage.engine.script = lambda _submit: "word " * 1500
    conversation_id = asked(stage, "one", max_tokens=20)
    answer = stage.path(conversation_id)[-1]
    answer.params = SamplingParams()
    assert stage.session.continue_answer(conversation_id)
    stage.wait(lambda: len(answer.content.split()) > 30)
    stage.restart()
    answer = stage.path(conversation_id)[-1]
    assert answer.status is MessageStatus.INTERRUPTED
    assert len(answer.content.split()) > 30
    assert (answer.usage, answer.limit, answer.finish_reason) == (None, "", "")


def test_a_rest_that_never_began_leaves_the_account_of_the_answer(stage: Stage) -> None:
    conversation_id = asked(stage, "one", max_tokens=5)
    answer = stage.path(conversation_id)[-1]
    before = (answer.usage, answer.seed, answer.limit, answer.finish_reason)
    assert before[0] is not None
    stage.engine.refusal = lambda _submit: TOO_LONG
    answer.seed = 4711
    assert stage.session.continue_answer(conversation_id)
    answer.seed = 12
    stage.wait_idle(conversation_id)
    expected = (before[0], 4711, *before[2:])
    assert (answer.usage, answer.seed, answer.limit, answer.finish_reason) == expected
    stage.restart()
    answer = stage.path(conversation_id)[-1]
    assert (answer.usage, answer.seed, answer.limit, answer.finish_reason) == expected
