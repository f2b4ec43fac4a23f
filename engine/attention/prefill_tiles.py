"""Tiles of the attention of prompts: which rows of a step a program of the kernel works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

TILE_WORDS = 8
NO_TILES: NDArray[np.int32] = np.zeros((0, TILE_WORDS), np.int32)


@dataclass(frozen=True, slots=True)
class TiledChunk:
    """Rows ``first_row … first_row + num_tokens - 1`` of a step, from position ``start`` on;
    ``table_offset``: where its block table begins among the block ids.
    """

    first_row: int
    num_tokens: int
    start: int
    table_offset: int


@runtime_checkable
class Tiling(Protocol):
    """How a backend cuts prompts into tiles."""

    def launch(self, num_tokens: int) -> Any:
        """The cut for steps with so many prompt tokens."""

    def tiles(self, chunks: Sequence[TiledChunk], launch: Any) -> NDArray[np.int32]:
        """``[tiles, TILE_WORDS]`` of some chunks."""

    def most_tiles(self, num_tokens: int, num_chunks: int, launch: Any) -> int:
        """Tiles of a step of so many prompt tokens in at most so many chunks."""


@dataclass(frozen=True, slots=True)
class PrefillTiles:
    """A step's prompts for a kernel that follows a list of tiles.

    ``tiles``: ``[tiles, TILE_WORDS]`` int32 on the device. ``block_ids``: flat block tables that
    the tiles' offsets point into. ``launch``: how they were cut.
    """

    tiles: Tensor
    block_ids: Tensor
    launch: Any
