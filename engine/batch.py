"""A step's inputs, in buffers that persist and change only where a request changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.prefill_tiles import PrefillTiles
from engine.attention.prefix_groups import PrefixGroups
from engine.request import PLACEHOLDER_TOKEN, Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.table_rows import TableRows

_Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """One prefill chunk: rows ``first_row … first_row + num_tokens - 1`` of the step.

    ``start``: position of its first token. ``block_table``: ``[blocks]`` int64, covering its end.
    ``request_id``: whose chunk it is, for backends that keep KV by request.
    """

    first_row: int
    num_tokens: int
    start: int
    block_table: Tensor
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Inputs of one step: the decodes' rows first, then each prefill chunk's. All int64.

    ``input_ids``, ``positions``, ``slot_mapping``: ``[tokens]`` (slot -1: write nothing).
    ``decode_block_tables``: ``[decodes, blocks]``, entries past a sequence's last block are junk.
    ``decode_lengths``: ``[decodes]``, tokens to attend to, the new one included; the longest is
    ``max_decode_length``, 0 without decodes. ``sample_rows``: rows whose logits are wanted. In the
    same order, ``sampled``: the requests that they belong to, and ``sample_ends``: how many tokens
    of each are computed with this step, the drawn one's position. ``prefill_tiles``: the prompts of
    a step on a device, in place of ``prefills``. ``prefix_groups``: decodes that share a beginning.

    The tensors are views of persistent buffers, valid until the next ``InputBatch.build``.
    """

    input_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    num_decodes: int
    decode_block_tables: Tensor
    decode_lengths: Tensor
    max_decode_length: int
    prefills: tuple[PrefillSpan, ...]
    sample_rows: Tensor
    sampled: tuple[Request, ...]
    sample_ends: tuple[int, ...]
    prefill_tiles: PrefillTiles | None = None
    prefix_groups: PrefixGroups | None = None


class InputBatch:
    """Keeps one block-table row a request and lays out steps.

    Args:
        block_size: tokens a block.
        max_blocks: blocks of the longest sequence.
        max_requests: rows to begin with; more are added when they are needed.
    """

    def __init__(self, block_size: int, max_blocks: int, max_requests: int) -> None:
        self._block_size = block_size
        self._rows = TableRows(max_blocks, max_requests)
        self._allocate(256)

    def build(self, output: SchedulerOutput, last_tokens: Mapping[str, int]) -> StepBatch:
        """Lays out a step.

        Args:
            output: what the scheduler wants computed.
            last_tokens: the newest token of each request that drew one; stands in for
                ``PLACEHOLDER_TOKEN``.
        """
        num_tokens = output.num_tokens
        if num_tokens > len(self._ids):
            self._allocate(max(num_tokens, 2 * len(self._ids)))
        num_decodes = len(output.decodes)
        self._rows.changes.clear()
        tables, lengths = self._lay_decodes(output.decodes, last_tokens)
        spans: list[PrefillSpan] = []
        sample_rows = list(range(num_decodes))
        sampling = list(output.decodes)
        row = num_decodes
        for chunk in output.prefills:
            spans.append(self._lay_prefill(chunk, row, last_tokens))
            row += chunk.num_tokens
            if chunk.samples:
                sample_rows.append(row - 1)
                sampling.append(chunk)
        return StepBatch(
            input_ids=torch.from_numpy(self._ids[:num_tokens]),
            positions=torch.from_numpy(self._positions[:num_tokens]),
            slot_mapping=torch.from_numpy(self._slots[:num_tokens]),
            num_decodes=num_decodes,
            decode_block_tables=torch.from_numpy(tables),
            decode_lengths=torch.from_numpy(lengths),
            max_decode_length=int(lengths.max(initial=0)),
            prefills=tuple(spans),
            sample_rows=torch.tensor(sample_rows, dtype=torch.int64),
            sampled=tuple(chunk.request for chunk in sampling),
            sample_ends=tuple(chunk.start + chunk.num_tokens for chunk in sampling),
        )

    def forget(self, request_id: str) -> None:
        """Frees the request's row; unknown ids are ignored."""
        self._rows.forget(request_id)

    @property
    def num_rows_used(self) -> int:
        """Requests that hold a row."""
        return self._rows.num_used

    def _lay_decodes(
        self, chunks: Sequence[ScheduledChunk], last_tokens: Mapping[str, int]
    ) -> tuple[_Ints, _Ints]:
        count = len(chunks)
        if not count:
            return np.zeros((0, 1), np.int64), np.zeros(0, np.int64)
        rows = [self._rows.row(chunk.request) for chunk in chunks]
        tables = self._rows.tables
        starts = np.array([chunk.start for chunk in chunks], np.int64)
        self._ids[:count] = [token_at(chunk.request, chunk.start, last_tokens) for chunk in chunks]
        self._positions[:count] = starts
        blocks, offsets = np.divmod(starts, self._block_size)
        self._slots[:count] = tables[rows, blocks] * self._block_size + offsets
        return tables[rows, : int(blocks.max()) + 1], starts + 1

    def _lay_prefill(
        self, chunk: ScheduledChunk, first_row: int, last_tokens: Mapping[str, int]
    ) -> PrefillSpan:
        request, start, count = chunk.request, chunk.start, chunk.num_tokens
        end = first_row + count
        row = self._rows.row(request)
        table = self._rows.tables[row]
        tokens = request.token_ids[start : start + count]
        tokens[-1] = token_at(request, start + count - 1, last_tokens)
        self._ids[first_row:end] = tokens
        positions = np.arange(start, start + count)
        self._positions[first_row:end] = positions
        blocks, offsets = np.divmod(positions, self._block_size)
        self._slots[first_row:end] = table[blocks] * self._block_size + offsets
        used = int(blocks[-1]) + 1
        blocks_used = torch.from_numpy(table[:used])
        return PrefillSpan(first_row, count, start, blocks_used, request.request_id)

    def _allocate(self, num_tokens: int) -> None:
        buffers: Any = np.zeros((3, num_tokens), np.int64)
        self._ids: _Ints = buffers[0]
        self._positions: _Ints = buffers[1]
        self._slots: _Ints = buffers[2]


def token_at(request: Request, position: int, last_tokens: Mapping[str, int]) -> int:
    """The token at a position; a placeholder is looked up in ``last_tokens``."""
    token = request.token_ids[position]
    return last_tokens[request.request_id] if token == PLACEHOLDER_TOKEN else token
