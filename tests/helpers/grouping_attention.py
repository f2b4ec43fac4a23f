"""Attention in plain torch that takes what the kernels take: shared beginnings, tiles, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.base import StepAttention
from engine.attention.paged_reference import PagedReferenceBackend
from engine.attention.prefill_tiles import TILE_WORDS, PrefillTiles, TiledChunk
from engine.attention.prefix_groups import PrefixGroups
from engine.batch import PrefillSpan, StepBatch


class GroupingBackend(PagedReferenceBackend):
    """As the kernels do, all of a group read its beginning through the first one's table, however
    long they are themselves. A chunk is one tile. ``num_groups``: those that it has met.
    """

    name = "paged_triton"
    num_groups = 0

    def launch(self, num_tokens: int) -> int:
        """No choice: see ``prefill_tiles.Tiling``."""
        return num_tokens

    def tiles(self, chunks: Sequence[TiledChunk], launch: int) -> NDArray[np.int32]:
        """One for each chunk."""
        rows = [(c.first_row, c.num_tokens, c.start, c.table_offset, 0, 0, 0, 0) for c in chunks]
        return np.array(rows, np.int32).reshape(-1, TILE_WORDS)

    def most_tiles(self, num_tokens: int, num_chunks: int, launch: int) -> int:
        return num_chunks

    def begin_step(self, batch: StepBatch) -> StepAttention:
        if batch.prefix_groups is not None:
            batch = self._through_the_first(batch, batch.prefix_groups)
        if batch.prefill_tiles is None:
            return super().begin_step(batch)
        spans = tuple(self._spans(batch.prefill_tiles))
        step = super().begin_step(replace(batch, prefills=spans))
        return _padded(step, batch.num_decodes, spans)

    def _through_the_first(self, batch: StepBatch, groups: PrefixGroups) -> StepBatch:
        tables, lengths = batch.decode_block_tables.clone(), batch.decode_lengths.clone()
        for members, shared in zip(groups.members, groups.shared_blocks.tolist(), strict=True):
            rows = members[members >= 0]
            if not shared:
                assert not len(rows)
                continue
            self.num_groups += 1
            tables[rows, :shared] = tables[rows[0], :shared]
            lengths[rows] = lengths[rows].clamp(min=shared * self.cache.block_size)
        return replace(batch, decode_block_tables=tables, decode_lengths=lengths)

    def _spans(self, prompts: PrefillTiles) -> list[PrefillSpan]:
        spans = []
        for first_row, count, start, offset, *_ in prompts.tiles.tolist():
            if count:
                blocks = -(-(start + count) // self.cache.block_size)
                table = prompts.block_ids[offset : offset + blocks]
                spans.append(PrefillSpan(first_row, count, start, table))
        return spans


def _padded(step: StepAttention, num_decodes: int, spans: tuple[PrefillSpan, ...]) -> StepAttention:
    """Puts every row of the result where its query is; there are others that nobody asked for."""

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = torch.zeros_like(query.flatten(1))
        if not num_decodes and not spans:
            return out
        found = step(layer, query, key, value)
        rows = list(range(num_decodes))
        for span in spans:
            rows += range(span.first_row, span.first_row + span.num_tokens)
        out[rows] = found
        return out

    return attend
