"""Memory is freed when nothing is asked, and never under an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import idle_unload
from app.conversation import MessageStatus
from app.session_state import ModelStatus
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage

MINUTE_MS = 80


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(idle_unload, "MINUTE_MS", MINUTE_MS)
    with session_stage(tmp_path / "profile", qtbot) as made:
        made.start()
        yield made


def test_by_default_the_model_stays(stage: Stage) -> None:
    stage.qtbot.wait(3 * MINUTE_MS)
    assert stage.session.model_state.status is ModelStatus.READY


def test_after_the_time_the_model_is_let_go_and_the_next_message_is_answered(stage: Stage) -> None:
    stage.session.change_settings(idle_unload_minutes=1)
    stage.wait(lambda: stage.session.model_state.is_asleep)
    conversation_id = stage.session.new_conversation()
    assert stage.session.send(conversation_id, "Hello")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_an_answer_that_takes_longer_is_not_cut_short(stage: Stage) -> None:
    stage.engine.script = lambda _submit: "word " * 100
    conversation_id = stage.session.new_conversation()
    stage.session.change_settings(idle_unload_minutes=1)
    assert stage.session.send(conversation_id, "Hello")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].content.count("word") == 100
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_switched_off_again_the_model_stays(stage: Stage) -> None:
    stage.session.change_settings(idle_unload_minutes=1)
    stage.session.change_settings(idle_unload_minutes=0)
    stage.qtbot.wait(3 * MINUTE_MS)
    assert stage.session.model_state.status is ModelStatus.READY
