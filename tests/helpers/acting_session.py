"""Conversations in which messages are acted on, over the scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytestqt.qtbot import QtBot

from engine.api.errors import PromptTooLongError
from engine.api.params import SamplingParams
from tests.helpers.session_stage import SessionStage as Stage
from tests.helpers.session_stage import session_stage

TOO_LONG = PromptTooLongError("Prompt of 9,000 tokens, context of 2,048.", prompt_tokens=9000)
STORY = "It is a long story with one two three four five six seven eight nine ten words."


@contextmanager
def story_stage(data_dir: Path, qtbot: QtBot) -> Iterator[Stage]:
    """Every answer is the same story."""
    with session_stage(data_dir, qtbot) as made:
        made.engine.script = lambda _submit: STORY
        yield made


def asked(stage: Stage, *texts: str, **sampling: object) -> str:
    """A conversation in which these were asked and answered."""
    if sampling:
        stage.session.change_settings(sampling=SamplingParams(**sampling))  # type: ignore[arg-type]
    stage.start()
    conversation_id = stage.session.new_conversation()
    for text in texts:
        assert stage.session.send(conversation_id, text)
        stage.wait_idle(conversation_id)
    return conversation_id


def texts(stage: Stage, conversation_id: str) -> list[str]:
    return [message.content for message in stage.path(conversation_id)]


def stored_texts(stage: Stage, conversation_id: str) -> list[str]:
    """What is there after a restart."""
    stage.restart()
    return texts(stage, conversation_id)
