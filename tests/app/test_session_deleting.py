"""Deleting messages, with a way back, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import USER, MessageStatus
from app.session_state import ModelStatus
from engine.api.commands import Cancel
from engine.api.errors import ModelNotFoundError
from engine.api.params import OverflowPolicy
from tests.helpers.acting_session import STORY, TOO_LONG, asked, stored_texts, story_stage, texts
from tests.helpers.session_stage import SessionStage as Stage


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with story_stage(tmp_path / "profile", qtbot) as made:
        yield made


def test_a_deleted_branch_comes_back_whole(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two", "three")
    before = texts(stage, conversation_id)
    third = stage.path(conversation_id)[2]
    stage.session.delete_branch(conversation_id, third.message_id)
    assert texts(stage, conversation_id) == ["one", STORY]
    assert stage.session.num_deleted(conversation_id) == 4
    assert stage.session.undo_delete(conversation_id)
    assert texts(stage, conversation_id) == before
    assert not stage.session.undo_delete(conversation_id)
    assert stored_texts(stage, conversation_id) == before


def test_what_was_deleted_stays_deleted_after_a_restart(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    stage.session.delete_branch(conversation_id, stage.path(conversation_id)[2].message_id)
    assert stored_texts(stage, conversation_id) == ["one", STORY]


def test_a_deleted_version_shows_the_one_beside_it(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    first = stage.path(conversation_id)[-1]
    stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    stage.session.delete_branch(conversation_id, stage.path(conversation_id)[-1].message_id)
    assert stage.path(conversation_id)[-1] is first


def test_a_deleted_pair_leaves_what_follows(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two", "three")
    second = stage.path(conversation_id)[2]
    stage.session.delete_pair(conversation_id, second.message_id)
    assert texts(stage, conversation_id) == ["one", STORY, "three", STORY]
    stage.session.send(conversation_id, "four")
    stage.wait_idle(conversation_id)
    asked_now = [m.content for m in stage.submits()[-1].messages if m.role == USER]
    assert asked_now == ["one", "three", "four"]
    assert stored_texts(stage, conversation_id)[2:4] == ["three", STORY]


def test_an_undone_pair_stands_where_it_stood(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two", "three")
    before = texts(stage, conversation_id)
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[0].message_id)
    assert texts(stage, conversation_id)[0] == "two"
    stage.session.undo_delete(conversation_id)
    assert texts(stage, conversation_id) == before
    assert stored_texts(stage, conversation_id) == before


def test_what_was_asked_after_a_deletion_is_shown_when_it_is_undone(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[0].message_id)
    stage.session.send(conversation_id, "three")
    stage.wait_idle(conversation_id)
    stage.session.undo_delete(conversation_id)
    whole = ["one", STORY, "two", STORY, "three", STORY]
    assert texts(stage, conversation_id) == whole
    assert stored_texts(stage, conversation_id) == whole


def test_messages_that_the_model_no_longer_reads_are_counted_anew(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two", "three")
    stage.session.set_overflow(conversation_id, OverflowPolicy.DROP_OLDEST)
    conversation = stage.session.conversation(conversation_id)
    stage.path(conversation_id)[-1].num_dropped = 4
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[0].message_id)
    assert conversation.num_dropped() == 2
    stage.session.undo_delete(conversation_id)
    assert conversation.num_dropped() == 4


def test_deleting_a_running_answer_stops_it(stage: Stage) -> None:
    stage.engine.script = lambda _submit: "word " * 400
    conversation_id = asked(stage)
    stage.session.send(conversation_id, "one")
    answer = stage.path(conversation_id)[-1]
    stage.wait(lambda: bool(answer.content))
    stage.session.delete_branch(conversation_id, answer.message_id)
    assert not stage.session.is_busy(conversation_id)
    stage.wait(lambda: any(isinstance(c, Cancel) for c in stage.engine.commands))
    assert stored_texts(stage, conversation_id) == ["one"]


def test_undoing_a_deletion_leaves_a_running_answer_alone(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    stage.session.delete_branch(conversation_id, stage.path(conversation_id)[2].message_id)
    stage.engine.script = lambda _submit: "word " * 60
    stage.session.send(conversation_id, "other")
    answer = stage.path(conversation_id)[-1]
    stage.wait(lambda: bool(answer.content))
    stage.session.undo_delete(conversation_id)
    assert texts(stage, conversation_id) == ["one", STORY, "two", STORY]
    stage.wait_idle(conversation_id)
    assert answer.status is MessageStatus.DONE


def test_deleting_an_earlier_pair_leaves_a_running_answer_alone(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    stage.engine.script = lambda _submit: "word " * 60
    stage.session.send(conversation_id, "two")
    answer = stage.path(conversation_id)[-1]
    stage.wait(lambda: bool(answer.content))
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[0].message_id)
    stage.wait_idle(conversation_id)
    assert answer.status is MessageStatus.DONE
    assert len(texts(stage, conversation_id)) == 2


def test_a_refusal_after_a_deletion_shows_what_is_left(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    stage.engine.hold_load.set()
    stage.session.load_model()
    stage.session.send(conversation_id, "three")
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[2].message_id)
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert texts(stage, conversation_id) == ["one", STORY]
    assert stage.session.conversation(conversation_id).draft == "three"
    assert stored_texts(stage, conversation_id) == ["one", STORY]


def test_undoing_a_deletion_whose_leaf_is_gone_shows_what_came_back(stage: Stage) -> None:
    conversation_id = asked(stage, "one", "two")
    stage.engine.hold_load.set()
    stage.session.load_model()
    stage.session.send(conversation_id, "three")
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[0].message_id)
    stage.engine.refusal = lambda _submit: TOO_LONG
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert texts(stage, conversation_id) == ["two", STORY]
    stage.session.undo_delete(conversation_id)
    assert texts(stage, conversation_id) == ["one", STORY, "two", STORY]


def test_an_answer_deleted_before_the_load_failed_comes_back_below_its_question(
    stage: Stage,
) -> None:
    stage.engine.load_error = ModelNotFoundError("It is gone.")
    stage.engine.hold_load.set()
    stage.bridge.start()
    stage.session.load_model()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "one", num_answers=2)
    stage.session.delete_branch(conversation_id, stage.session.compared(conversation_id)[0])
    stage.engine.hold_load.clear()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert texts(stage, conversation_id) == ["one"]
    assert stage.session.conversation(conversation_id).draft == ""
    assert stage.session.undo_delete(conversation_id)
    assert texts(stage, conversation_id) == ["one", ""]
    stage.engine.load_error = None
    stage.start()
    stage.session.send(conversation_id, "two")
    stage.wait_idle(conversation_id)
    assert stage.session.save_all()
    assert stored_texts(stage, conversation_id) == ["one", "", "two", STORY]
