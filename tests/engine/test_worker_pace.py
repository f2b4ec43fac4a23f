"""Steps that may be in flight while the next one is submitted, and a pace that makes it wait."""

from __future__ import annotations

import time

import pytest

from engine.api.commands import (
    LoadModel,
    PauseEngine,
    ResumeEngine,
    SetRate,
    StepEngine,
    SubscribePool,
)
from engine.api.events import BlockEvents, ModelLoaded, RequestFinished, RequestQueued
from engine.metrics import EngineMetrics
from tests.helpers import engine_cases
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.hash_runner import HashRunner
from tests.helpers.talk import Talk, submit


class _Told:
    """A handle that tells when its result is taken."""

    def __init__(self, handle: object, number: int, order: list[tuple[str, int]]) -> None:
        self._handle, self._number, self._order = handle, number, order

    def result(self) -> object:
        self._order.append(("result", self._number))
        return self._handle.result()


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Submits and results in their order, of an engine that has one step in flight."""
    order: list[tuple[str, int]] = []
    submit_step = HashRunner.submit

    def told(self, output):
        number = sum(what == "submit" for what, _ in order)
        order.append(("submit", number))
        return _Told(submit_step(self, output), number, order)

    monkeypatch.setattr(HashRunner, "submit", told)
    install_fake_loader(monkeypatch, lag=1)
    return order


def loaded(talk: Talk) -> None:
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)


def drawn(talk: Talk, name: str, count: int) -> bool:
    """Whether so many tokens come, without a further command."""
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        talk.events.extend(talk.client.poll_events())
        if len(talk.text(name)) >= count:
            return True
        time.sleep(0.005)
    return False


def test_at_full_speed_a_step_is_submitted_before_the_last_ones_result(order, talk):
    loaded(talk)
    talk.send(submit("a", max_tokens=10))
    talk.until(RequestFinished, request_id="a")
    for number in range(1, 10):
        assert order.index(("submit", number)) < order.index(("result", number - 1))


def test_granted_steps_overlap_and_the_last_of_them_is_told_at_once(order, talk):
    loaded(talk)
    talk.send(PauseEngine(), submit("a", max_tokens=6))
    talk.until(RequestQueued)
    talk.send(StepEngine(3))
    assert drawn(talk, "a", 3)
    expected = ["submit", "submit", "result", "submit", "result", "result"]
    assert [what for what, _ in order] == expected
    talk.send(ResumeEngine())
    talk.until(RequestFinished, request_id="a")


def test_slow_motion_tells_a_step_before_it_waits_for_the_next(order, talk):
    loaded(talk)
    # The second step would come after a quarter of an hour.
    talk.send(SetRate(0.001), submit("a", max_tokens=1))
    talk.until(RequestFinished, 20.0, request_id="a")
    talk.send(SetRate(None), submit("b", max_tokens=3))
    talk.until(RequestFinished, 20.0, request_id="b")


def test_a_pause_is_no_time_that_a_step_computed(order, talk, monkeypatch):
    """On the real clock: what was in flight when the engine was paused, and slow motion."""
    durations: list[float] = []
    record = EngineMetrics.record_step

    def noted(self, duration_s, *numbers):
        durations.append(duration_s)
        record(self, duration_s, *numbers)

    monkeypatch.setattr(EngineMetrics, "record_step", noted)
    monkeypatch.setattr(engine_cases, "FakeClock", lambda: time.perf_counter)
    loaded(talk)
    talk.send(PauseEngine(), submit("a", max_tokens=6))
    talk.until(RequestQueued)
    talk.send(StepEngine(2))
    assert drawn(talk, "a", 2)
    time.sleep(1.0)
    talk.send(SetRate(1.0), ResumeEngine())
    talk.until(RequestFinished, 30.0, request_id="a")
    # One step may be held up; waits would be in nearly all.
    assert sorted(durations)[-2] < 0.9


def test_the_lowest_rates_are_served(order, talk):
    loaded(talk)
    talk.send(SetRate(0.001), SubscribePool(0.001), submit("a", max_tokens=4))
    assert drawn(talk, "a", 1)
    talk.until(BlockEvents)
    talk.send(SetRate(None))
    talk.until(RequestFinished, 20.0, request_id="a")
