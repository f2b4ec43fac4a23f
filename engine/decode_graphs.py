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

from engine.device_batch import DRAW_WORDS, DeviceBatch, HostStep, Ints
from engine.staging import Uploads
from kernels.launch import next_power_of_2

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
    tokens: Tensor


class DecodeGraphs:
    """Captures a graph the first time that a number of rows comes up, and replays it from then on.

    Args:
        compute: a decode step, from its inputs to the tokens drawn; what is captured.
        batch: whose rows the inputs name.
        uploads: takes inputs to the device.
        device: where the model lies.
    """

    def __init__(
        self,
        compute: Callable[[DecodeInputs], Tensor],
        batch: DeviceBatch,
        uploads: Uploads,
        device: torch.device,
    ) -> None:
        self._compute = compute
        self._batch = batch
        self._uploads = uploads
        self._device = device
        self._graphs: dict[int, _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()
        self._generation = batch.generation
        self._inputs = torch.zeros(MAX_GRAPH_ROWS * _ROW_WORDS, dtype=torch.int64, device=device)

    def takes(self, step: HostStep) -> bool:
        """Whether the step is one that graphs are for: decodes only, and not too many."""
        return not step.spans and 0 < step.num_decodes <= MAX_GRAPH_ROWS

    def run(self, step: HostStep) -> Tensor:
        """Tokens of a step of decodes, ``[decodes]``; valid until the next call."""
        if self._generation != self._batch.generation:
            # Tables and newest tokens lie elsewhere now.
            self._graphs.clear()
            self._generation = self._batch.generation
        rows = graph_rows(step.num_decodes)
        self._uploads.send(padded(step, rows, self._batch.padding_row), self._inputs)
        graph = self._graphs.get(rows)
        if graph is None:
            graph = self._graphs[rows] = self._capture(rows)
        graph.graph.replay()
        return graph.tokens[: step.num_decodes]

    def capture(self, rows: int) -> None:
        """Captures the graph for ``rows`` ahead of time, with inputs that are all padding."""
        rows = graph_rows(rows)
        if rows not in self._graphs:
            empty = padded(_NOTHING, rows, self._batch.padding_row)
            self._uploads.send(empty, self._inputs)
            self._graphs[rows] = self._capture(rows)

    def _capture(self, rows: int) -> _Graph:
        inputs = self._views(rows)
        # Kernels are compiled and libraries set up here, which cannot be done while capturing. The
        # step may be run more than once: it writes the same keys and values to the same slots.
        # What it draws goes nowhere but into the rows' newest tokens, which are put back.
        newest = self._batch.newest.clone()
        self._compute(inputs)
        torch.cuda.synchronize(self._device)
        self._batch.newest.copy_(newest)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            tokens = self._compute(inputs)
        return _Graph(graph, tokens)

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

    draws = np.concatenate((step.draws, np.zeros((missing, DRAW_WORDS), np.int64)))
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
    changed=_NONE,
    changes=_NONE,
    spans=(),
    sampled=(),
    ends=(),
)
