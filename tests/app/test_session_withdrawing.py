"""Questions that come to nothing: what goes back to the composer, and what stays."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.cache_pins import pin_cost
from app.conversation import Conversation, MessageStatus
from app.session_state import ModelStatus
from app.widgets.words import answer_footer
from engine.api.commands import Submit
from engine.api.errors import ModelNotFoundError
from engine.api.events import FinishReason
from engine.api.refusal import unstarted
from tests.helpers.acting_session import STORY, TOO_LONG, asked, story_stage, texts
from tests.helpers.session_stage import SessionStage as Stage


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with story_stage(tmp_path / "profile", qtbot) as made:
        yield made


def hold_a_load(stage: Stage) -> None:
    stage.engine.load_error = ModelNotFoundError("It is gone.")
    stage.engine.hold_load.set()
    stage.bridge.start()
    stage.session.load_model()


@pytest.mark.parametrize("is_chosen", [True, False])
def test_a_failed_load_gives_back_what_waits_although_one_of_several_was_stopped(
    stage: Stage, is_chosen: bool
) -> None:
    hold_a_load(stage)
    session = stage.session
    first, other = session.new_conversation(), session.new_conversation()
    session.send(first, "Which?", num_answers=2)
    session.send(other, "The other tab")
    stopped, chosen = session.compared(first)
    if is_chosen:
        session.end_comparison(first, chosen)
    else:
        session.stop(first, stopped)
    stage.engine.hold_load.clear()
    stage.wait(lambda: session.model_state.status is ModelStatus.FAILED)
    assert not session.is_busy(first)
    assert not session.is_busy(other)
    assert session.conversation(other).draft == "The other tab"
    # The question has an answer, though an empty one, and stays.
    assert [m.message_id for m in stage.path(first)][1:] == [stopped]
    assert stage.path(first)[-1].status is MessageStatus.STOPPED
    assert session.conversation(first).draft == ""
    stage.engine.load_error = None
    stage.start()
    session.regenerate(first)
    stage.wait_idle(first)
    assert texts(stage, first) == ["Which?", STORY]


def test_a_stopped_load_ends_although_one_of_several_was_stopped(stage: Stage) -> None:
    hold_a_load(stage)
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "Which?", num_answers=2)
    stage.session.stop(conversation_id, stage.session.compared(conversation_id)[1])
    stage.session.stay_with_model()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.NO_MODEL)
    assert not stage.session.is_busy(conversation_id)


def test_the_question_before_does_not_hide_one_that_stays(stage: Stage) -> None:
    conversation_id = asked(stage, "one")
    hold_a_load(stage)
    stage.session.send(conversation_id, "two", num_answers=2)
    stage.session.delete_branch(conversation_id, stage.session.compared(conversation_id)[0])
    stage.session.stay_with_model()
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert texts(stage, conversation_id)[:3] == ["one", STORY, "two"]


def test_a_refused_question_is_a_draft_as_soon_as_it_is_no_message(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.engine.refusal = lambda _submit: TOO_LONG
    conversation_id = asked(stage)
    save = stage.store.save_conversation
    stored: list[int] = []

    def save_late(conversation: Conversation) -> None:
        if conversation.draft:
            # Time enough for the writer to store what was queued before.
            with closing(sqlite3.connect(stage.profile.database)) as connection:
                deadline = time.monotonic() + 1.0
                count = 2
                while count and time.monotonic() < deadline:
                    count = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
                    time.sleep(0.01)
            stored.append(count)
        save(conversation)

    monkeypatch.setattr(stage.store, "save_conversation", save_late)
    stage.session.send(conversation_id, "very long")
    assert stage.session.save_all()
    stage.wait_idle(conversation_id)
    assert stored == [2]
    assert stage.session.save_all()
    with closing(sqlite3.connect(stage.profile.database)) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (0,)
        assert connection.execute("SELECT draft FROM conversations").fetchall() == [("very long",)]


def test_an_answer_stopped_before_its_prompt_was_read_has_no_account(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation_id = asked(stage, "one", seed=3)
    before = pin_cost(stage.session.conversation(conversation_id), stage.session.model_state.info)

    def end(submit: Submit, _script: object, _given: str = "") -> None:
        for request_id in submit.request_ids:
            stage.engine.post(unstarted(submit, request_id, FinishReason.CANCELLED))

    monkeypatch.setattr(stage.engine._requests, "submit", end)
    stage.session.send(conversation_id, "two")
    stage.wait_idle(conversation_id)
    answer = stage.path(conversation_id)[-1]
    assert (answer.status, answer.usage, answer.seed) == (MessageStatus.STOPPED, None, None)
    assert answer.finish_reason == FinishReason.CANCELLED
    assert answer_footer(answer, "")[0] == "Stopped"
    after = pin_cost(stage.session.conversation(conversation_id), stage.session.model_state.info)
    assert after == before
