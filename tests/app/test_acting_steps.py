"""Stopping, waiting and pinning on the engine's own thread, with the integer model inside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.conversation import MessageStatus
from app.paths import Profile
from app.session import Session
from app.session_state import ModelStatus, RequestPhase, RequestState
from app.settings import Settings
from app.store import Store
from app.widgets.words import request_words
from engine.api.client import start_engine
from engine.api.commands import PauseEngine, ResumeEngine, StepEngine
from engine.api.events import EngineStatus, EngineStatusChanged
from engine.api.params import SamplingParams
from tests.helpers.fake_loaded import INFO, install_fake_loader

LONG = "A question that takes several blocks of the pool all by itself. " * 3


class Stage:
    """A session over the engine's own thread. ``gate`` holds the loading of the model back."""

    def __init__(self, data_dir: Path, qtbot: QtBot) -> None:
        self.qtbot = qtbot
        self.settings = Settings(None)
        self.settings.change(sampling=SamplingParams(temperature=0.0, max_tokens=40, seed=0))
        self.store = Store(Profile(data_dir))
        self.bridge = Bridge(start_engine)
        self.session = Session(self.bridge, self.store, self.settings, "models")
        self.states: list[RequestState] = []
        self.paused = False
        self.session.request_state_changed.connect(self._on_request_state_changed)
        self.bridge.engine_event.connect(self._on_engine_event)
        self.bridge.subscribe_pool()
        self.bridge.start()
        self.session.load_model()

    def _on_request_state_changed(self, conversation_id: str) -> None:
        self.states.append(self.session.request_state(conversation_id))

    def _on_engine_event(self, event: object) -> None:
        if isinstance(event, EngineStatusChanged) and event.status is EngineStatus.READY:
            self.paused = event.paused

    def ready(self) -> None:
        self.wait(lambda: self.session.model_state.status is ModelStatus.READY)

    def pause(self) -> None:
        self.bridge.send(PauseEngine())
        self.wait(lambda: self.paused)

    def wait(self, done) -> None:
        self.qtbot.waitUntil(done, timeout=20_000)

    def wait_idle(self, conversation_id: str) -> None:
        self.wait(lambda: not self.session.is_busy(conversation_id))

    def ask(self, text: str) -> str:
        conversation_id = self.session.new_conversation("")
        assert self.session.send(conversation_id, text)
        return conversation_id

    def num_used(self) -> int:
        snapshot = self.bridge.latest_snapshot()
        return -1 if snapshot is None else snapshot.num_used

    def close(self) -> None:
        self.session.shut_down()
        assert self.bridge.close(10.0)
        self.store.close()


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def stage(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> Iterator[Stage]:
    install_fake_loader(monkeypatch, gate, token_budget=16)
    made = Stage(tmp_path / "profile", qtbot)
    yield made
    gate.set()
    made.close()


def stopped(stage: Stage, conversation_id: str) -> None:
    """Stops the answer, and sees that nothing of it is left in the pool."""
    stage.session.stop(conversation_id)
    stage.wait_idle(conversation_id)
    answer = stage.session.conversation(conversation_id).path()[-1]
    assert answer.status is MessageStatus.STOPPED
    stage.wait(lambda: stage.num_used() == 0)


def test_stop_while_the_model_loads(stage: Stage, gate: threading.Event) -> None:
    conversation_id = stage.ask("Hello")
    assert stage.session.request_state(conversation_id).reason == "loading"
    stage.session.stop(conversation_id)
    assert not stage.session.is_busy(conversation_id)
    gate.set()
    stage.ready()
    stage.wait(lambda: stage.num_used() == 0)


def test_stop_while_queued(stage: Stage, gate: threading.Event) -> None:
    gate.set()
    stage.ready()
    stage.pause()
    conversation_id = stage.ask(LONG)
    stage.wait(lambda: stage.session.request_state(conversation_id).reason == "engine_paused")
    stopped(stage, conversation_id)


def test_stop_in_the_middle_of_the_prompt_frees_its_blocks_without_another_step(
    stage: Stage, gate: threading.Event
) -> None:
    gate.set()
    stage.ready()
    stage.pause()
    conversation_id = stage.ask(LONG)
    stage.bridge.send(StepEngine(2))
    stage.wait(lambda: stage.session.request_state(conversation_id).phase is RequestPhase.PREFILL)
    stage.wait(lambda: stage.num_used() > 0)
    stopped(stage, conversation_id)


def test_stop_while_text_comes_frees_its_blocks_without_another_step(
    stage: Stage, gate: threading.Event
) -> None:
    gate.set()
    stage.ready()
    stage.pause()
    conversation_id = stage.ask("Hello")
    stage.bridge.send(StepEngine(4))
    stage.wait(lambda: stage.session.request_state(conversation_id).phase is RequestPhase.DECODE)
    stage.wait(lambda: stage.num_used() > 0)
    stopped(stage, conversation_id)


def stepped_until(stage: Stage, conversation_ids: list[str], reason: str) -> str:
    """Steps a paused engine until one of them has waited for that reason; returns which."""
    for _ in range(300):
        waited = {state.message_id for state in stage.states if state.reason == reason}
        for conversation_id in conversation_ids:
            if waited & stage.session.conversation(conversation_id).messages.keys():
                return conversation_id
        stage.bridge.send(StepEngine(1))
        stage.qtbot.wait(1)
    raise AssertionError(f"none has waited for {reason!r}")


def test_stop_while_waiting_for_the_pool_leaves_the_other_alone(
    stage: Stage, gate: threading.Event
) -> None:
    gate.set()
    stage.ready()
    stage.pause()
    text = "x" * (INFO.num_blocks * INFO.block_size - 100)
    ids = [stage.ask(f"{name}{text}") for name in "ab"]
    waiting = stepped_until(stage, ids, "capacity")
    stage.session.stop(waiting)
    stage.wait_idle(waiting)
    stage.bridge.send(ResumeEngine())
    (other,) = [name for name in ids if name != waiting]
    stage.wait_idle(other)
    assert stage.session.conversation(other).path()[-1].status is MessageStatus.DONE
    stage.wait(lambda: stage.num_used() == 0)


def test_stop_of_a_preempted_answer_keeps_its_text(stage: Stage, gate: threading.Event) -> None:
    gate.set()
    stage.ready()
    stage.settings.change(sampling=SamplingParams(temperature=0.0, max_tokens=150, seed=0))
    stage.pause()
    text = "x" * (INFO.num_blocks * INFO.block_size // 2 - 60)
    ids = [stage.ask(f"{name}{text}") for name in "ab"]
    preempted = stepped_until(stage, ids, "preempted")
    answer = stage.session.conversation(preempted).path()[-1]
    had = answer.content
    assert had
    stage.session.stop(preempted)
    stage.wait_idle(preempted)
    assert answer.status is MessageStatus.STOPPED
    assert answer.content == had
    stage.bridge.send(ResumeEngine())
    (other,) = [name for name in ids if name != preempted]
    stage.wait_idle(other)
    stage.wait(lambda: stage.num_used() == 0)


def test_two_that_need_more_than_the_pool_both_finish_and_the_wait_is_explained(
    stage: Stage, gate: threading.Event
) -> None:
    gate.set()
    stage.ready()
    # Step by step: an engine that runs may end the first answer before the second is asked.
    stage.pause()
    pool = INFO.num_blocks * INFO.block_size
    text = "x" * (pool - 100)
    first = stage.ask(f"a{text}")
    second = stage.ask(f"b{text}")
    stepped_until(stage, [first, second], "capacity")
    stage.bridge.send(ResumeEngine())
    for conversation_id in (first, second):
        stage.wait_idle(conversation_id)
    for conversation_id in (first, second):
        answer = stage.session.conversation(conversation_id).path()[-1]
        assert answer.status is MessageStatus.DONE
        assert answer.turn is not None
        assert len(answer.turn.output_ids) == 40
    waited = [state for state in stage.states if state.reason == "capacity"]
    assert waited
    assert waited[0].blocks_short > 0
    words = request_words(waited[-1], lambda _conversation_id: "First")
    assert words.startswith("Pool full: ")
    assert "Continues when" in words


def test_a_pinned_conversation_is_found_after_others_filled_the_pool(
    stage: Stage, gate: threading.Event
) -> None:
    gate.set()
    stage.ready()
    pinned = stage.ask("Keep this question and its answer where they are.")
    stage.wait_idle(pinned)
    stage.session.keep_in_cache(pinned, True)
    filler = "y" * (INFO.num_blocks * INFO.block_size - 200)
    for number in range(3):
        stage.wait_idle(stage.ask(f"{number}{filler}"))
    conversation = stage.session.conversation(pinned)
    turn = conversation.path()[-1].turn
    assert turn is not None
    kept = len(turn.prompt_ids) + len(turn.output_ids)
    stage.session.send(pinned, "And now?")
    stage.wait_idle(pinned)
    usage = conversation.path()[-1].usage
    assert usage is not None
    assert usage.cached_tokens == (kept - 1) // INFO.block_size * INFO.block_size
    stage.session.keep_in_cache(pinned, False)
    stage.wait(lambda: stage.num_used() == 0)


def test_the_engine_goes_on_after_stops(stage: Stage, gate: threading.Event) -> None:
    gate.set()
    stage.ready()
    stage.pause()
    conversation_id = stage.ask("Hello")
    stopped(stage, conversation_id)
    stage.bridge.send(ResumeEngine())
    assert stage.session.regenerate(conversation_id)
    stage.wait_idle(conversation_id)
    assert stage.session.conversation(conversation_id).path()[-1].status is MessageStatus.DONE
