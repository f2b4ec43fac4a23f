"""Another model under open conversations: nothing of them is lost, whatever happens to the load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import MessageStatus
from app.session_state import ModelStatus, RequestPhase
from engine.api.commands import Cancel, LoadModel, UnloadModel
from engine.api.errors import DeviceLostError, ModelFileError
from engine.api.events import Event, ModelLoaded, ModelLoading
from tests.helpers.fake_engine import MODEL, repeat_question
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage

OTHER = "other.gguf"
BROKEN = ModelFileError("broken.gguf: tensor blk.3.attn_q.weight ends at byte 4,096 of 1,024.")


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        made.engine.models = {
            "": MODEL,
            OTHER: replace(MODEL, name="Other", path=OTHER, fingerprint="other"),
        }
        made.engine.load_errors = {"broken.gguf": BROKEN}
        made.start()
        yield made


def talks(stage: Stage, count: int = 4) -> list[str]:
    """Open conversations with one answer each."""
    ids = [stage.session.new_conversation() for _ in range(count)]
    for conversation_id in ids:
        assert stage.session.send(conversation_id, "A question")
    for conversation_id in ids:
        stage.wait_idle(conversation_id)
    return ids


def texts(stage: Stage, ids: list[str]) -> list[list[str]]:
    return [[message.content for message in stage.path(i)] for i in ids]


def ask_all(stage: Stage, ids: list[str], text: str = "More") -> None:
    for conversation_id in ids:
        assert stage.session.send(conversation_id, text)


def ask_for_long(stage: Stage, ids: list[str]) -> None:
    """The same for answers of a second and more, and waits until all of them are written."""
    stage.engine.script = lambda _submit: "word " * 250
    ask_all(stage, ids)
    stage.wait(lambda: all(stage.path(i)[-1].content for i in ids))
    stage.engine.script = repeat_question


def is_with(stage: Stage, path: str) -> bool:
    state = stage.session.model_state
    return state.status is ModelStatus.READY and state.path == path


def test_four_conversations_survive_there_broken_and_back(stage: Stage) -> None:
    ids = talks(stage)
    before = texts(stage, ids)
    stage.session.switch_model(OTHER)
    stage.wait(lambda: is_with(stage, OTHER))
    stage.session.switch_model("broken.gguf")
    stage.wait(lambda: "broken.gguf" in stage.session.load_errors and is_with(stage, OTHER))
    ask_all(stage, ids)
    for conversation_id in ids:
        stage.wait_idle(conversation_id)
    stage.session.switch_model("")
    stage.wait(lambda: is_with(stage, ""))
    assert [text[:2] for text in texts(stage, ids)] == before
    assert [stage.path(i)[-1].model for i in ids] == ["Other"] * 4
    assert [stage.path(i)[-1].status for i in ids] == [MessageStatus.DONE] * 4


def test_a_switch_that_waits_lets_the_answers_end(stage: Stage) -> None:
    ids = talks(stage)
    ask_for_long(stage, ids)
    stage.session.switch_model(OTHER, wait=True)
    assert stage.session.model_state.next_path == OTHER
    assert [c for c in stage.engine.commands if isinstance(c, LoadModel)][1:] == []
    stage.wait(lambda: is_with(stage, OTHER))
    assert [stage.path(i)[-1].status for i in ids] == [MessageStatus.DONE] * 4
    assert [stage.path(i)[-1].model for i in ids] == ["Scripted"] * 4


def test_what_is_asked_while_a_switch_waits_is_answered_by_the_new_model(stage: Stage) -> None:
    first, second = talks(stage, 2)
    ask_for_long(stage, [first])
    stage.session.switch_model(OTHER)
    ask_all(stage, [second])
    state = stage.session.request_state(second)
    assert (state.phase, state.reason) == (RequestPhase.WAITING, "loading")
    stage.wait_idle(second)
    assert stage.path(second)[-1].model == "Other"


def test_a_switch_that_does_not_wait_stops_the_answers_and_they_can_be_continued(
    stage: Stage,
) -> None:
    ids = talks(stage)
    ask_for_long(stage, ids)
    stage.session.switch_model(OTHER, wait=False)
    stage.wait(lambda: is_with(stage, OTHER))
    partial = [stage.path(i)[-1].content for i in ids]
    assert [stage.path(i)[-1].status for i in ids] == [MessageStatus.STOPPED] * 4
    assert stage.session.continue_answer(ids[0])
    stage.wait_idle(ids[0])
    assert stage.path(ids[0])[-1].content.startswith(partial[0])
    assert len(stage.path(ids[0])[-1].content) > len(partial[0])


def test_a_switch_that_waits_can_be_taken_back(stage: Stage) -> None:
    first, second = talks(stage, 2)
    ask_for_long(stage, [first])
    stage.session.switch_model(OTHER)
    ask_all(stage, [second])
    stage.session.stay_with_model()
    assert stage.session.model_state.next_path is None
    for conversation_id in (first, second):
        stage.wait_idle(conversation_id)
    assert stage.path(second)[-1].model == "Scripted"
    assert is_with(stage, "")


def test_closing_the_tab_that_is_waited_for_lets_the_switch_go_on(stage: Stage) -> None:
    (first,) = talks(stage, 1)
    ask_for_long(stage, [first])
    stage.session.switch_model(OTHER)
    stage.session.close_conversation(first)
    stage.wait(lambda: is_with(stage, OTHER))
    assert any(isinstance(command, Cancel) for command in stage.engine.commands)


def test_a_model_that_does_not_load_says_why_and_the_one_before_is_back(stage: Stage) -> None:
    ids = talks(stage, 1)
    stage.session.switch_model("broken.gguf")
    stage.wait(lambda: "model_went_back" in stage.codes())
    ask_all(stage, ids, "At once")
    stage.wait_idle(ids[0])
    assert stage.codes() == ["model_file", "model_went_back"]
    assert stage.session.load_errors == {"broken.gguf": BROKEN.info()}
    assert is_with(stage, "")
    assert stage.path(ids[0])[-1].status is MessageStatus.DONE


def test_a_model_that_loads_at_last_has_no_error_any_more(stage: Stage) -> None:
    stage.session.switch_model("broken.gguf")
    stage.wait(lambda: bool(stage.session.load_errors) and is_with(stage, ""))
    stage.engine.load_errors = {}
    stage.session.switch_model("broken.gguf")
    stage.wait(lambda: is_with(stage, "broken.gguf"))
    assert stage.session.load_errors == {}


def test_if_the_one_before_does_not_load_either_it_ends_there(stage: Stage) -> None:
    stage.engine.load_error = BROKEN
    stage.engine.load_errors = {}
    stage.session.switch_model(OTHER)
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.session.model_state.path == ""
    assert [c.path for c in stage.engine.commands if isinstance(c, LoadModel)] == ["", OTHER, ""]


def test_the_same_model_is_not_tried_again_by_itself(stage: Stage) -> None:
    stage.engine.load_errors = {"": BROKEN}
    stage.session.retry_model()
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert len([c for c in stage.engine.commands if isinstance(c, LoadModel)]) == 2


def test_a_lost_device_is_not_loaded_on_again(stage: Stage) -> None:
    stage.engine.load_errors = {OTHER: DeviceLostError("The device is gone.")}
    stage.session.switch_model(OTHER)
    stage.wait(lambda: stage.session.model_state.status is ModelStatus.FAILED)
    assert stage.codes() == ["device_lost"]


def test_loading_can_be_cancelled_and_the_one_before_is_back(stage: Stage) -> None:
    ids = talks(stage, 1)
    stage.engine.hold_load.set()
    stage.session.switch_model(OTHER)
    ask_all(stage, ids, "Meanwhile")
    stage.qtbot.wait(50)
    stage.session.stay_with_model()
    stage.wait(lambda: stage.session.model_state.path == "")
    stage.engine.hold_load.clear()
    stage.wait_idle(ids[0])
    assert is_with(stage, "")
    assert stage.path(ids[0])[-1].model == "Scripted"
    assert stage.notices == []


def cancel_too_late(stage: Stage) -> None:
    """Cancels once the engine has loaded the model and before the window has heard of it."""
    is_posted, post = threading.Event(), stage.engine.post

    def note(event: Event) -> None:
        post(event)
        if isinstance(event, ModelLoaded):
            is_posted.set()

    stage.engine.post = note
    stage.engine.hold_load.clear()
    assert is_posted.wait(8.0)
    assert stage.session.model_state.status is ModelStatus.LOADING
    stage.session.stay_with_model()


def test_a_load_that_ends_just_as_it_is_cancelled_is_cancelled(stage: Stage) -> None:
    ids = talks(stage, 1)
    stage.engine.hold_load.set()
    stage.session.switch_model(OTHER)
    ask_all(stage, ids, "Meanwhile")
    cancel_too_late(stage)
    stage.wait_idle(ids[0])
    assert is_with(stage, "")
    assert stage.path(ids[0])[-1].model == "Scripted"
    assert stage.path(ids[0])[-1].status is MessageStatus.DONE
    assert stage.notices == []


@contextmanager
def first_load(tmp_path: Path, qtbot: QtBot) -> Iterator[tuple[Stage, str]]:
    """A first model that does not get ready, and a conversation whose question waits for it."""
    with session_stage(tmp_path / "first", qtbot) as stage:
        stage.engine.hold_load.set()
        stage.bridge.start()
        stage.session.load_model(OTHER)
        conversation_id = stage.session.new_conversation()
        ask_all(stage, [conversation_id], "Early")
        yield stage, conversation_id


def test_a_first_load_that_ends_just_as_it_is_cancelled_leaves_no_model(
    tmp_path: Path, qtbot: QtBot
) -> None:
    with first_load(tmp_path, qtbot) as (stage, conversation_id):
        cancel_too_late(stage)
        stage.wait(lambda: stage.session.model_state.is_asleep)
        assert stage.said[-1] == ("draft_restored", conversation_id, "Early")
        assert (stage.session.model_state.path, stage.submits(), stage.codes()) == (OTHER, [], [])


def test_another_load_after_one_that_was_cancelled_is_not(stage: Stage) -> None:
    stage.engine.hold_load.set()
    stage.session.switch_model("first.gguf")
    stage.session.stay_with_model()
    stage.session.switch_model(OTHER)
    stage.engine.hold_load.clear()
    stage.wait(lambda: is_with(stage, OTHER))


def test_the_progress_of_a_load_that_was_stopped_is_not_the_next_ones(stage: Stage) -> None:
    stage.engine.hold_load.set()
    stage.session.switch_model(OTHER)
    stage.wait(lambda: stage.session.model_state.stage == "warm_up")
    before = stage.session.model_state
    stage.engine.post(ModelLoading("warm_up", 0.9, "of another", "another"))
    stage.bridge.drain()
    assert stage.session.model_state == before
    stage.engine.hold_load.clear()


def test_the_first_load_can_be_cancelled_and_a_question_goes_back(
    tmp_path: Path, qtbot: QtBot
) -> None:
    with first_load(tmp_path, qtbot) as (stage, conversation_id):
        stage.qtbot.wait(50)
        stage.session.stay_with_model()
        stage.wait(lambda: stage.session.model_state.is_asleep)
        assert stage.said[-1] == ("draft_restored", conversation_id, "Early")
        assert stage.codes() == []
        stage.engine.hold_load.clear()


def test_the_default_stays_what_it_was_after_a_switch(stage: Stage) -> None:
    stage.session.switch_model(OTHER)
    stage.wait(lambda: is_with(stage, OTHER))
    assert stage.settings.values.model_path == ""


# --- letting go ---


def test_the_next_message_loads_an_unloaded_model_and_is_answered(stage: Stage) -> None:
    (conversation_id,) = talks(stage, 1)
    stage.session.unload_model()
    assert stage.session.model_state.is_asleep
    ask_all(stage, [conversation_id], "Awake?")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE
    kinds = [type(c) for c in stage.engine.commands if isinstance(c, LoadModel | UnloadModel)]
    assert kinds == [LoadModel, UnloadModel, LoadModel]


def test_unloading_stops_answers_and_keeps_what_has_come(stage: Stage) -> None:
    (conversation_id,) = talks(stage, 1)
    ask_for_long(stage, [conversation_id])
    stage.session.unload_model()
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.STOPPED
    assert stage.path(conversation_id)[-1].content


def test_unloading_while_a_switch_waits_leaves_what_waits_to_the_new_model(stage: Stage) -> None:
    first, second = talks(stage, 2)
    ask_for_long(stage, [first])
    stage.session.switch_model(OTHER)
    ask_all(stage, [second])
    stage.session.unload_model()
    stage.wait_idle(second)
    assert stage.path(second)[-1].model == "Other"
    assert stage.path(first)[-1].status is MessageStatus.STOPPED


def test_another_model_can_be_loaded_while_none_is(stage: Stage) -> None:
    stage.session.unload_model()
    stage.session.switch_model(OTHER)
    stage.wait(lambda: is_with(stage, OTHER))


def test_a_chosen_chat_template_goes_along_with_its_model_alone(stage: Stage) -> None:
    stage.session.library.set_chat_template(OTHER, "chatml")
    stage.session.switch_model(OTHER)
    stage.wait(lambda: is_with(stage, OTHER))
    stage.session.switch_model("")
    stage.wait(lambda: is_with(stage, ""))
    loads = [c for c in stage.engine.commands if isinstance(c, LoadModel)]
    assert [load.config.chat_template for load in loads] == ["", "chatml", ""]
    assert stage.settings.values.engine.chat_template == ""
