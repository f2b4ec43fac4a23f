"""The list of tiles that one launch of prefill attention follows, made on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.launch import PrefillLaunch

TILE_WORDS = 8
MOST_PARTS = 32
MIN_PART_KEYS = 512
"""Keys of the smallest part: joining costs as much as some hundred. They are more than the rows of
a tile, so that every row sees some keys of every part but in a window.
"""


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """One chunk of a step: ``num_tokens`` query rows from ``first_row``, at positions from
    ``start``; its block ids begin at ``table_offset`` of all chunks' ids.
    """

    first_row: int
    num_tokens: int
    start: int
    table_offset: int


def tile_list(chunks: Sequence[ChunkPlace], group: int, launch: PrefillLaunch) -> Any:
    """The tiles of a step's chunks, those with the most keys first.

    Where they are fewer than the device takes at once, their keys are cut into parts, each a tile
    of its own; a tile's parts follow each other.

    Args:
        chunks: of the step.
        group: query heads of a KV head.
        launch: how they are cut.

    Returns:
        A NumPy array ``[tiles, 8]`` of int32: first row, tokens and start of the chunk, its table's
        offset, the tile's first (token, head) pair, the first of its key tiles and the end of them,
        and 64 · the index of its first part + the number of its parts. Rows of zeros may be added,
        they do nothing.
    """
    tiles = [
        (chunk.first_row, chunk.num_tokens, chunk.start, chunk.table_offset, pair)
        for chunk in chunks
        for pair in range(0, chunk.num_tokens * group, launch.rows)
    ]
    ends = [tile[2] + min((tile[4] + launch.rows - 1) // group + 1, tile[1]) for tile in tiles]
    whole = max(sum(ends), 1)
    found: list[tuple[int, ...]] = []
    for index in sorted(range(len(tiles)), key=lambda index: -ends[index]):
        end = -(-ends[index] // launch.tile)
        # Rounded down: what does not fit the device at once would run alone at the end.
        parts = min(launch.spread * ends[index] // whole, ends[index] // MIN_PART_KEYS, MOST_PARTS)
        parts = max(parts, 1)
        first = 64 * len(found) + parts
        found += [
            (*tiles[index], end * part // parts, end * (part + 1) // parts, first)
            for part in range(parts)
        ]
    return torch.tensor(found, dtype=torch.int32).view(-1, TILE_WORDS).numpy()


def most_tiles(num_tokens: int, num_chunks: int, group: int, launch: PrefillLaunch) -> int:
    """Tiles of so many tokens in at most so many chunks: each chunk may end with a part of one."""
    return -(-num_tokens * group // launch.rows) + num_chunks + launch.spread
