"""When a step is captured, replayed or run as it is; without a GPU, by doing its work again."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine import step_graphs
from engine.api.errors import DeviceLostError
from engine.api.params import SamplingParams
from engine.attention.prefill_tiles import NO_TILES
from engine.device_batch import DrawKind, HostSpan, HostStep
from engine.device_drawer import DRAW_WORDS, DeviceDrawer, Drawn
from engine.device_steps import DeviceSteps
from engine.prompt_sizes import prompt_rows
from engine.staging import HostCopies, Uploads
from engine.step_graphs import StepGraphs
from engine.step_inputs import Extras, Sizes, StepInputs
from kernels.reference.sample import sample
from tests.helpers.recorded_graphs import Fetched, Recorder
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

CPU = torch.device("cpu")
DECODES = {1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64}


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama(num_layers=2)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch):
    """Puts a recorder in the place of torch's graphs."""

    def install(compute: step_graphs.Compute) -> Recorder:
        recorder = Recorder(compute)
        monkeypatch.setattr(step_graphs, "GraphCapture", lambda _device: recorder.record)
        return recorder

    return install


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


def test_when_tables_lie_elsewhere_all_are_captured_anew_in_spare_time_too(cuda) -> None:
    graphs, recorder = graphs_of(cuda, None)
    while graphs.prepare():
        """Decodes of all numbers."""
    first = recorder.captured.total()
    graphs._drawer.generation += 1
    assert not graphs.prepare()
    assert recorder.captured.total() == first
    graphs._batch.generation += 1
    while graphs.prepare():
        """The same."""
    assert recorder.captured.total() == 2 * first
    assert graphs.count == first


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


