"""The list of tiles that one launch of prefill attention follows, made on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

TILE_WORDS = 8


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """One chunk of a step: ``num_tokens`` query rows from ``first_row``, at positions from
    ``start``; its block ids begin at ``table_offset`` of all chunks' ids.
    """

    first_row: int
    num_tokens: int
    start: int
    table_offset: int


def tile_list(chunks: Sequence[ChunkPlace], group: int, rows: int) -> Any:
    """The tiles of a step's chunks, those with the most keys first.

    Args:
        chunks: of the step.
        group: query heads of a KV head.
        rows: ``PrefillLaunch.rows``.

    Returns:
        A NumPy array ``[tiles, 8]`` of int32: first row, tokens and start of the chunk, its table's
        offset, the tile's first (token, head) pair; rows of zeros may be added, they do nothing.
    """
    tiles = [
        (chunk.first_row, chunk.num_tokens, chunk.start, chunk.table_offset, pair, 0, 0, 0)
        for chunk in chunks
        for pair in range(0, chunk.num_tokens * group, rows)
    ]
    tiles.sort(key=lambda tile: -(tile[2] + tile[4] // group))
    return torch.tensor(tiles, dtype=torch.int32).view(-1, TILE_WORDS).numpy()
