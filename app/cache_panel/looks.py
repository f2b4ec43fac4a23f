"""What each cell looks like, as one integer: cheap to compute for a whole pool. Free of Qt.

A code is ``kind | pinned << 2 | label << 3``. ``label`` is the number of the block's conversation
(0: unknown), or for a shared block its reference count.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from app.cache_panel.pool_model import Array, PoolModel
from engine.api.snapshot import CACHED, USED

FREE_CELL, PRIVATE_CELL, SHARED_CELL, CACHED_CELL = range(4)
KIND_MASK = 3
PINNED_BIT = 4
LABEL_SHIFT = 3
MAX_LABEL = 999
ALL = slice(None)
NUM_CODES = (MAX_LABEL + 1) << LABEL_SHIFT


def encode(kind: int, label: int = 0, *, pinned: bool = False) -> int:
    """The code of one look."""
    return kind | (PINNED_BIT if pinned else 0) | min(label, MAX_LABEL) << LABEL_SHIFT


LOST = encode(FREE_CELL, 1)
"""The look of a table's entry whose block holds something else by now."""


def decode(code: int) -> tuple[int, bool, int]:
    """(kind, pinned, label) of a code."""
    return code & KIND_MASK, bool(code & PINNED_BIT), code >> LABEL_SHIFT


class Looks:
    """Codes of a model's blocks; ``number_of`` gives a conversation's number, 0 if it has none."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        self._number_of = number_of
        self._model: PoolModel | None = None
        self._numbers: Array = np.zeros(1, np.int32)

    def forget_numbers(self) -> None:
        """Conversations were opened, closed or numbered anew."""
        self._model = None

    def codes(self, model: PoolModel, chosen: Array | slice = ALL) -> Array:
        """int32 codes of the chosen blocks, or of the whole pool."""
        numbers = self._numbers_for(model)
        used = model.state[chosen] == USED
        shared = used & (model.ref_count[chosen] - model.pins[chosen] > 1)
        owner = model.owner[chosen]
        holder = model.holder_of(chosen)
        whose = np.where(used & (holder >= 0), holder, owner)
        # Owner -1 takes the last entry, which is 0.
        label = np.where(shared, model.ref_count[chosen], numbers[whose])
        kind = np.where(model.state[chosen] == CACHED, CACHED_CELL, FREE_CELL)
        kind[used] = PRIVATE_CELL
        kind[shared] = SHARED_CELL
        label[kind == FREE_CELL] = 0
        codes: Array = (
            kind
            | (model.pins[chosen] > 0) * PINNED_BIT
            | np.minimum(label, MAX_LABEL) << LABEL_SHIFT
        ).astype(np.int32)
        return codes

    def _numbers_for(self, model: PoolModel) -> Array:
        if self._model is not model or len(self._numbers) - 1 != len(model.owners):
            self._model = model
            numbers = [self._number_of(owner) for owner in model.owners]
            self._numbers = np.array([*numbers, 0], np.int32)
        return self._numbers
