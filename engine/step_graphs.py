"""Whole steps as CUDA graphs, from ids to the tokens drawn: a launch costs the host tens of
microseconds, and a step has hundreds of them.

One graph serves all steps up to its sizes; what a step does not fill is padding. A step of sizes
that have not come up before is not captured but run, so that it does not wait for the capture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.attention.prefill_tiles import Tiling
from engine.device_batch import DeviceBatch, DrawKind, HostStep
from engine.device_drawer import DeviceDrawer, Drawn
from engine.staging import Uploads
from engine.step_inputs import Extras, Layout, Sizes, StepInputs
from kernels.launch import next_power_of_2

MAX_DECODES = 256
MAX_PROMPT_TOKENS = 2048
MAX_CHUNKS = 8
_INPUT_WORDS = 1 << 16

Compute = Callable[[StepInputs, Sizes, DrawKind], Drawn]


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    drawn: Drawn
    layout: Layout


class StepGraphs:
    """Captures a graph the second time that its sizes come up, and replays it from then on.

    Args:
        compute: a step, from its inputs to the tokens drawn; what is captured.
        batch: whose rows the inputs name.
        drawer: whose counts the steps read.
        tiling: how the prompts' attention is cut; None: steps with prompts are not captured.
        uploads: takes inputs to the device.
        device: where the model lies.
    """

    def __init__(
        self,
        compute: Compute,
        batch: DeviceBatch,
        drawer: DeviceDrawer,
        tiling: Tiling | None,
        uploads: Uploads,
        device: torch.device,
    ) -> None:
        self._compute = compute
        self._batch = batch
        self._drawer = drawer
        self._tiling = tiling
        self._uploads = uploads
        self._device = device
        self._graphs: dict[tuple[Sizes, DrawKind], _Graph] = {}
        self._seen: set[tuple[Sizes, DrawKind]] = set()
        self._expected = _expected_sizes()
        self._memory = torch.cuda.graph_pool_handle()
        self._generation = (batch.generation, drawer.generation)
        self._inputs = torch.zeros(_INPUT_WORDS, dtype=torch.int64, device=device)

    def run(self, step: HostStep, extras: Extras) -> Drawn | None:
        """What a step draws, its samples first; valid until the next call.

        None if it is not to be captured, or not yet.
        """
        sizes = graph_sizes(step, extras, self._tiling)
        if sizes is None or sizes.words > _INPUT_WORDS:
            return None
        generation = (self._batch.generation, self._drawer.generation)
        if self._generation != generation:
            # Tables, newest tokens or counts lie elsewhere now.
            self._graphs.clear()
            self._generation = generation
        key = (sizes, step.kind)
        graph = self._graphs.get(key)
        if graph is None:
            if key not in self._seen:
                self._seen.add(key)
                return None
            graph = self._graphs[key] = self._capture(sizes, step.kind)
        layout = graph.layout
        self._uploads.send(sizes.words, lambda out: layout.write(step, extras, out), self._inputs)
        graph.graph.replay()
        return _without_padding(graph.drawn, step, sizes)

    def prepare(self) -> bool:
        """Captures one of the sizes that will come up, ahead of time. False if there is none left.

        Done while nothing else is to do, a conversation's first answers need not launch kernel by
        kernel.
        """
        while self._expected:
            decodes, prompt, kind = self._expected.pop()
            sizes = Sizes(decodes, 0, decodes, 0)
            if prompt:
                if self._tiling is None:
                    continue
                sizes = _with_prompt(decodes, prompt, self._tiling)
            if (sizes, kind) not in self._graphs:
                self._graphs[sizes, kind] = self._capture(sizes, kind)
                return True
        return False

    def _capture(self, sizes: Sizes, kind: DrawKind) -> _Graph:
        layout = Layout(sizes, self._batch.padding_row)
        nothing, none = HostStep.empty(), Extras.none()
        self._uploads.send(sizes.words, lambda out: layout.write(nothing, none, out), self._inputs)
        inputs = StepInputs.of(torch.split(self._inputs[: sizes.words], sizes.parts), sizes.groups)
        # Kernels are compiled and libraries set up here, which cannot be done while capturing. It
        # is all padding: what a step draws is counted, so it must not be computed twice.
        self._compute(inputs, sizes, kind)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            drawn = self._compute(inputs, sizes, kind)
        return _Graph(graph, drawn, layout)


def graph_sizes(step: HostStep, extras: Extras, tiling: Tiling | None) -> Sizes | None:
    """Sizes of the graph for a step; None if it is too large for one."""
    num_prompt = len(step.ids) - step.num_decodes
    too_large = step.num_decodes > MAX_DECODES or num_prompt > MAX_PROMPT_TOKENS
    if too_large or len(step.spans) > MAX_CHUNKS or (num_prompt and tiling is None):
        return None
    decodes = graph_rows(step.num_decodes)
    groups = next_power_of_2(len(extras.groups)) if extras.groups else 0
    longest = max((len(group.rows) for group in extras.groups), default=0)
    width = next_power_of_2(longest) if groups else 0
    if not num_prompt or tiling is None:
        return Sizes(decodes, 0, decodes, 0, groups, width)
    return _with_prompt(decodes, prompt_rows(num_prompt), tiling, groups, width)


def _with_prompt(
    decodes: int, prompt: int, tiling: Tiling, groups: int = 0, width: int = 0
) -> Sizes:
    tiles = tiling.most_tiles(prompt, MAX_CHUNKS, tiling.launch(prompt))
    return Sizes(decodes, prompt, decodes + MAX_CHUNKS, tiles, groups, width)


def graph_rows(count: int) -> int:
    """Rows of the graph for ``count`` decodes.

    Powers of two to 8, then steps of at most a third.
    """
    if count <= 8:
        return next_power_of_2(count) if count else 0
    step = max(4, next_power_of_2(count) // 8)
    return -(-count // step) * step


def prompt_rows(count: int) -> int:
    """Prompt tokens of the graph for ``count`` of them: at least 16, then at most half more."""
    power = max(16, next_power_of_2(count))
    return power * 3 // 4 if power > 16 and count <= power * 3 // 4 else power


def _without_padding(drawn: Drawn, step: HostStep, sizes: Sizes) -> Drawn:
    """The samples of decodes and chunks behind each other."""
    count, chunks = step.num_decodes, len(step.sampled_rows) - step.num_decodes
    if not chunks or count == sizes.decodes:
        return drawn

    def close(values: torch.Tensor) -> torch.Tensor:
        late = values[sizes.decodes : sizes.decodes + chunks]
        return torch.cat((values[:count], late))

    logprobs = None if drawn.logprobs is None else close(drawn.logprobs)
    return Drawn(close(drawn.tokens), logprobs)


def _expected_sizes() -> list[tuple[int, int, DrawKind]]:
    """Decodes, prompt tokens and drawing of steps that a few conversations will have, the last of
    the list first.
    """
    plain, filtered = DrawKind(), DrawKind(filtered=True)
    prompts = sorted({prompt_rows(count) for count in range(1, MAX_PROMPT_TOKENS + 1, 8)})
    counts = (1, 2, 4, 8)
    alone = [(count, 0, kind) for count in counts for kind in (plain, filtered)]
    first = [(0, prompt, plain) for prompt in prompts]
    mixed = [(count, prompt, plain) for count in counts for prompt in prompts]
    return [*alone, *first, *mixed][::-1]
