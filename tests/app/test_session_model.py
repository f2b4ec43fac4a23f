"""The session and the model: messages that wait for it, loads that fail, the next start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import MessageStatus
from app.session_state import ModelState, ModelStatus, RequestPhase
from engine.api.commands import LoadModel
from engine.api.errors import (
    ModelFileError,
    StarterModelMissingError,
)
from tests.helpers.fake_engine import MODEL
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        yield made


def test_a_message_before_the_model_waits_for_it(stage: Stage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.engine.hold_load.set()
    assert stage.session.send(conversation_id, "early")
    state = stage.session.request_state(conversation_id)
    assert (state.phase, state.reason) == (RequestPhase.WAITING, "loading")
    stage.bridge.start()
    stage.session.load_model()
    stage.qtbot.wait(60)
    assert stage.session.model_state.status is ModelStatus.LOADING
    assert stage.submits() == []
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_model_in_a_folder_whose_name_is_no_utf_8_answers_and_is_remembered(
    stage: Stage,
) -> None:
    # As the system gives the name of a folder in Latin-1.
    path = b"/mod\xe8les/model.gguf".decode("utf-8", "surrogateescape")
    stage.bridge.start()
    conversation_id = stage.session.new_conversation()
    stage.session.load_model(path)
    stage.session.send(conversation_id, "early")
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.READY)
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE
    stage.session.change_settings(theme="dark")
    assert stage.session.save_all()
    stage.restart()
    assert stage.settings.values.model_path == path
    assert os.path.abspath(path) in stage.session.library.places.files
    assert stage.codes() == []


def test_settings_that_cannot_be_written_keep_no_message_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_changes: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(stage.session, "change_settings", refuse)
    stage.bridge.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "early")
    with stage.qtbot.captureExceptions() as caught:
        stage.session.load_model("/models/model.gguf")
        stage.wait(lambda: bool(caught))
        stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_message_that_waits_for_a_model_that_fails_goes_back_to_the_composer(
    stage: Stage,
) -> None:
    stage.engine.load_error = ModelFileError("The file ends after 12 of 94 MB.")
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "early")
    stage.bridge.start()
    stage.session.load_model("broken.gguf")
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.path(conversation_id) == []
    assert stage.said[-1] == ("draft_restored", conversation_id, "early")
    assert stage.codes() == ["model_file"]
    assert not stage.session.send(conversation_id, "again")
    assert stage.codes() == ["model_file", "no_model"]


def test_after_a_failed_load_another_model_works(stage: Stage) -> None:
    stage.engine.load_error = ModelFileError("broken")
    stage.bridge.start()
    stage.session.load_model("broken.gguf")
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    stage.engine.load_error = None
    stage.start()
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, "now")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


def test_a_missing_starter_model_is_a_state_and_no_error(stage: Stage) -> None:
    stage.engine.load_error = StarterModelMissingError("It has not been fetched.")
    stage.bridge.start()
    stage.session.load_model()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.session.model_state.error is not None
    assert stage.session.model_state.error.code == "starter_model_missing"
    assert stage.notices == []
    stage.engine.load_error = None
    stage.session.fetch_starter()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.READY)
    loads = [c for c in stage.engine.commands if isinstance(c, LoadModel)]
    assert [load.fetch_starter for load in loads] == [False, True]


def test_a_model_that_was_loaded_is_loaded_again_at_the_next_start(stage: Stage) -> None:
    def load(path: str, remember: bool) -> str:
        stage.session.load_model(path, remember)
        stage.wait(lambda: stage.session.model_state.status is not ModelStatus.LOADING)
        return stage.settings.values.model_path

    stage.bridge.start()
    assert load("chosen.gguf", True) == "chosen.gguf"
    assert load("once.gguf", False) == "chosen.gguf"
    stage.engine.load_error = ModelFileError("broken")
    assert load("broken.gguf", True) == "chosen.gguf"


def test_loading_reports_its_progress(stage: Stage) -> None:
    seen: list[ModelState] = []
    stage.session.model_state_changed.connect(lambda: seen.append(stage.session.model_state))
    stage.start()
    stages = [(state.stage, state.fraction) for state in seen]
    assert stages[1:4] == [("weights", 0.0), ("weights", 0.5), ("warm_up", 0.0)]
    first, half, last = (state.progress for state in seen[1:4])
    assert 0.0 == first < half < last < 1.0
    assert stage.session.model_state.info == MODEL
    stage.session.load_model("other.gguf")
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.READY)
    assert [state.progress for state in seen[5:9]] == [0.0, first, half, last]
