"""Any commands from several clients at any moment, and the end at any moment."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Generator

import pytest

from engine.api.client import EngineHandle
from engine.api.commands import LoadModel, ResumeEngine, SetRate
from engine.api.events import (
    CommandFailed,
    EngineStatus,
    ParityReport,
    Reply,
    RequestFinished,
)
from engine.model_loader import LoadedEngine, ModelLoader
from tests.helpers.client_storm import Storm
from tests.helpers.fake_loaded import CharEncoder, fake_engine

_SEEDS = range(8)


class _SlowEncoder(CharEncoder):
    """Takes a little longer for a longer text."""

    def encode(self, messages, **options):
        time.sleep(min(sum(len(m.content) for m in messages) * 1e-5, 0.005))
        return super().encode(messages, **options)


class _Inspector:
    """Questions in many slices; ``held`` counts those that have not given back what they hold."""

    def __init__(self) -> None:
        self.held = 0

    def _slices(self, command_id: str) -> Generator[float, None, Reply]:
        self.held += 1
        try:
            for done in range(20):
                time.sleep(0.0002)
                yield done / 20
            return ParityReport(command_id, "a", "b", 0.0, (), -1, -1, -1, "")
        finally:
            self.held -= 1

    def compare_slices(self, token_ids, backend, reference, *, conversation_id, command_id):
        return self._slices(command_id)

    def inspect_slices(self, conversation_id, token_ids, *, command_id):
        return self._slices(command_id)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[LoadedEngine]:
    """Every engine that was loaded."""
    made: list[LoadedEngine] = []

    def load(loader: ModelLoader) -> LoadedEngine:
        time.sleep(0.003)
        loader._progress("weights", 0.5, "")
        engine = fake_engine()
        engine.encoder = _SlowEncoder()
        engine.inspector = _Inspector()
        made.append(engine)
        return engine

    monkeypatch.setattr(ModelLoader, "_load", load)
    # Short enough that both ways of encoding are taken.
    monkeypatch.setattr("engine.encoding.INLINE_CHARS", 30)
    return made


def check_given_back(engines: list[LoadedEngine]) -> None:
    for engine in engines:
        assert engine.core.violations() == []
        assert engine.core.pool.num_used == engine.core.pool.num_pinned
        assert engine.inspector.held == 0


def threads_of(storms: list[Storm]) -> list[threading.Thread]:
    return [storm.start(60, loads=index == 0) for index, storm in enumerate(storms)]


@pytest.mark.parametrize("seed", _SEEDS)
def test_storm_of_commands_ended_at_any_moment(engines, seed):
    rng = random.Random(seed)
    handle = EngineHandle()
    clients = [handle.owner, handle.connect(), handle.connect()]
    storms = [Storm(f"k{i}", c, random.Random(seed * 10 + i)) for i, c in enumerate(clients)]
    handle.owner.send(LoadModel(""))
    threads = threads_of(storms)
    time.sleep(rng.random() * 0.5)
    assert clients[2].close(60.0), "a client could not leave"
    time.sleep(rng.random() * 0.3)
    assert handle.owner.close(60.0), "the engine thread did not end"
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive(), "sending blocked"
    for storm in storms:
        storm.check()
    check_given_back(engines)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seed", _SEEDS)
def test_storm_over_an_engine_that_dies(engines, seed, monkeypatch):
    rng = random.Random(seed)
    steps_left = rng.randrange(200)

    def dying_step(core):
        nonlocal steps_left
        steps_left -= 1
        if steps_left < 0:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return step(core)

    step = type(fake_engine().core).step
    monkeypatch.setattr("engine.core.EngineCore.step", dying_step)
    handle = EngineHandle()
    clients = [handle.owner, handle.connect()]
    storms = [Storm(f"k{i}", c, random.Random(seed * 10 + i)) for i, c in enumerate(clients)]
    handle.owner.send(LoadModel(""))
    for thread in threads_of(storms):
        thread.join(60.0)
    handle.owner.send(LoadModel(""))
    handle.owner.send(storms[0].long_request())
    deadline = time.monotonic() + 60.0
    while not storms[0].has_heard(EngineStatus.FAILED) and time.monotonic() < deadline:
        # The other client's last command may have been to pause it.
        handle.owner.send(ResumeEngine())
        handle.owner.send(SetRate(None))
        time.sleep(0.005)
    assert handle.owner.close(60.0)
    for storm in storms:
        assert storm.has_heard(EngineStatus.FAILED)
        storm.check()
    assert "device_lost" in errors_of(storms[0])
    check_given_back(engines)


def errors_of(storm: Storm) -> set[str]:
    ends = [e for e in storm.events if isinstance(e, RequestFinished) and e.error is not None]
    return {end.error.code for end in ends}


def test_storms_reach_what_they_are_for(engines):
    """The random commands are worth something: all kinds of ends and answers come about."""
    heard: Counter[str] = Counter()
    for seed in range(3):
        handle = EngineHandle()
        storm = Storm("k", handle.owner, random.Random(seed))
        handle.owner.send(LoadModel(""))
        storm.start(150).join(20.0)
        time.sleep(0.3)
        assert handle.owner.close(60.0)
        storm.check()
        for event in storm.events:
            heard[type(event).__name__] += 1
            if isinstance(event, RequestFinished):
                heard[event.reason.value] += 1
            if isinstance(event, CommandFailed):
                heard[event.error.code] += 1
    wanted = (
        "TokensGenerated",
        "ForecastReady",
        "ParityReport",
        "BlockEvents",
        "RequestPaused",
        "length",
        "cancelled",
        "error",
        "unknown_id",
    )
    assert all(heard[name] for name in wanted), heard
