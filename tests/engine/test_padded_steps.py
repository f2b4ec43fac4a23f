"""Steps filled up to the sizes of a graph say what steps of their own sizes say, groups too."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from engine.attention.make import make_backend
from engine.device_batch import HostStep
from engine.device_drawer import DeviceDrawer, Drawn
from engine.device_steps import DeviceSteps
from engine.graph_sizes import graph_sizes
from engine.step_graphs import _without_padding
from engine.step_halves import halves, joined, kept
from engine.step_inputs import Extras, Layout, StepInputs
from kernels.reference.sample import sample
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine


@pytest.fixture(scope="module")
def tiny() -> TinyModel:
    return tiny_llama(num_layers=2)


class Unreplayed:
    """In the place of ``StepGraphs``: the same padding, computed at once."""

    failure = ""

    def __init__(self, steps: DeviceSteps, tiling: object, in_halves: bool = False) -> None:
        self.steps, self.tiling, self.in_halves = steps, tiling, in_halves
        self.num_padded = self.num_prompts = self.num_groups = self.num_halved = 0

    def run(self, step: HostStep, extras: Extras) -> Drawn | None:
        if self.in_halves and step.num_decodes and step.spans:
            self.num_halved += 1
            first, second = (self.run(*half) for half in halves(step, extras))
            assert first is not None
            assert second is not None
            chunks = len(step.sampled_rows) - step.num_decodes
            return joined(kept(first, step.num_decodes), second, chunks)
        sizes = graph_sizes(step, extras, self.tiling)
        if sizes is None:
            return None
        numbers = np.empty(sizes.words, np.int64)
        Layout(sizes, self.steps._batch.padding_row).write(step, extras, numbers)
        pieces = torch.split(torch.from_numpy(numbers), sizes.parts)
        self.num_padded += sizes.decodes > step.num_decodes
        self.num_prompts += sizes.prompt > 0
        self.num_groups += sizes.groups > 0
        drawn = self.steps._captured(StepInputs.of(pieces, sizes.groups), sizes, step.kind)
        return _without_padding(drawn, step, sizes)


def through_padding(
    engine: TorchEngine, backend: str, shares: bool = False, in_halves: bool = False
) -> Unreplayed:
    runner = engine.runner
    config, device = runner.decoder.config, runner.decoder.device
    if backend != runner.attention.name:
        runner.attention = make_backend(
            backend, config, 64, 8, torch.float32, device, runner.attention.cache
        )
    tiling = runner.attention if backend == "paged_triton" else None
    steps = DeviceSteps(
        runner.compute_logits,
        DeviceDrawer(sample, config.vocab_size, device),
        8,
        16,
        3,
        device,
        tiling=tiling,
        shares=(lambda sequences, tokens, _own: sequences > 1 and tokens >= 8) if shares else None,
    )
    steps.graphs = graphs = Unreplayed(steps, tiling, in_halves)
    runner._device_steps = steps
    return graphs


def talk(engine: TorchEngine, count: int, long: int = 40) -> list[list[int]]:
    draw = random.Random(3)
    system = [draw.randrange(3, 300) for _ in range(17)]
    for number in range(count):
        ids = system + [draw.randrange(3, 300) for _ in range(draw.randint(1, long))]
        engine.add(f"r{number}", ids, draw.randint(3, 12))
        engine.step(2)
    engine.run()
    return [engine.output(f"r{number}") for number in range(count)]


@pytest.mark.parametrize("lag", [0, 1])
def test_decodes(tiny: TinyModel, lag: int) -> None:
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=lag, token_budget=24)
    graphs = through_padding(engine, "paged_reference")
    assert talk(engine, 7) == talk(plain, 7)
    assert graphs.num_padded > 0
    assert graphs.num_prompts == 0


def test_prompts_and_shared_beginnings(tiny: TinyModel) -> None:
    """Through the kernels, as a GPU would have it."""
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=1, token_budget=24)
    graphs = through_padding(engine, "paged_triton", shares=True)
    assert talk(engine, 4, long=12) == talk(plain, 4, long=12)
    assert graphs.num_padded > 0
    assert graphs.num_prompts > 2
    assert graphs.num_groups > 2


def test_decodes_and_prompts_apart(tiny: TinyModel) -> None:
    plain = torch_engine(tiny, "paged_reference")
    engine = torch_engine(tiny, "paged_reference", lag=1, token_budget=24)
    graphs = through_padding(engine, "paged_triton", shares=True, in_halves=True)
    assert talk(engine, 4, long=12) == talk(plain, 4, long=12)
    assert graphs.num_halved > 2
    assert graphs.num_groups > 0