def test_a_device_that_dies_in_a_capture_is_lost(cuda) -> None:
    graphs, _ = graphs_of(cuda, None)

    def die(_compute: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    graphs._record = die  # type: ignore[assignment]
    with pytest.raises(DeviceLostError, match="illegal memory access"):
        graphs.prepare()


def test_where_all_are_captured_anew_a_failure_is_forgotten(cuda) -> None:
    graphs, recorder = graphs_of(cuda, None)
    graphs.failure = "once"
    assert not graphs.prepare()
    graphs._drawer.generation += 1
    for _ in range(2):
        graphs.run(*step_of(3, 0))
    assert graphs.failure == ""
    assert recorder.captured.total() == 1


def test_of_many_graphs_those_used_last_are_kept(cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graphs, "MOST_GRAPHS", 2)
    graphs, recorder = graphs_of(cuda, None)

    def decodes() -> set[int]:
        return {sizes.decodes for sizes, _ in graphs._graphs}

    for count in (1, 1, 2, 2, 1, 4, 4):
        graphs.run(*step_of(count, 0))
    assert decodes() == {1, 4}
    captured = recorder.captured.total()
    graphs.run(*step_of(2, 0))
    # It is one that has not come up before again.
    assert recorder.captured.total() == captured
    graphs.run(*step_of(2, 0))
    assert decodes() == {2, 4}


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


class Tiles:
    """Cuts prompts into tiles of 16 tokens."""

    def launch(self, num_tokens: int) -> int:
        return 16

    def most_tiles(self, num_tokens: int, num_chunks: int, launch: int) -> int:
        return -(-num_tokens // launch) + num_chunks


def graphs_of(cuda, tiling: Tiles | None) -> tuple[StepGraphs, Recorder]:
    def compute(inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        return Drawn(torch.zeros(sizes.samples, dtype=torch.int64), None)

    recorder = cuda(compute)
    batch = SimpleNamespace(generation=0, padding_row=3)
    drawer = SimpleNamespace(generation=0)
    graphs = StepGraphs(recorder, batch, drawer, tiling, Uploads(HostCopies()), CPU)
    return graphs, recorder


@pytest.mark.parametrize("tiling", [Tiles(), None], ids=["with prompts", "without"])
def test_sizes_that_will_come_up_are_captured_one_at_a_time(cuda, tiling: Tiles | None) -> None:
    graphs, recorder = graphs_of(cuda, tiling)
    count = 0
    while graphs.prepare():
        count += 1
        assert recorder.captured.total() == count
    assert not graphs.prepare()
    assert set(recorder.captured.values()) == {1}
    # A single conversation's decodes come first.
    first, *_ = recorder.captured
    assert first == (Sizes(1, 0, 1, 0), DrawKind())
    prompts = {sizes.prompt for sizes, _ in recorder.captured}
    if tiling is None:
        assert prompts == {0}
        assert {sizes.decodes for sizes, _ in recorder.captured} == DECODES
    else:
        assert prompts == {0, *(prompt_rows(count) for count in range(1, 2049))}


def step_of(num_decodes: int, num_prompt: int) -> tuple[HostStep, Extras]:
    """A step whose numbers do not matter."""
    total = num_decodes + num_prompt
    rows, tokens = np.zeros(num_decodes, np.int64), np.zeros(total, np.int64)
    samples = num_decodes + (num_prompt > 0)
    chunk = HostSpan(num_decodes, num_prompt, 0, 1, 1, "r")
    step = replace(
        HostStep.empty(),
        ids=tokens,
        positions=tokens,
        slots=tokens,
        lengths=rows,
        rows=rows,
        sample_rows=np.arange(samples),
        sampled_rows=np.zeros(samples, np.int64),
        draws=np.zeros((samples, DRAW_WORDS), np.int64),
        spans=(chunk,) if num_prompt else (),
        sampled=(None,) * samples,  # type: ignore[arg-type]
        ends=(0,) * samples,
    )
    return step, Extras(NO_TILES, num_prompt)


def test_a_step_of_both_is_run_as_two_until_there_is_time(cuda) -> None:
    """Whoever reads along does not wait for a capture of decodes and prompts together."""
    graphs, recorder = graphs_of(cuda, Tiles())
    while graphs.prepare():
        """Decodes and prompts by themselves."""
    prepared = set(recorder.captured)
    assert all(not (sizes.decodes and sizes.prompt) for sizes, _ in prepared)
    for count in (1, 2, 3):
        drawn = graphs.run(*step_of(3, 40))
        assert drawn is not None
        assert drawn.tokens.tolist() == [0] * 4
        assert recorder.num_replays == 2 * count
    assert set(recorder.captured) == prepared
    assert graphs.prepare()
    ((sizes, _),) = set(recorder.captured) - prepared
    assert (sizes.decodes, sizes.prompt) == (4, 48)
    assert not graphs.prepare()
    graphs.run(*step_of(3, 40))
    assert recorder.num_replays == 7


def test_what_came_up_once_is_not_captured_in_spare_time_either(cuda) -> None:
    graphs, recorder = graphs_of(cuda, Tiles())
    while graphs.prepare():
        """Decodes and prompts by themselves."""
    count = recorder.captured.total()
    graphs.run(*step_of(3, 40))
    assert not graphs.prepare()
    assert recorder.captured.total() == count


def test_without_spare_time_the_halves_are_captured(cuda) -> None:
    graphs, recorder = graphs_of(cuda, Tiles())
    graphs.run(*step_of(3, 40))
    assert not recorder.captured
    graphs.run(*step_of(3, 40))
    assert {(sizes.decodes, sizes.prompt) for sizes, _ in recorder.captured} == {(4, 0), (0, 48)}
    assert recorder.num_replays == 2


def test_samples_of_decodes_and_chunks_lie_behind_each_other() -> None:
    """Three decodes in a place for four, then two chunks in a place for eight."""
    drawn = Drawn(torch.arange(12), torch.arange(12.0)[:, None])
    step = SimpleNamespace(num_decodes=3, sampled_rows=[0] * 5)
    close = step_graphs._without_padding(drawn, step, Sizes(4, 16, 12, 9))
    assert close.tokens.tolist() == [0, 1, 2, 4, 5]
    assert close.logprobs is not None
    assert close.logprobs.flatten().tolist() == [0, 1, 2, 4, 5]
    plain = step_graphs._without_padding(Drawn(drawn.tokens, None), step, Sizes(4, 16, 12, 9))
    assert plain.logprobs is None
