"""When a step is captured, replayed or run as it is; without a GPU, by doing its work again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from engine import step_graphs
from engine.api.params import SamplingParams
from engine.device_batch import DrawKind
from engine.device_drawer import DeviceDrawer, Drawn
from engine.device_steps import DeviceSteps
from engine.staging import Copy, HostCopies, Uploads
from engine.step_graphs import StepGraphs, prompt_rows
from engine.step_inputs import Sizes, StepInputs
from kernels.reference.sample import sample
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

CPU = torch.device("cpu")


class Recorder:
    """A ``compute`` that notes what is captured of it, and the graphs of torch.cuda over it.

    What a graph does again goes into the tensors that it gave when it was captured, as on a GPU.
    """

    def __init__(self, compute: step_graphs.Compute) -> None:
        self.compute = compute
        self.capturing: Graph | None = None
        self.captured: Counter[tuple[Sizes, DrawKind]] = Counter()
        self.num_replays = 0

    def __call__(self, inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        drawn = self.compute(inputs, sizes, kind)
        if self.capturing is not None:
            self.captured[sizes, kind] += 1
            self.capturing.calls.append(((inputs, sizes, kind), drawn))
        return drawn

    @contextmanager
    def capture(self, graph: Graph, pool: object) -> Iterator[None]:
        assert pool == "pool"
        self.capturing = graph
        yield
        self.capturing = None


class Graph:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.calls: list[tuple[tuple[StepInputs, Sizes, DrawKind], Drawn]] = []

    def replay(self) -> None:
        self.recorder.num_replays += 1
        for args, drawn in self.calls:
            again = self.recorder.compute(*args)
            drawn.tokens.copy_(again.tokens)
            if drawn.logprobs is not None:
                drawn.logprobs.copy_(again.logprobs)


class Fetched(HostCopies):
    """What a graph gives is written over by its next replay: it is fetched into other memory."""

    def fetch(self, numbers: torch.Tensor) -> tuple[torch.Tensor, Copy]:
        return super().fetch(numbers.clone())


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama(num_layers=2)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch):
    """Puts a recorder in the place of torch's graphs."""

    def install(compute: step_graphs.Compute) -> Recorder:
        recorder = Recorder(compute)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(recorder))
        monkeypatch.setattr(torch.cuda, "graph", recorder.capture)
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
    assert len(recorder.captured) == 8
    assert set(recorder.captured.values()) == {1}


def test_when_counts_lie_elsewhere_all_are_captured_anew(tiny: TinyModel, cuda) -> None:
    engine = torch_engine(tiny, "paged_reference")
    recorder = with_graphs(engine, cuda)
    talk(engine, 1)
    ((key, times),) = recorder.captured.items()
    assert times == 1
    # The first request with penalties makes the drawer take memory for counts.
    params = SamplingParams(temperature=0.0, max_tokens=2, seed=0, repetition_penalty=1.3)
    engine.core.add_request("counted", [5, 6, 7], params)
    engine.run()
    engine.add("again", [5, 6, 8], 6)
    engine.run()
    assert recorder.captured[key] == 2
    plain = torch_engine(tiny, "paged_reference")
    plain.add("again", [5, 6, 8], 6)
    plain.run()
    assert engine.output("again") == plain.output("again")


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
        assert {sizes.decodes for sizes, _ in recorder.captured} == {1, 2, 4, 8}
    else:
        assert prompts == {0, *(prompt_rows(count) for count in range(1, 2049))}


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
