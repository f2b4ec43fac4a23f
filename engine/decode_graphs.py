"""Whole decode steps as CUDA graphs, from ids to the tokens drawn: a launch costs the host about
14 µs, and a step has hundreds of them.

One graph serves all batches up to its number of rows. Rows that a batch does not fill are padding:
slot −1 writes nothing, length 0 attends to nothing, and the table row is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.device_batch import DeviceBatch, DrawKind, HostStep, Ints
from engine.device_drawer import DRAW_WORDS, NOTHING_DRAWN, DeviceDrawer
from engine.staging import Uploads
from kernels.launch import next_power_of_2
from kernels.reference.sample import Sampled

MAX_GRAPH_ROWS = 256
_ROW_WORDS = 5 + DRAW_WORDS


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """What a decode step reads, on the device: see ``HostStep``; ``[rows]`` int64 each, ``draws``
    ``[rows, DRAW_WORDS]``.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    lengths: Tensor
    rows: Tensor
    draws: Tensor


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    drawn: Sampled


class DecodeGraphs:
    """Captures a graph the first time that a number of rows comes up, and replays it from then on.

    Args:
        compute: a decode step, from its inputs to the tokens drawn; what is captured.
        batch: whose rows the inputs name.
        drawer: whose counts the steps read.
        uploads: takes inputs to the device.
        device: where the model lies.
    """

    def __init__(
        self,
        compute: Callable[[DecodeInputs, DrawKind], Sampled],
        batch: DeviceBatch,
        drawer: DeviceDrawer,
        uploads: Uploads,
        device: torch.device,
    ) -> None:
        self._compute = compute
        self._batch = batch
        self._uploads = uploads
        self._device = device
        self._drawer = drawer
        self._graphs: dict[tuple[int, DrawKind], _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()
        self._generation = (batch.generation, drawer.generation)
        self._inputs = torch.zeros(MAX_GRAPH_ROWS * _ROW_WORDS, dtype=torch.int64, device=device)

    def takes(self, step: HostStep) -> bool:
        """Whether the step is one that graphs are for: decodes only, and not too many."""
        return not step.spans and 0 < step.num_decodes <= MAX_GRAPH_ROWS

    def run(self, step: HostStep) -> Sampled:
        """What a step of decodes draws, at least ``[decodes]``; valid until the next call."""
        generation = (self._batch.generation, self._drawer.generation)
        if self._generation != generation:
            # Tables, newest tokens or counts lie elsewhere now.
            self._graphs.clear()
            self._generation = generation
        rows = graph_rows(step.num_decodes)
        self._uploads.send(padded(step, rows, self._batch.padding_row), self._inputs)
        graph = self._graphs.get((rows, step.kind))
        if graph is None:
            graph = self._graphs[rows, step.kind] = self._capture(rows, step.kind)
        graph.graph.replay()
        return graph.drawn

    def capture(self, rows: int, kind: DrawKind) -> None:
        """Captures the graph for ``rows`` ahead of time, with inputs that are all padding."""
        rows = graph_rows(rows)
        if (rows, kind) not in self._graphs:
            self._uploads.send(padded(_NOTHING, rows, self._batch.padding_row), self._inputs)
            self._graphs[rows, kind] = self._capture(rows, kind)

    def _capture(self, rows: int, kind: DrawKind) -> _Graph:
        inputs = self._views(rows)
        # Kernels are compiled and libraries set up here, which cannot be done while capturing. It
        # computes nothing, as the step itself must run once only: what it draws is counted.
        kept = self._inputs.clone()
        self._uploads.send(padded(_NOTHING, rows, self._batch.padding_row), self._inputs)
        self._compute(inputs, kind)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            drawn = self._compute(inputs, kind)
        self._inputs.copy_(kept)
        return _Graph(graph, drawn)

    def _views(self, rows: int) -> DecodeInputs:
        used = self._inputs[: rows * _ROW_WORDS]
        *parts, draws = torch.split(used, [rows] * 5 + [rows * DRAW_WORDS])
        ids, positions, slots, lengths, table_rows = parts
        return DecodeInputs(
            ids, positions, slots, lengths, table_rows, draws.view(rows, DRAW_WORDS)
        )


def graph_rows(count: int) -> int:
    """Rows of the graph for ``count`` decodes.

    Powers of two to 8, then steps of at most a third.
    """
    if count <= 8:
        return next_power_of_2(count)
    step = max(4, next_power_of_2(count) // 8)
    return -(-count // step) * step


def padded(step: HostStep, rows: int, padding_row: int) -> list[Ints]:
    """A step of decodes as ``DecodeInputs`` wants it, filled up to ``rows``."""
    missing = rows - step.num_decodes
    if not missing:
        return [step.ids, step.positions, step.slots, step.lengths, step.rows, step.draws]

    def fill(values: Ints, filler: int) -> Ints:
        return np.concatenate((values, np.full(missing, filler, np.int64)))

    draws = np.concatenate((step.draws, np.tile(NOTHING_DRAWN, (missing, 1))))
    return [
        fill(step.ids, 0),
        fill(step.positions, 0),
        fill(step.slots, -1),
        fill(step.lengths, 0),
        fill(step.rows, padding_row),
        draws,
    ]


_NONE = np.empty(0, np.int64)
_NOTHING = HostStep(
    ids=_NONE,
    positions=_NONE,
    slots=_NONE,
    lengths=_NONE,
    rows=_NONE,
    sample_rows=_NONE,
    sampled_rows=_NONE,
    draws=np.empty((0, DRAW_WORDS), np.int64),
    kind=DrawKind(),
    changed=_NONE,
    changes=_NONE,
    spans=(),
    sampled=(),
    ends=(),
)
