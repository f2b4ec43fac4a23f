"""When a step is captured, replayed or run as it is; without a GPU, by doing its work again."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter

import pytest
import torch

from engine import step_graphs
from engine.api.params import SamplingParams
from engine.device_batch import DrawKind
from engine.device_drawer import DeviceDrawer, Drawn
from engine.device_steps import DeviceSteps
from engine.step_graphs import StepGraphs
from engine.step_inputs import Sizes, StepInputs
from kernels.reference.sample import sample
from tests.helpers.recorded_graphs import DECODES, Fetched, Recorder
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama(num_layers=2)


def with_graphs(engine: TorchEngine, cuda) -> Recorder:
    """The engine's steps as on a GPU, but for prompts, which are run as they are."""
    runner = engine.runner
    drawer = DeviceDrawer(sample, runner.decoder.config.vocab_size, CPU)
    steps = DeviceSteps(runner.compute_logits, drawer, 8, 16, 3, CPU)
    steps._copies = Fetched()
    recorder = cuda(steps._captured)
    steps.graphs = StepGraphs(recorder, steps._batch, drawer, None, steps._uploads, CPU)
    runner._device_steps = steps
    return recorder


def talk(engine: TorchEngine, count: int) -> list[list[int]]:
    draw = random.Random(3)
    for number in range(count):
        engine.add(f"r{number}", [draw.randrange(3, 300) for _ in range(20)], draw.randint(6, 20))
        engine.step(2)
    engine.run()
    return [engine.output(f"r{number}") for number in range(count)]


@pytest.mark.parametrize("lag", [0, 1])
def test_replayed_steps_say_what_others_say(tiny: TinyModel, cuda, lag: int) -> None:
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=lag)
    recorder = with_graphs(engine, cuda)
    assert talk(engine, 6) == talk(plain, 6)
    assert len({sizes.decodes for sizes, _ in recorder.captured}) > 2
    # Captured once each, and all but the first two steps of each size are replayed.
    assert set(recorder.captured.values()) == {1}
    assert recorder.num_replays > 2 * len(recorder.captured)


def test_what_comes_up_once_is_not_captured(tiny: TinyModel, cuda) -> None:
    engine = torch_engine(tiny, "paged_reference")
    recorder = with_graphs(engine, cuda)
    engine.add("a", [5, 6, 7], 2)
    engine.run()
    assert (recorder.captured, recorder.num_replays) == (Counter(), 0)
    engine.add("b", [5, 6, 7], 2)
    engine.run()
    assert list(recorder.captured) == [(Sizes(1, 0, 1, 0), DrawKind())]
    assert recorder.num_replays == 1
    # Nor is it captured again ahead of time.
    while engine.runner.prepare():
        pass
    assert {sizes.decodes for sizes, _ in recorder.captured} == DECODES
    assert set(recorder.captured.values()) == {1}


def test_when_counts_lie_elsewhere_what_counts_is_captured_anew(tiny: TinyModel, cuda) -> None:
    engine = torch_engine(tiny, "paged_reference")
    plain = torch_engine(tiny, "paged_reference")
    recorder = with_graphs(engine, cuda)
    talk(engine, 1)
    assert set(recorder.captured.values()) == {1}
    # Each takes memory for counts; five are more than there is room for at first.
    for turn, count in enumerate((1, 5, 1)):
        for each in (engine, plain):
            for number in range(count):
                params = SamplingParams(
                    temperature=0.0, max_tokens=6, seed=0, repetition_penalty=1.3
                )
                each.core.add_request(f"{turn}.{number}", [5, 6, 7 + number], params)
            each.run()
        for number in range(count):
            assert engine.output(f"{turn}.{number}") == plain.output(f"{turn}.{number}")
    assert recorder.captured[Sizes(1, 0, 1, 0), DrawKind(counted=True)] == 2
    assert recorder.captured[Sizes(1, 0, 1, 0), DrawKind()] == 1


def test_what_is_not_captured_yet_is_launched_with_the_sizes_of_its_graph(
    tiny: TinyModel, cuda
) -> None:
    """Kernels are compiled for some sizes: whoever waits for an answer waits for no others."""
    engine = torch_engine(tiny, "paged_reference")
    recorder = with_graphs(engine, cuda)
    launched: set[Sizes] = set()
    compute = recorder.compute

    def noted(inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        launched.add(sizes)
        return compute(inputs, sizes, kind)

    recorder.compute = noted
    for number in range(3):
        engine.add(f"r{number}", [5, 6, 7 + number], 4)
    engine.step(2)
    assert not recorder.captured
    assert launched == {Sizes(4, 0, 4, 0)}


@pytest.mark.parametrize("broken", ["kernels", "capture"])
def test_a_capture_that_fails_costs_no_answer(
    tiny: TinyModel, cuda, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=1)
    recorder = with_graphs(engine, cuda)
    steps = engine.runner._device_steps
    assert steps is not None
    assert steps.graphs is not None
    attempts: list[int] = []

    def fail(*_: object) -> None:
        attempts.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    if broken == "capture":
        monkeypatch.setattr(steps.graphs, "_record", fail)
    else:
        compute = recorder.compute

        def failing(inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
            # What is computed before a capture is all padding.
            if not inputs.lengths.any():
                fail()
            return compute(inputs, sizes, kind)

        recorder.compute = failing
    assert talk(engine, 4) == talk(plain, 4)
    assert len(attempts) == 1
    assert "out of memory" in steps.graphs.failure
    assert not engine.runner.prepare()
    assert not recorder.captured
    assert engine.core.metrics.num_preemptions == 0


def test_nothing_holds_on_to_the_steps_of_a_model_that_is_let_go(tiny: TinyModel, cuda) -> None:
    """Weights and pool of a GPU must be free before the next model is loaded."""
    cuda(lambda *_: None)
    steps = DeviceSteps(lambda _batch: torch.zeros(0), DeviceDrawer(sample, 9, CPU), 8, 4, 2, CPU)
    steps.graphs = steps.make_graphs()
    gone = weakref.ref(steps)
    gc.disable()
    try:
        del steps
        assert gone() is None
    finally:
        gc.enable()


def test_a_step_with_more_numbers_than_have_a_place_is_run(
    tiny: TinyModel, cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = torch_engine(tiny, "paged_reference")
    recorder = with_graphs(engine, cuda)
    monkeypatch.setattr(step_graphs, "_INPUT_WORDS", Sizes(2, 0, 2, 0).words)
    plain = torch_engine(tiny, "paged_reference")
    assert talk(engine, 5) == talk(plain, 5)
    captured = {sizes.decodes for sizes, _ in recorder.captured}
    assert captured
    assert captured <= {1, 2}
