"""A regeneration that is cancelled, fails or is killed at any step leaves what opens again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import Conversation, MessageStatus
from app.paths import Profile
from app.session_state import ModelStatus, RequestPhase
from app.store import Store
from app.store_writer import Job, Key
from engine.api.errors import EngineError, ErrorInfo, PromptTooLongError
from tests.helpers.session_stage import SessionStage, session_stage

ANSWER = "An answer of some words, all of them needed. " * 8
DEATH = ErrorInfo("engine_died", "The engine ended.", "Restart it.")
STEPS = ("loading", RequestPhase.WAITING, RequestPhase.PREFILL, RequestPhase.DECODE)


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[SessionStage]:
    with session_stage(tmp_path / "張 庭 é's dir", qtbot) as stage:
        stage.restart(script=lambda _submit: ANSWER)
        yield stage


def answered(stage: SessionStage) -> str:
    """A conversation with a question and an answer."""
    stage.start()
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "question")
    stage.wait_idle(conversation_id)
    return conversation_id


def end(stage: SessionStage, conversation_id: str, how: str) -> None:
    match how:
        case "stopped":
            stage.session.stop(conversation_id)
        case "failed":
            stage.engine.die(DEATH)
        case "closed":
            stage.session.close_conversation(conversation_id)
        case "quit":
            stage.session.shut_down()


def require_sound(conversation: Conversation) -> None:
    """It shows a branch, down to a leaf, and what was there before is there."""
    path = conversation.path()
    assert path
    assert not conversation.children(path[-1].message_id)
    assert path[0].content == "question"
    contents = [message.content for message in conversation.messages.values()]
    assert ANSWER.strip() in [content.strip() for content in contents]
    for message in conversation.messages.values():
        assert message.parent_id is None or message.parent_id in conversation.messages


@pytest.mark.parametrize("how", ["stopped", "failed", "closed", "quit"])
@pytest.mark.parametrize("step", STEPS)
def test_ended_at_any_step_it_opens_again(
    stage: SessionStage, step: str | RequestPhase, how: str
) -> None:
    conversation_id = answered(stage)
    if step == "loading":
        stage.engine.hold_load.set()
        stage.session.load_model("other")
        stage.wait(lambda: stage.session.model_state.status is ModelStatus.LOADING)
    acted: list[bool] = []

    def act(changed: str) -> None:
        phase = stage.session.request_state(conversation_id).phase
        if not acted and changed == conversation_id and phase is step:
            acted.append(True)
            end(stage, conversation_id, how)

    stage.session.request_state_changed.connect(act)
    assert stage.session.regenerate(conversation_id)
    if step == "loading":
        acted.append(True)
        end(stage, conversation_id, how)
        stage.engine.hold_load.clear()
    stage.wait(lambda: bool(acted) and not stage.session.is_busy(conversation_id))
    if how != "closed":
        require_sound(stage.session.conversation(conversation_id))
    stage.restart(script=lambda _submit: ANSWER)
    assert stage.session.reopen_conversation(conversation_id)
    require_sound(stage.session.conversation(conversation_id))
    # And it goes on.
    stage.start()
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    last = stage.path(conversation_id)[-1]
    assert (last.status, last.content.strip()) == (MessageStatus.DONE, ANSWER.strip())


def test_refused_it_shows_the_old_answer_after_a_restart_too(stage: SessionStage) -> None:
    conversation_id = answered(stage)
    refusal: EngineError = PromptTooLongError("too long", prompt_tokens=9, context_length=8)
    stage.engine.refusal = lambda _submit: refusal
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    stage.restart()
    assert [m.content.strip() for m in stage.path(conversation_id)] == ["question", ANSWER.strip()]


class EveryState:
    """Runs each job in a transaction of its own, and keeps a copy of the database after each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.profiles: list[Profile] = []
        self._folder = folder
        monkeypatch.setattr("app.store_writer._run_batch", self._run_batch)

    def _run_batch(self, connection: sqlite3.Connection, batch: dict[Key, Job]) -> list[Exception]:
        for job in batch.values():
            connection.execute("BEGIN IMMEDIATE")
            job(connection)
            connection.execute("COMMIT")
            profile = Profile(self._folder / str(len(self.profiles)))
            profile.data_dir.mkdir(parents=True)
            with closing(sqlite3.connect(profile.database)) as copy:
                connection.backup(copy)
            self.profiles.append(profile)
        return []


def test_killed_between_any_two_transactions_it_opens_again(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session_stage(tmp_path / "profile", qtbot) as stage:
        stage.restart(script=lambda _submit: ANSWER)
        conversation_id = answered(stage)
        assert stage.store.flush()
        every = EveryState(tmp_path / "states", monkeypatch)
        assert stage.session.regenerate(conversation_id)
        stage.wait_idle(conversation_id)
        # What waits for a slow disk would be joined with what comes next.
        assert stage.store.flush()
        # One that is withdrawn again takes messages away.
        stage.engine.refusal = lambda _submit: PromptTooLongError("too long", prompt_tokens=9)
        assert stage.session.regenerate(conversation_id)
        stage.wait_idle(conversation_id)
        assert stage.store.flush()
        assert stage.session.edit(conversation_id, stage.path(conversation_id)[0].message_id, "?")
        stage.wait_idle(conversation_id)
        assert stage.store.flush()
        monkeypatch.undo()
    assert len(every.profiles) > 8
    for profile in every.profiles:
        store = Store(profile)
        conversation = store.load_conversation(conversation_id)
        assert store.close()
        assert conversation is not None
        path = conversation.path()
        assert path
        assert not conversation.children(path[-1].message_id)
        assert all(m.status is not MessageStatus.STREAMING for m in path)
        contents = [message.content.strip() for message in conversation.messages.values()]
        assert ANSWER.strip() in contents
