"""A long gap of the benchmark comes with what the engine did in it."""

from __future__ import annotations

import gc
import json

import pytest

from engine.core import EngineCore
from engine.metrics import EngineMetrics
from tests.benchmarks import tabs
from tests.benchmarks.gap_story import StepJournal
from tests.benchmarks.options import Options


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_steps_of_a_gap_are_told_from_its_begin_on() -> None:
    clock, metrics = Clock(), EngineMetrics()
    with StepJournal(clock) as journal:
        for at_s, prompt in ((1.0, 0), (1.004, 256), (1.009, 500), (1.2, 0)):
            clock.now_s = at_s
            metrics.record_step(0.003, 7, prompt, 512 if prompt else 0)
    journal.calls.extend([(0.9, 1.001), (1.002, 1.0045), (1.0075, 1.0095), (1.1, 1.2)])
    story = journal.story(1.001, 1.01)
    steps = [(s["decodes"], s["prompt"], s["padded"]) for s in story["steps"]]
    assert steps == [(7, 256, 512), (7, 500, 512)]
    assert [step["at_ms"] for step in story["steps"]] == pytest.approx([3.0, 8.0])
    assert story["steps"][0]["ms"] == pytest.approx(3.0)
    assert story["gap_ms"] == pytest.approx(9.0)
    assert len(story["calls"]) == 2
    assert story["away_ms"] == pytest.approx(3.0)
    assert story["told_ms"] == pytest.approx(1.0)
    assert story["collected_ms"] == 0.0
    assert metrics.total_computed_tokens == 4 * 7 + 756


def test_a_gap_without_a_step_has_no_telling() -> None:
    story = StepJournal().story(1.0, 2.0)
    assert (story["steps"], story["told_ms"], story["away_ms"]) == ([], None, 0.0)


def test_only_the_part_of_a_collection_that_is_in_the_gap_counts() -> None:
    journal = StepJournal()
    journal.collections.extend([(0.5, 1.25), (1.5, 1.6), (1.9, 3.0), (4.0, 5.0)])
    assert journal.story(1.0, 2.0)["collected_ms"] == pytest.approx(250 + 100 + 100)


def test_it_notes_what_really_happens_and_leaves_no_trace() -> None:
    step, record_step, callbacks = EngineCore.step, EngineMetrics.record_step, list(gc.callbacks)
    with StepJournal() as journal:
        gc.collect()
    assert len(journal.collections) >= 1
    assert all(begin <= end for begin, end in journal.collections)
    assert (EngineCore.step, EngineMetrics.record_step) == (step, record_step)
    assert gc.callbacks == callbacks


def test_w2_tells_its_longest_gap(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = tabs.measure(Options(model="random:tiny", small=True))["rows"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    (story,) = [line["longest_gap"] for line in lines if "longest_gap" in line]
    assert story["gap_ms"] == row["paste_gap_max_ms"]
    # On a busy machine it need not be the prompt's own steps that took longest.
    assert story["calls"]
    assert all(step["decodes"] + step["prompt"] > 0 for step in story["steps"])
    assert all(0.0 <= step["at_ms"] <= story["gap_ms"] for step in story["steps"])
