"""CUDA graphs without a GPU: what was captured is done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from engine.device_batch import DrawKind
from engine.device_drawer import Drawn
from engine.staging import Copy, HostCopies
from engine.step_graphs import Compute
from engine.step_inputs import Sizes, StepInputs


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
