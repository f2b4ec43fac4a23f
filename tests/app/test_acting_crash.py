"""Whatever happens to a branch in the making, at whatever step: the conversation opens again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import ASSISTANT, Conversation, MessageStatus
from app.paths import Profile
from app.store import Store
from engine.api.errors import ErrorInfo, PromptTooLongError
from engine.api.params import SamplingParams
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage

STORY = "It is a long story with one two three four five six seven eight nine ten words. " * 2
TOO_LONG = PromptTooLongError("Prompt of 9,000 tokens, context of 2,048.", prompt_tokens=9000)


@pytest.fixture
def stage(tmp_path: Path, qtbot: QtBot) -> Iterator[Stage]:
    with session_stage(tmp_path / "profile", qtbot) as made:
        made.engine.script = lambda _submit: STORY
        yield made


def _continue(stage: Stage, conversation_id: str) -> None:
    assert stage.session.continue_answer(conversation_id)


def _edit(stage: Stage, conversation_id: str) -> None:
    first = stage.path(conversation_id)[0]
    assert stage.session.edit(conversation_id, first.message_id, "uno")


def _repeat(stage: Stage, conversation_id: str) -> None:
    # While a model loads it is refused: whether it would be the same one is not known.
    stage.session.repeat(conversation_id, stage.path(conversation_id)[-1].message_id)


ACTS: dict[str, Callable[[Stage, str], object]] = {
    "regenerate": lambda stage, name: stage.session.regenerate(name),
    "regenerate the first": lambda stage, name: stage.session.regenerate(
        name, stage.path(name)[1].message_id
    ),
    "continue": _continue,
    "edit": _edit,
    "repeat": _repeat,
    "several": lambda stage, name: stage.session.regenerate(name, None, 3),
    "send": lambda stage, name: stage.session.send(name, "three"),
}


def assert_sound(conversation: Conversation | None, texts: list[str]) -> None:
    """The tree hangs together, shows something, and has all these texts."""
    assert conversation is not None
    messages = conversation.messages
    assert conversation.active_leaf_id in messages
    for message in messages.values():
        assert message.parent_id is None or message.parent_id in messages
        assert message.status is not MessageStatus.STREAMING
        assert conversation.path_to(message.message_id)[0].parent_id is None
    path = conversation.path()
    assert path
    assert path[0].parent_id is None
    for message in path[1:]:
        if message.role == ASSISTANT:
            assert messages[message.parent_id or ""].role != ASSISTANT
    stored = [message.content for message in messages.values()]
    for text in texts:
        assert any(content.startswith(text) for content in stored), text


def prepared(stage: Stage) -> tuple[str, list[str]]:
    """A conversation of two turns whose last answer can be gone on with."""
    stage.session.change_settings(sampling=SamplingParams(max_tokens=6))
    stage.start()
    conversation_id = stage.session.new_conversation()
    for text in ("one", "two"):
        assert stage.session.send(conversation_id, text)
        stage.wait_idle(conversation_id)
    for message in stage.path(conversation_id):
        if message.role == ASSISTANT:
            message.params = SamplingParams()
    stage.session.change_settings(sampling=SamplingParams())
    return conversation_id, [message.content for message in stage.path(conversation_id)]


def as_after_a_crash(stage: Stage, conversation_id: str) -> Conversation | None:
    """The conversation as another process would find it if this one were killed now."""
    assert stage.store.flush()
    source = stage.profile.database
    folder = source.parent.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in source.parent.glob(f"{source.name}*"):
        shutil.copy(path, folder / path.name)
    store = Store(Profile(folder))
    try:
        return store.load_conversation(conversation_id)
    finally:
        assert store.close()


def assert_goes_on(stage: Stage, conversation_id: str) -> None:
    """Another message can be sent, also after the next start."""
    stage.restart()
    stage.start()
    assert stage.session.send(conversation_id, "And now?")
    stage.wait_idle(conversation_id)
    assert stage.path(conversation_id)[-1].status is MessageStatus.DONE


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("step", ["loading", "queued", "streaming"])
def test_stopped_at_any_step_and_killed_at_any_step(stage: Stage, act: str, step: str) -> None:
    conversation_id, texts = prepared(stage)
    if step == "loading":
        stage.engine.hold_load.set()
        stage.session.load_model()
    ACTS[act](stage, conversation_id)
    if step == "streaming":
        conversation = stage.session.conversation(conversation_id)
        size = sum(len(m.content) for m in conversation.messages.values())
        stage.wait(lambda: sum(len(m.content) for m in conversation.messages.values()) > size + 10)
    assert_sound(as_after_a_crash(stage, conversation_id), texts)
    stage.session.stop(conversation_id)
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert_sound(stage.session.conversation(conversation_id), texts)
    assert_sound(as_after_a_crash(stage, conversation_id), texts)
    assert_goes_on(stage, conversation_id)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("failure", ["refused", "engine died", "no model"])
def test_failed_in_any_way(stage: Stage, act: str, failure: str) -> None:
    conversation_id, texts = prepared(stage)
    if failure == "refused":
        stage.engine.refusal = lambda _submit: TOO_LONG
    if failure == "no model":
        stage.engine.hold_load.set()
        stage.engine.load_error = TOO_LONG
        stage.session.load_model()
    ACTS[act](stage, conversation_id)
    if failure == "engine died":
        stage.engine.die(ErrorInfo("internal", "RuntimeError: boom"))
    stage.engine.hold_load.clear()
    stage.wait_idle(conversation_id)
    assert_sound(stage.session.conversation(conversation_id), texts)
    assert_sound(as_after_a_crash(stage, conversation_id), texts)
    if act != "edit" and failure != "engine died":
        # What is edited stays, and what came before the engine died; else nothing has changed.
        assert [message.content for message in stage.path(conversation_id)] == texts
    assert_goes_on(stage, conversation_id)


def test_a_killed_deletion_is_there_or_not_but_whole(stage: Stage) -> None:
    conversation_id, texts = prepared(stage)
    stage.session.delete_pair(conversation_id, stage.path(conversation_id)[0].message_id)
    assert_sound(as_after_a_crash(stage, conversation_id), texts[2:])
    stage.session.undo_delete(conversation_id)
    assert_sound(as_after_a_crash(stage, conversation_id), texts)
    assert_goes_on(stage, conversation_id)
