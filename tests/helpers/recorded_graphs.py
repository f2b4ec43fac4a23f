"""CUDA graphs without a GPU: what was captured is done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from engine.attention.prefill_tiles import NO_TILES
from engine.device_batch import DrawKind, HostSpan, HostStep
from engine.device_drawer import DRAW_WORDS, Drawn
from engine.staging import Copy, HostCopies, Uploads
from engine.step_graphs import Compute, StepGraphs
from engine.step_inputs import Extras, Sizes, StepInputs

DECODES = {1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64}
"""Rows of the graphs of decodes that are captured ahead of time."""


class Recorder:
    """A ``compute`` that notes what is captured of it, and the graphs over it.

    What a graph does again goes into the tensors that it gave when it was captured, as on a GPU.
    """

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.capturing: Graph | None = None
        self.captured: Counter[tuple[Sizes, DrawKind]] = Counter()
        self.num_replays = 0
        self.graphs: list[Graph] = []

    def __call__(self, inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        drawn = self.compute(inputs, sizes, kind)
        if self.capturing is not None:
            self.captured[sizes, kind] += 1
            self.capturing.calls.append(((inputs, sizes, kind), drawn))
        return drawn

    def record(self, compute: Callable[[], Drawn]) -> tuple[Graph, Drawn]:
        """In the place of ``GraphCapture``."""
        graph = self.capturing = Graph(self)
        drawn = compute()
        self.capturing = None
        return graph, drawn


class Graph:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        recorder.graphs.append(self)
        self.calls: list[tuple[tuple[StepInputs, Sizes, DrawKind], Drawn]] = []

    def replay(self) -> None:
        self.recorder.num_replays += 1
        for other in self.recorder.graphs:
            # They share their memory.
            for _, drawn in other.calls:
                drawn.tokens.fill_(-7)
        for args, drawn in self.calls:
            again = self.recorder.compute(*args)
            drawn.tokens.copy_(again.tokens)
            if drawn.logprobs is not None:
                drawn.logprobs.copy_(again.logprobs)


class Fetched(HostCopies):
    """What a graph gives is written over by its next replay: it is fetched into other memory."""

    def fetch(self, numbers: torch.Tensor) -> tuple[torch.Tensor, Copy]:
        return super().fetch(numbers.clone())


class Tiles:
    """Cuts prompts into tiles of 16 tokens."""

    def launch(self, num_tokens: int) -> int:
        return 16

    def most_tiles(self, num_tokens: int, num_chunks: int, launch: int) -> int:
        return -(-num_tokens // launch) + num_chunks


def graphs_of(
    cuda: Callable[[Compute], Recorder], tiling: Tiles | None, *, shares: bool = False
) -> tuple[StepGraphs, Recorder]:
    """Graphs of steps that compute nothing."""

    def compute(inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        return Drawn(torch.zeros(sizes.samples, dtype=torch.int64), None)

    recorder = cuda(compute)
    batch = SimpleNamespace(generation=0, padding_row=3)
    drawer = SimpleNamespace(generation=0)
    uploads, device = Uploads(HostCopies()), torch.device("cpu")
    graphs = StepGraphs(recorder, batch, drawer, tiling, uploads, device, shares=shares)
    return graphs, recorder


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
