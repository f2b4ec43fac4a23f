"""Whole steps as CUDA graphs, from ids to the tokens drawn: a launch costs the host tens of
microseconds, and a step has hundreds of them.

One graph serves all steps up to its sizes; what a step does not fill is padding. A step of sizes
that have not come up before is not captured, so that it does not wait for the capture, but launched
with the same padding: so it needs no kernels but those that its graph will need. Beginnings that
decodes share are read by each for itself until there is a graph: what only makes steps faster is
made ready while nobody waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from engine.attention.prefill_tiles import Tiling
from engine.device_batch import DeviceBatch, DrawKind, HostStep
from engine.device_drawer import DeviceDrawer, Drawn
from engine.graph_capture import GraphCapture
from engine.graph_sizes import expected_sizes, graph_sizes
from engine.limits import raise_if_lost
from engine.loading.progress import Breathe, Cancelled, never_cancelled, no_breath
from engine.staging import Uploads
from engine.step_halves import halves, joined, kept
from engine.step_inputs import Extras, Layout, Sizes, StepInputs
from kernels.device_guard import breathing_before_launches

MOST_GRAPHS = 160
"""Each takes some megabytes of the device, which is nobody's account but CUDA's. More than twice as
many as are captured ahead of time.
"""

_INPUT_WORDS = 1 << 16
_WANTED_OFTEN = 2
_WANTED_LONG = 500
"""Steps after which shared beginnings have a graph captured, though there was no time to spare."""


Compute = Callable[[StepInputs, Sizes, DrawKind], Drawn]


class _InterruptedError(Exception):
    """Somebody asks for something while nothing but time to come is saved."""


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    drawn: Drawn
    layout: Layout


class StepGraphs:
    """Captures a graph the second time that its sizes come up, and replays it from then on.

    ``failure``: why a capture failed, empty if none has; from then on steps without a graph are
    launched kernel by kernel, until the graphs that there are become void. Where it was one of a
    shared beginning, each reads it for itself as long.

    Args:
        compute: a step, from its inputs to the tokens drawn; what is captured.
        batch: whose rows the inputs name.
        drawer: whose counts the steps read.
        tiling: how the prompts' attention is cut; None: steps with prompts are not captured.
        shares: whether there will be steps whose decodes share a beginning.
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
        *,
        shares: bool = False,
    ) -> None:
        self._compute = compute
        self._batch = batch
        self._drawer = drawer
        self._tiling = tiling
        self._expects_groups = shares
        self._uploads = uploads
        self._graphs: dict[tuple[Sizes, DrawKind], _Graph] = {}
        self._seen: set[tuple[Sizes, DrawKind]] = set()
        self._wanted: Counter[tuple[Sizes, DrawKind]] = Counter()
        self.failure = ""
        self._shares = True
        self._expected = expected_sizes(tiling, shares)
        self._record = GraphCapture(device)
        self._generation = (batch.generation, drawer.generation)
        self._inputs = torch.zeros(_INPUT_WORDS, dtype=torch.int64, device=device)

    @property
    def count(self) -> int:
        """Graphs that are there."""
        return len(self._graphs)

    def run(self, step: HostStep, extras: Extras) -> Drawn | None:
        """What a step draws, its samples first; valid until the next call.

        None if it is too large for a graph.
        """
        self._drop_void()
        if not self._shares:
            extras = replace(extras, groups=())
        sizes = graph_sizes(step, extras, self._tiling)
        if sizes is None or sizes.words > _INPUT_WORDS:
            return None
        if sizes.decodes and sizes.prompt and (sizes, step.kind) not in self._graphs:
            return self._run_halves(sizes, step, extras)
        return _without_padding(self._draw(sizes, step, extras), step, sizes)

    def _drop_void(self) -> None:
        """Drops the graphs of what lies elsewhere now: tables and newest tokens, or counts."""
        generation = (self._batch.generation, self._drawer.generation)
        if generation == self._generation:
            return
        if generation[0] != self._generation[0]:
            self._graphs.clear()
            self._expected = expected_sizes(self._tiling, self._expects_groups)
        else:
            self._graphs = {key: it for key, it in self._graphs.items() if not key[1].counted}
        self._generation = generation
        self.failure, self._shares = "", True

    def _run_halves(self, sizes: Sizes, step: HostStep, extras: Extras) -> Drawn:
        """Decodes and prompts one behind the other."""
        # As one they are faster, but that can wait until nobody waits for an answer.
        self._wanted[sizes, step.kind] += 1
        (decodes, decode_extras), (prompts, prompt_extras) = halves(step, extras)
        first = self._draw(self._sizes_of(decodes, decode_extras), decodes, decode_extras)
        drawn = kept(first, len(decodes.sampled))
        second = self._draw(self._sizes_of(prompts, prompt_extras), prompts, prompt_extras)
        return joined(drawn, second, len(prompts.sampled))

    def _sizes_of(self, half: HostStep, extras: Extras) -> Sizes:
        sizes = graph_sizes(half, extras, self._tiling)
        assert sizes is not None, "no larger than the whole"
        return sizes

    def _draw(self, sizes: Sizes, step: HostStep, extras: Extras) -> Drawn:
        """What a step of these sizes draws, padding included: by its graph if there is one, which
        is captured if the sizes have come up before.
        """
        key = (sizes, step.kind)
        graph = self._graphs.get(key)
        if graph is None and sizes.groups:
            graph = self._capture(*key) if self._is_due(key) else None
            if graph is None:
                alone = replace(extras, groups=())
                return self._draw(self._sizes_of(step, alone), step, alone)
        if graph is None and key in self._seen:
            graph = self._capture(*key)
        self._seen.add(key)
        if graph is None:
            self._send(Layout(sizes, self._batch.padding_row), step, extras)
            return self._compute(self._inputs_of(sizes), sizes, step.kind)
        # The last one is the one that was used last.
        self._graphs[key] = self._graphs.pop(key)
        self._replay(graph, step, extras)
        return graph.drawn

    def _is_due(self, key: tuple[Sizes, DrawKind]) -> bool:
        """Whether the graph of a shared beginning waits for spare time no longer."""
        self._wanted[key] += 1
        return self._wanted[key] > _WANTED_LONG

    def _replay(self, graph: _Graph, step: HostStep, extras: Extras) -> None:
        self._send(graph.layout, step, extras)
        graph.graph.replay()

    def _send(self, layout: Layout, step: HostStep, extras: Extras) -> None:
        words = layout.sizes.words
        self._uploads.send(words, lambda out: layout.write(step, extras, out), self._inputs)

    def _inputs_of(self, sizes: Sizes) -> StepInputs:
        return StepInputs.of(torch.split(self._inputs[: sizes.words], sizes.parts), sizes.groups)

    def prepare(self, interrupted: Cancelled = never_cancelled) -> bool:
        """Captures one of the sizes that will come up, ahead of time. False if there is none left.

        Done while nothing else is to do, a conversation's first answers need not launch kernel by
        kernel. ``interrupted`` is asked before each kernel, which may have to be compiled: where it
        says so, this size is left for the next call.
        """
        self._drop_void()
        for key, count in self._wanted.most_common():
            if count >= _WANTED_OFTEN and key not in self._graphs:
                return self._prepare(*key, interrupted)
            del self._wanted[key]
        while self._expected:
            key = self._expected[-1]
            if key not in self._graphs:
                return self._prepare(*key, interrupted)
            self._expected.pop()
        return False

    def _prepare(self, sizes: Sizes, kind: DrawKind, interrupted: Cancelled) -> bool:
        def breathe() -> None:
            if interrupted():
                raise _InterruptedError

        try:
            self._capture(sizes, kind, breathe)
        except _InterruptedError:
            return True
        # Also if it cannot be captured: that is not tried again.
        if self._wanted.pop((sizes, kind), None) is None:
            self._expected.pop()
        return not self.failure

    def _capture(self, sizes: Sizes, kind: DrawKind, breathe: Breathe = no_breath) -> _Graph | None:
        """A new graph; None if it could not be captured: that must not cost anybody's answer.

        ``breathe`` is called before each kernel until all are compiled.

        Raises:
            DeviceLostError: the device died.
            _InterruptedError: ``breathe`` says so.
        """
        if self.failure or (sizes.groups and not self._shares):
            return None
        layout = Layout(sizes, self._batch.padding_row)
        self._send(layout, HostStep.empty(), Extras.none())
        inputs = self._inputs_of(sizes)
        try:
            # Kernels are compiled and libraries set up here, which cannot be done while capturing.
            # It is all padding: what a step draws is counted, so it must not be computed twice.
            with breathing_before_launches(breathe):
                self._compute(inputs, sizes, kind)
            graph, drawn = self._record(lambda: self._compute(inputs, sizes, kind))
        except _InterruptedError:
            raise
        except Exception as error:
            # Not torch's alone: Triton has its own, as where a card has too little shared memory.
            raise_if_lost(error)
            if sizes.groups:
                self._shares = False
            else:
                self.failure = str(error) or type(error).__name__
            return None
        # The device has come to rest for the capture: no replay of what is dropped is under way.
        while len(self._graphs) >= MOST_GRAPHS:
            unused = next(iter(self._graphs))
            del self._graphs[unused]
            self._seen.discard(unused)
        found = self._graphs[sizes, kind] = _Graph(graph, drawn, layout)
        return found


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
