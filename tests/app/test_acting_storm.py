"""Acts on messages at random, while the engine answers, refuses and loads: the tree holds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import ASSISTANT, Conversation, Message, MessageStatus
from engine.api.commands import Submit
from engine.api.errors import EngineError, PromptTooLongError
from engine.api.params import SamplingParams
from tests.helpers.session_stage import SessionStage, session_stage

STEPS = 150
SEEDS = (0, 1, 2, 3, 128, 204)


def assert_sound(conversation: Conversation) -> None:
    """The active leaf is there, every parent is there, and nobody answers an answer."""
    messages = conversation.messages
    if not messages:
        assert conversation.active_leaf_id is None
        return
    assert conversation.active_leaf_id in messages
    for message in messages.values():
        path = conversation.path_to(message.message_id)
        assert path[0].parent_id is None
        if message.role == ASSISTANT and message.parent_id is not None:
            assert messages[message.parent_id].role != ASSISTANT


class Storm:
    """One conversation, and somebody who does not wait."""

    def __init__(self, stage: SessionStage, seed: int) -> None:
        self.stage = stage
        self.random = random.Random(seed)
        self.session = stage.session
        self.conversation_id = self.session.new_conversation("")
        self.done: list[str] = []
        stage.engine.script = lambda _submit: "word " * self.random.randint(1, 12)
        stage.engine.refusal = self._refusal

    def _refusal(self, _submit: Submit) -> EngineError | None:
        return PromptTooLongError("too long") if self.random.random() < 0.25 else None

    @property
    def conversation(self) -> Conversation:
        return self.session.conversation(self.conversation_id)

    def act(self) -> None:
        acts = [self.send, self.send, self.regenerate, self.edit, self.go_on, self.repeat]
        acts += [self.several, self.choose, self.stop, self.delete_branch, self.delete_pair]
        acts += [self.undo, self.undo, self.switch, self.load, self.wait]
        act = self.random.choice(acts)
        self.done.append(act.__name__)
        act()

    def pick(self) -> Message | None:
        """Any message of the shown branch, or now and then of another."""
        shown = self.conversation.path()
        found = list(self.conversation.messages.values())
        if self.random.random() < 0.7:
            found = shown
        return self.random.choice(found) if found else None

    def send(self) -> None:
        self.session.send(self.conversation_id, f"question {len(self.done)}")

    def several(self) -> None:
        self.session.send(self.conversation_id, f"which {len(self.done)}", 3)

    def regenerate(self) -> None:
        if message := self.pick():
            self.session.regenerate(self.conversation_id, message.message_id)

    def edit(self) -> None:
        message = self.pick()
        if message is not None and message.status is not MessageStatus.STREAMING:
            text = f"edit {len(self.done)}"
            self.session.edit(self.conversation_id, message.message_id, text)

    def go_on(self) -> None:
        if message := self.pick():
            self.session.continue_answer(self.conversation_id, message.message_id)

    def repeat(self) -> None:
        if message := self.pick():
            self.session.repeat(self.conversation_id, message.message_id)

    def choose(self) -> None:
        compared = self.session.compared(self.conversation_id)
        chosen = self.random.choice(["", *compared]) if compared else ""
        self.session.end_comparison(self.conversation_id, chosen)

    def stop(self) -> None:
        self.session.stop(self.conversation_id)

    def delete_branch(self) -> None:
        if message := self.pick():
            self.session.delete_branch(self.conversation_id, message.message_id)

    def delete_pair(self) -> None:
        if message := self.pick():
            self.session.delete_pair(self.conversation_id, message.message_id)

    def undo(self) -> None:
        self.session.undo_delete(self.conversation_id)

    def switch(self) -> None:
        if message := self.pick():
            self.session.select_version(self.conversation_id, message.message_id)

    def load(self) -> None:
        if self.random.random() < 0.3:
            self.session.load_model()

    def wait(self) -> None:
        self.stage.qtbot.wait(self.random.choice([0, 2, 10]))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tree_holds_whatever_is_done(tmp_path: Path, qtbot: QtBot, seed: int) -> None:
    with session_stage(tmp_path / "profile", qtbot) as stage:
        stage.restart(tokens_per_s=1500.0)
        stage.session.change_settings(sampling=SamplingParams(max_tokens=6))
        stage.start()
        storm = Storm(stage, seed)
        for _ in range(STEPS):
            storm.act()
            assert_sound(storm.conversation)
            stage.qtbot.wait(0)
            assert_sound(storm.conversation)
        stage.session.stop(storm.conversation_id)
        stage.wait_idle(storm.conversation_id)
        conversation = storm.conversation
        assert_sound(conversation)
        before = {
            m.message_id: (m.parent_id, m.content, m.status) for m in conversation.messages.values()
        }
        shown = [message.message_id for message in conversation.path()]
        stage.restart()
        again = stage.session.conversation(storm.conversation_id)
        assert_sound(again)
        after = {m.message_id: (m.parent_id, m.content, m.status) for m in again.messages.values()}
        assert after == before
        assert [message.message_id for message in again.path()] == shown
