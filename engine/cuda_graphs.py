"""Decode steps as CUDA graphs: a launch costs the host about 14 µs, and a step has hundreds of
them.

One graph serves all batches up to its number of rows whose block tables are up to its width. Rows
that a batch does not fill are padding: slot -1 writes nothing, length 0 attends to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.batch import StepBatch
from kernels.launch import next_power_of_2

MAX_GRAPH_ROWS = 256
_MIN_WIDTH = 32


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    inputs: Tensor  # int64 on the device: what the graph reads, packed
    host: Tensor  # the same in pinned memory
    logits: Tensor


class DecodeGraphs:
    """Captures a graph the first time that a shape comes up, and replays it from then on.

    Args:
        compute: ``StepBatch`` on the device to logits; what is captured.
        block_size: tokens a block.
        device: where the model lies.
    """

    def __init__(
        self, compute: Callable[[StepBatch], Tensor], block_size: int, device: torch.device
    ) -> None:
        self._compute = compute
        self._block_size = block_size
        self._device = device
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def takes(self, batch: StepBatch) -> bool:
        """Whether the step is one that graphs are for: decodes only, and not too many."""
        return not batch.prefills and 0 < batch.num_decodes <= MAX_GRAPH_ROWS

    def run(self, batch: StepBatch) -> Tensor:
        """Logits of a step of decodes, ``[decodes, vocab_size]``; valid until the next call.

        Args:
            batch: the step, on the host.
        """
        count, blocks = batch.decode_block_tables.shape
        rows, width = graph_rows(count), max(next_power_of_2(blocks), _MIN_WIDTH)
        graph = self._graphs.get((rows, width))
        if graph is None:
            graph = self._graphs[rows, width] = self._capture(batch, rows, width)
        else:
            # The pinned memory may be written again only when the copy before has been made.
            torch.cuda.current_stream(self._device).synchronize()
            _fill(graph.host, batch, rows, width)
            graph.inputs.copy_(graph.host, non_blocking=True)
        graph.graph.replay()
        return graph.logits[:count]

    def _capture(self, batch: StepBatch, rows: int, width: int) -> _Graph:
        host = torch.empty(rows * (4 + width), dtype=torch.int64, pin_memory=True)
        _fill(host, batch, rows, width)
        inputs = host.to(self._device)
        padded = self._padded(batch, inputs, rows, width)
        # Kernels are compiled and libraries set up here, which cannot be done while capturing. The
        # step may be run more than once: it writes the same keys and values to the same slots.
        self._compute(padded)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            logits = self._compute(padded)
        return _Graph(graph, inputs, host, logits)

    def _padded(self, batch: StepBatch, inputs: Tensor, rows: int, width: int) -> StepBatch:
        ids, positions, slots, lengths, tables = torch.split(inputs, [rows] * 4 + [rows * width])
        return StepBatch(
            input_ids=ids,
            positions=positions,
            slot_mapping=slots,
            num_decodes=rows,
            decode_block_tables=tables.view(rows, width),
            decode_lengths=lengths,
            max_decode_length=width * self._block_size,
            prefills=(),
            sample_rows=torch.arange(rows, device=self._device),
            sampled=(),
            sample_ends=(),
        )


def graph_rows(count: int) -> int:
    """Rows of the graph for ``count`` decodes.

    Powers of two to 8, then steps of at most a quarter.
    """
    if count <= 8:
        return next_power_of_2(count)
    step = max(8, next_power_of_2(count) // 8)
    return -(-count // step) * step


def _fill(host: Tensor, batch: StepBatch, rows: int, width: int) -> None:
    """Lays the batch out as ids, positions, slots, lengths and tables, padded to the graph's
    size.
    """
    count, blocks = batch.decode_block_tables.shape
    ids, positions, slots, lengths, tables = torch.split(host, [rows] * 4 + [rows * width])
    for place, values in (
        (ids, batch.input_ids),
        (positions, batch.positions),
        (slots, batch.slot_mapping),
        (lengths, batch.decode_lengths),
    ):
        place[:count] = values
        place[count:] = 0
    slots[count:] = -1
    table = tables.view(rows, width)
    table[:count, :blocks] = batch.decode_block_tables
    # Entries past the end are not read; those of padding must be blocks that exist all the same.
    table[:count, blocks:] = 0
    table[count:] = 0
