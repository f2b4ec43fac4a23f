"""Questions to the inspector in slices: answers go on, blocks stay, everything is given back."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.client import EngineHandle
from engine.api.commands import (
    CancelQuery,
    CompareBackends,
    Configure,
    CountTokens,
    Inspect,
    LoadModel,
    PauseEngine,
    StepEngine,
    Submit,
    UnloadModel,
)
from engine.api.events import (
    CommandFailed,
    Configured,
    ModelLoaded,
    ModelUnloaded,
    ParityReport,
    QueryProgress,
    RequestFinished,
    TokensCounted,
    TokensGenerated,
)
from engine.api.params import ChatMessage, EngineConfig, SamplingParams
from engine.core import EngineCore
from engine.inspections import Inspections
from engine.parity import ParityInspector
from engine.slices import THREAD_NAME, in_slices
from tests.helpers.talk import Talk
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

MESSAGES = (ChatMessage("user", "hello world, tell me of pages"),)
GREEDY = SamplingParams(temperature=0.0, max_tokens=40, seed=0, ignore_eos=True)
SIZE = 8


def tokens(count: int, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, 320) for _ in range(count)]


def inspector_of(engine: TorchEngine) -> ParityInspector:
    return ParityInspector(engine.core, engine.runner)


def check_pool(engine: TorchEngine) -> None:
    assert engine.core.violations() == []


def baseline(engine: TorchEngine) -> tuple[int, ...]:
    pool = engine.core.pool
    return pool.num_used, pool.num_cached, pool.num_free, pool.num_shared


# --- slices themselves ---


def test_slices_alternate_with_their_caller_and_return():
    seen: list[str] = []

    def work(pause):
        for number in range(3):
            seen.append(f"work {number}")
            pause()
        return "done"

    def caller():
        result = yield from in_slices(work)
        seen.append(result)

    note = seen.append
    for _ in caller():
        note("caller")
    assert seen.pop() == "done"
    assert seen == ["work 0", "caller", "work 1", "caller", "work 2", "caller"]


def test_an_error_comes_out_where_the_slices_are_asked_for():
    def work(pause):
        pause()
        raise KeyError("planted")

    slices = in_slices(work)
    next(slices)
    with pytest.raises(KeyError, match="planted"):
        next(slices)


def test_closed_slices_end_their_thread_and_what_was_open():
    closed: list[str] = []

    def work(pause):
        try:
            while True:
                pause()
        finally:
            closed.append(threading.current_thread().name)
            pause()

    slices = in_slices(work)
    next(slices)
    next(slices)
    slices.close()
    assert closed == [THREAD_NAME]
    assert not any(thread.name == THREAD_NAME for thread in threading.enumerate())


# --- over an engine, by hand ---


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama()


@pytest.fixture
def busy(tiny: TinyModel) -> TorchEngine:
    """A cached conversation, and two that run."""
    engine = torch_engine(tiny, "paged_reference", num_blocks=60)
    engine.add("done", tokens(60, 4), 8)
    engine.run()
    engine.add("a", tokens(50), 60)
    engine.add("b", tokens(37, 9), 60)
    engine.step(5)
    return engine


def drain(engine: TorchEngine, slices, steps_between: int = 1) -> ParityReport:
    """Runs steps between the slices, as the engine thread does."""
    while True:
        try:
            next(slices)
        except StopIteration as stop:
            return stop.value
        check_pool(engine)
        if engine.core.has_work:
            engine.step(steps_between)


@pytest.mark.parametrize("conversation", ["a", "b", "done"])
def test_pool_content_is_judged_as_it_was_while_steps_go_on(busy, conversation):
    before = baseline(busy)
    slices = inspector_of(busy).inspect_slices(conversation)
    report = drain(busy, slices)
    assert report.within_bound, report.verdict
    assert report.num_tokens >= 37
    busy.run()
    check_pool(busy)
    assert busy.core.holds.num_blocks == 0
    assert before != baseline(busy)


def test_comparison_in_borrowed_blocks_while_steps_go_on(busy, tiny):
    report = drain(busy, inspector_of(busy).compare_slices(tokens(70, 3), "paged_reference"))
    assert report.within_bound, report.verdict
    busy.run()
    alone = torch_engine(tiny, "paged_reference", num_blocks=60)
    alone.add("a", tokens(50), 60)
    alone.run()
    assert busy.output("a") == alone.output("a")
    assert busy.core.holds.num_blocks == 0
    check_pool(busy)


def test_blocks_of_a_request_that_ends_meanwhile_are_kept(busy):
    slices = inspector_of(busy).inspect_slices("a")
    next(slices)
    busy.core.cancel("a")
    # Whatever can be had of the pool is given to others, who overwrite it.
    for index in range(4):
        busy.add(f"more{index}", tokens(60, 20 + index), 30)
    report = drain(busy, slices, steps_between=6)
    assert report.within_bound, report.verdict


def test_without_holds_the_same_would_have_been_wrong(busy, monkeypatch):
    """What the holds are for: the blocks do get other content."""
    monkeypatch.setattr("engine.holds.BlockHolds.keep", lambda holds, block_ids: None)
    monkeypatch.setattr("engine.holds.BlockHolds.release", lambda holds, hold: None)
    monkeypatch.setattr("engine.parity.ParityInspector._watching", lambda self, hold, pause: pause)
    slices = inspector_of(busy).inspect_slices("a")
    next(slices)
    busy.core.cancel("a")
    for index in range(6):
        busy.add(f"more{index}", tokens(60, 20 + index), 30)
    busy.step(12)
    report = drain(busy, slices, steps_between=6)
    assert not report.within_bound


@pytest.mark.parametrize("num_slices", [0, 1, 2, 5])
def test_closing_gives_everything_back(busy, num_slices):
    for make in (
        lambda: inspector_of(busy).inspect_slices("done"),
        lambda: inspector_of(busy).compare_slices(tokens(70, 3), "paged_reference"),
    ):
        before = baseline(busy)
        slices = make()
        for _ in range(num_slices):
            next(slices, None)
        slices.close()
        assert baseline(busy) == before
        check_pool(busy)


def test_pool_that_is_set_up_anew_interrupts(busy):
    slices = inspector_of(busy).inspect_slices("done")
    next(slices)
    busy.core.scheduler.reset(list(busy.core.requests.values()), "test")
    report = None
    with pytest.raises(Exception, match="emptied meanwhile"):
        report = drain(busy, slices)
    assert report is None
    busy.run()
    check_pool(busy)


# --- through the engine thread ---


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    handle = EngineHandle()
    talk = Talk(handle.owner)
    talk.handle = handle
    config = EngineConfig(dtype="float32", device="cpu", num_blocks=32, num_threads=1)
    talk.send(LoadModel(models_dir=str(tmp_path), path=str(path), config=config))
    talk.until(ModelLoaded)
    yield talk
    assert handle.owner.close(10.0), "the engine thread did not end"


def test_tokens_come_between_the_slices(talk, monkeypatch):
    order: list[str] = []
    real_slice, real_step = Inspections._slice, EngineCore.step

    def noted_slice(self, inspection):
        order.append("slice")
        real_slice(self, inspection)

    def noted_step(core):
        order.append("step")
        return real_step(core)

    monkeypatch.setattr(Inspections, "_slice", noted_slice)
    monkeypatch.setattr("engine.worker.BESIDE_ANSWERS_S", 0.0)
    talk.send(Submit(("a",), "c", MESSAGES, GREEDY))
    talk.until(TokensGenerated)
    monkeypatch.setattr(EngineCore, "step", noted_step)
    talk.ask(CompareBackends("c", MESSAGES, "contiguous", command_id="q"))
    talk.until(RequestFinished)
    pairs = list(itertools.pairwise(order))
    assert ("slice", "step") in pairs
    assert pairs.count(("slice", "step")) > 3


@pytest.mark.parametrize("end", ["unload", "configure", "shutdown"])
def test_question_ends_with_what_it_was_about(talk, end):
    talk.send(PauseEngine(), Submit(("a",), "c", MESSAGES, GREEDY), StepEngine(3))
    talk.until(TokensGenerated)
    inspect = Inspect("c", command_id="i")
    compare = CompareBackends("c", MESSAGES, "contiguous", command_id="q")
    if end == "unload":
        talk.send(inspect, compare, UnloadModel(command_id="u"))
        talk.until(ModelUnloaded)
    elif end == "configure":
        config = EngineConfig(backend="dense", dtype="float32", device="cpu", num_blocks=32)
        talk.send(inspect, compare, Configure(config, command_id="conf"))
        talk.until(Configured)
    else:
        talk.send(inspect, compare)
        assert talk.client.close(10.0)
        talk.events.extend(talk.client.poll_events())
    for query in ("i", "q"):
        replies = [e for e in talk.events if getattr(e, "command_id", "") == query]
        assert len(replies) == 1
        assert isinstance(replies[0], CommandFailed | ParityReport)
    assert not any(thread.name == THREAD_NAME for thread in threading.enumerate())


def test_answer_that_needs_the_blocks_gets_them(tmp_path, monkeypatch):
    handle = EngineHandle()
    talk = Talk(handle.owner)
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(dtype="float32", device="cpu", num_blocks=8, num_threads=1)
    talk.send(LoadModel(models_dir=str(tmp_path), path=str(path), config=config))
    talk.until(ModelLoaded)
    talk.send(Submit(("a",), "c", MESSAGES, GREEDY))
    talk.until(RequestFinished, request_id="a")
    begun: list[object] = []

    def begin_only(self, budget_s):
        # So that the question holds its blocks as long as it may.
        if not begun:
            begun.append(self._queue[0])
            self._slice(self._queue[0])

    monkeypatch.setattr(Inspections, "advance", begin_only)
    talk.send(Inspect("c", command_id="i"))
    while not begun:
        time.sleep(0.002)
    other = (ChatMessage("user", "other words than those before, " * 2),)
    talk.send(Submit(("b",), "d", other, GREEDY))
    assert talk.until(CommandFailed, command_id="i").error.code == "interrupted"
    done = talk.until(RequestFinished, request_id="b")
    assert done.usage.output_tokens == 40, done
    assert handle.owner.close(10.0)


def test_questions_at_random_moments_do_not_change_an_answer(talk):
    rng = random.Random(3)
    talk.send(Submit(("plain",), "c0", MESSAGES, GREEDY))
    talk.until(RequestFinished, request_id="plain")
    talk.send(Submit(("asked",), "c1", MESSAGES, GREEDY))
    for index in range(12):
        kind = rng.randrange(3)
        if kind == 0:
            talk.send(Inspect("c1", command_id=f"q{index}"))
        elif kind == 1:
            talk.send(CompareBackends("c1", MESSAGES, "paged_reference", command_id=f"q{index}"))
        talk.send(CountTokens("x", command_id=f"t{index}"))
        talk.until(TokensCounted, command_id=f"t{index}")
    talk.until(RequestFinished, request_id="asked")
    assert talk.text("asked") == talk.text("plain")
    for event in talk.events:
        if isinstance(event, ParityReport):
            assert event.within_bound, event.verdict


def test_a_question_tells_how_far_it_is_and_can_be_cancelled(talk, monkeypatch):
    monkeypatch.setattr("engine.worker.ALONE_S", 0.0)
    talk.ask(CompareBackends("c", MESSAGES, "contiguous", command_id="whole"))
    told = [e.fraction for e in talk.events if isinstance(e, QueryProgress)]
    assert told == sorted(told)
    assert len(told) > 3
    assert 0.0 < told[0] < 0.5 < told[-1] <= 1.0
    # Cancelled: one reply, everything is back, and other questions are not meant.
    talk.send(
        CompareBackends("c", MESSAGES, "contiguous", command_id="q"),
        CompareBackends("c", MESSAGES, "contiguous", command_id="other"),
        CancelQuery("q"),
        CancelQuery("whole"),
        CancelQuery("nothing"),
    )
    assert talk.until(CommandFailed, command_id="q").error.code == "query_cancelled"
    assert isinstance(talk.until(ParityReport, command_id="other"), ParityReport)
    replies = [e for e in talk.events if getattr(e, "command_id", "") in ("q", "other", "nothing")]
    assert len(replies) == 2
    assert not any(thread.name == THREAD_NAME for thread in threading.enumerate())


def test_only_the_asker_cancels_a_question(talk, monkeypatch):
    monkeypatch.setattr(Inspections, "advance", lambda self, budget_s: None)
    talk.send(CompareBackends("c", MESSAGES, "contiguous", command_id="q"))
    stranger = Talk(talk.handle.connect())
    stranger.send(CancelQuery("q"))
    stranger.ask(CountTokens("x", command_id="after"))
    assert not any(isinstance(e, CommandFailed) for e in talk.client.poll_events())
    talk.send(CancelQuery("q"))
    assert talk.until(CommandFailed, command_id="q").error.code == "query_cancelled"
    assert stranger.client.close(10.0)
