"""What the engine thread does while nobody asks for anything: a little at a time."""

from __future__ import annotations

import threading
import time

import pytest

from engine.api.client import Arrivals, QueueClient
from engine.api.commands import LoadModel, Pin, Shutdown
from engine.api.events import EngineStats, ModelLoaded, RequestFinished
from engine.api.params import ChatMessage, SamplingParams
from engine.encoding import INLINE_CHARS
from engine.loading.progress import Cancelled
from engine.model_loader import ModelLoader
from engine.snapshotter import Snapshotter
from engine.worker import Worker
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.fake_loaded import CharTokenizer, fake_engine
from tests.helpers.talk import Talk, submit


def test_recount_is_cut_and_finds_what_one_piece_finds() -> None:
    engine = CheckedEngine(10_000)
    engine.add("a", list(range(40)), max_tokens=3)
    engine.run()
    snapshotter = Snapshotter(engine.core, 1)
    parts = 1
    while not snapshotter.check_some():
        parts += 1
    assert parts > 3
    assert snapshotter.invariant_violations == 0
    engine.core.pool._columns.ref_count[9_999] = 3
    while not snapshotter.check_some():
        pass
    assert snapshotter.invariant_violations == len(engine.core.violations()) > 0
    assert "block 9999" in snapshotter.invariant_message


def test_recount_begins_again_after_a_change() -> None:
    engine = CheckedEngine(10_000)
    snapshotter = Snapshotter(engine.core, 1)
    assert not snapshotter.check_some()
    engine.add("a", list(range(40)), max_tokens=30)
    engine.step()
    snapshotter.begin_check()
    while not snapshotter.check_some():
        pass
    assert snapshotter.invariant_violations == 0


def test_fault_that_the_core_survived_is_shown() -> None:
    engine = CheckedEngine(16)
    snapshotter = Snapshotter(engine.core, 1)
    assert snapshotter.stats(0.0).invariant_violations == 0
    assert snapshotter.snapshot(0.0).invariant_message == ""
    engine.core.metrics.num_begun_anew = 2
    assert snapshotter.stats(0.0).invariant_violations == 2
    assert "set up anew" in snapshotter.snapshot(0.0).invariant_message


class Preparing:
    """Ten things to prepare, each taking a moment."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[float] = []
        self.fails = fails

    def __call__(self, interrupted: Cancelled) -> bool:
        self.calls.append(time.perf_counter())
        if self.fails:
            raise MemoryError("no room for a graph")
        time.sleep(0.02)
        return len(self.calls) < 10


class Compiling(Preparing):
    """Takes half a minute, and may be broken off every ten milliseconds."""

    def __call__(self, interrupted: Cancelled) -> bool:
        self.calls.append(time.perf_counter())
        for _ in range(3_000):
            if interrupted():
                break
            time.sleep(0.01)
        return True


@pytest.fixture
def preparing(monkeypatch: pytest.MonkeyPatch) -> Preparing:
    return _install(monkeypatch, Preparing())


def _install(monkeypatch: pytest.MonkeyPatch, preparing: Preparing) -> Preparing:
    def load(loader: ModelLoader):
        engine = fake_engine()
        engine.prepare = preparing
        return engine

    monkeypatch.setattr(ModelLoader, "_load", load)
    return preparing


def ask(talk: Talk, name: str) -> RequestFinished:
    talk.send(submit(name, max_tokens=3))
    event = talk.until(RequestFinished, request_id=name)
    assert isinstance(event, RequestFinished)
    return event


def test_all_is_prepared_in_idle_moments_and_only_once(preparing: Preparing, talk: Talk) -> None:
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)
    deadline = time.monotonic() + 5.0
    while len(preparing.calls) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(preparing.calls) == 10
    assert ask(talk, "a").error is None
    time.sleep(0.1)
    # Once more, for what the answer's steps may have shown.
    assert len(preparing.calls) == 11


def test_an_answer_does_not_wait_until_all_is_prepared(preparing: Preparing, talk: Talk) -> None:
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)
    assert ask(talk, "a").error is None
    assert len(preparing.calls) < 10


def test_an_answer_does_not_wait_for_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch, talk: Talk
) -> None:
    compiling = _install(monkeypatch, Compiling())
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)
    deadline = time.monotonic() + 5.0
    while not compiling.calls and time.monotonic() < deadline:
        time.sleep(0.01)
    begun = time.monotonic()
    assert ask(talk, "a").error is None
    assert time.monotonic() - begun < 5.0
    while len(compiling.calls) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    # And then it goes on with it.
    assert len(compiling.calls) > 1


def test_what_cannot_be_prepared_is_no_harm(monkeypatch: pytest.MonkeyPatch, talk: Talk) -> None:
    preparing = _install(monkeypatch, Preparing(fails=True))
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)
    talk.until(EngineStats)
    assert ask(talk, "a").error is None
    time.sleep(0.1)
    assert len(preparing.calls) == 1


def test_a_pin_between_two_parts_of_a_recount_is_no_fault() -> None:
    """It was being encoded when the recount began, and is concluded in the middle of it."""
    client, posted = QueueClient(), threading.Event()
    worker = Worker(Arrivals(client), posted)
    engine = fake_engine()
    prompt = CharTokenizer().encode_text("hello engine, hello pool")
    engine.core.generate([prompt], SamplingParams(max_tokens=2))
    slot, snapshotter = worker._slot, Snapshotter(engine.core, 1)
    slot.engine, slot.snapshotter, slot.checked = engine, snapshotter, False
    long = "hello engine, hello pool" + "x" * INLINE_CHARS
    try:
        worker._handle(client, Pin("c", (ChatMessage("user", long),)))
        # A part of the pool is counted.
        for _ in range(2):
            worker._work()
        assert posted.wait(30.0)
        assert not slot.checked
        worker._conclude_encodings()
        assert engine.core.pool.num_pinned > 0
        for _ in range(100):
            worker._work()
        assert slot.checked
        assert (snapshotter.invariant_violations, snapshotter.invariant_message) == (0, "")
    finally:
        worker._shutdown(client, Shutdown())
        worker.run()
