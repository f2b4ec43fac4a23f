"""Commands that fail after they have changed something: what became of requests is told at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from engine.api.client import EngineHandle
from engine.api.commands import Cancel, Command, Configure, Fork, LoadModel, Truncate, UnloadModel
from engine.api.events import (
    CommandFailed,
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    ModelLoaded,
    ModelUnloaded,
    RequestFinished,
    TokensGenerated,
)
from engine.api.params import EngineConfig
from engine.model_loader import LoadedEngine, ModelLoader
from engine.reconfigure import BackendChoice, Reconfigurer
from tests.helpers.fake_loaded import CharEncoder, fake_engine
from tests.helpers.talk import Talk, submit

_NUM_TOKENS = 4
_DEAD = "CUDA error: an illegal memory access was encountered"


@pytest.fixture
def talk(handle: EngineHandle) -> Talk:
    return Talk(handle.owner)


@pytest.fixture
def engine(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> LoadedEngine:
    """Loaded, with one step in flight while the next is submitted."""
    made: list[LoadedEngine] = []

    def load(_loader: ModelLoader) -> LoadedEngine:
        made.append(fake_engine(lag=1))
        return made[0]

    monkeypatch.setattr(ModelLoader, "_load", load)
    talk.send(LoadModel(""))
    talk.until(ModelLoaded)
    return made[0]


def at_the_last_step(engine: LoadedEngine, act: Callable[[], None]) -> None:
    """Calls ``act`` when the last step of the only request has been submitted."""
    runner = engine.core._runner
    submit_step, num_steps = runner.submit, 0

    def counted(output):
        nonlocal num_steps
        num_steps += 1
        handle = submit_step(output)
        if num_steps == _NUM_TOKENS:
            act()
        return handle

    runner.submit = counted


def with_a_backend_that_fails(engine: LoadedEngine) -> EngineConfig:
    """Settings that choose it."""

    def install() -> None:
        raise MemoryError("none left")

    attention = SimpleNamespace(name="other", cache=None)
    engine.reconfigurer = Reconfigurer(
        engine.core,
        EngineConfig(lag=1),
        engine.info,
        make_root=lambda backend, salt: (backend + salt).encode().ljust(32, b"."),
        prepare=lambda _name: BackendChoice(attention, "", install),
        fill_in=lambda config, _backend: config,
    )
    return EngineConfig(lag=1, backend="other")


@pytest.mark.parametrize("kind", ["truncate", "configure"])
def test_an_answer_that_a_failing_command_ends_is_told_without_a_further_step(
    talk: Talk, engine: LoadedEngine, kind: str
) -> None:
    command: Command = Truncate("a", 13, command_id="late")
    if kind == "configure":
        command = Configure(with_a_backend_that_fails(engine), command_id="late")
    at_the_last_step(engine, lambda: talk.send(command))
    talk.send(submit("a", max_tokens=_NUM_TOKENS))
    talk.until(CommandFailed, command_id="late")
    end = talk.until(RequestFinished, 2.0, request_id="a")
    assert end.reason is FinishReason.LENGTH
    assert len(talk.text("a")) == _NUM_TOKENS


def break_once(engine: LoadedEngine) -> None:
    """The next time that blocks go back, the books break."""
    queues = engine.core.scheduler.queues
    finish = queues.finish

    def broken(*_rest: object) -> None:
        queues.finish = finish
        raise KeyError("the books")

    queues.finish = broken


def test_a_request_is_told_to_have_ended_although_its_blocks_went_back_with_a_fault(
    talk: Talk, engine: LoadedEngine
) -> None:
    talk.send(submit("a", max_tokens=5000))
    talk.until(TokensGenerated)
    break_once(engine)
    talk.send(Cancel("a"))
    assert talk.until(RequestFinished, 2.0, request_id="a").reason is FinishReason.CANCELLED


def test_a_client_leaves_and_a_model_goes_although_the_books_break_over_a_request(
    engine: LoadedEngine, talk: Talk, handle: EngineHandle
) -> None:
    guest = Talk(handle.connect())
    talk.send(submit("a", max_tokens=5000), submit("b", max_tokens=5000))
    guest.send(submit("c", max_tokens=5000), submit("d", max_tokens=5000))
    guest.until(TokensGenerated, request_id="d")
    break_once(engine)
    assert guest.client.close(2.0)
    assert set(engine.core.requests) == {"a", "b"}
    break_once(engine)
    talk.send(UnloadModel(command_id="unload"))
    talk.until(ModelUnloaded, command_id="unload")
    for name in "ab":
        assert talk.until(RequestFinished, request_id=name).reason is FinishReason.CANCELLED


def test_a_fork_that_breaks_off_leaves_no_child_behind(talk: Talk, engine: LoadedEngine) -> None:
    def break_off(*_rest: object) -> None:
        raise KeyError("the books")

    talk.send(submit("a", max_tokens=5000))
    talk.until(TokensGenerated)
    engine.core.scheduler.fork = break_off
    talk.send(Fork("a", "child", "c", command_id="f"))
    talk.until(CommandFailed, command_id="f")
    talk.send(Cancel("a"))
    talk.until(RequestFinished, request_id="a")
    assert not engine.core.requests


class _Dead:
    def result(self) -> object:
        raise RuntimeError(_DEAD)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "early",
    [Fork("long", "child", "c", command_id="early"), Truncate("long", 5, command_id="early")],
    ids=lambda command: type(command).__name__,
)
def test_a_device_that_dies_ends_all_although_a_command_waits_for_a_prompt(
    talk: Talk, engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch, early: Command
) -> None:
    """Such a command would meet the dead device again, while the others are being told."""
    monkeypatch.setattr("engine.encoding.INLINE_CHARS", 30)
    encodes, goes_on = threading.Event(), threading.Event()

    class Slow(CharEncoder):
        def encode(self, messages, **options):
            if len(messages[-1].content) > 30:
                encodes.set()
                goes_on.wait(10.0)
            return super().encode(messages, **options)

    engine.encoder = Slow()
    talk.send(submit("a", max_tokens=5000))
    talk.until(TokensGenerated)
    talk.send(submit("long", "x" * 50), early)
    assert encodes.wait(10.0)
    monkeypatch.setattr(engine.core._runner, "submit", lambda _output: _Dead())
    talk.until(EngineStatusChanged, status=EngineStatus.FAILED)
    goes_on.set()
    for name in ("a", "long"):
        assert talk.until(RequestFinished, 1.0, request_id=name).error.code == "device_lost"
    assert talk.until(CommandFailed, 1.0, command_id="early").error.code == "device_lost"
