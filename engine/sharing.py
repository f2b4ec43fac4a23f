"""Which decodes of a step share a beginning that is worth reading once."""

from __future__ import annotations

import numpy as np

from engine.attention.prefix_groups import Pays, PrefixGroup, find_prefix_groups
from engine.device_batch import DeviceBatch, HostStep

_VERY_LONG = 1 << 20


class Sharing:
    """Finds the groups, and keeps them as long as the same requests decode.

    Args:
        block_size: tokens a block.
        pays: whether a group is worth it.
    """

    def __init__(self, block_size: int, pays: Pays) -> None:
        self._block_size = block_size
        self._pays = pays
        self._known_for: tuple[bytes, int] | None = None
        self._groups: tuple[PrefixGroup, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether a beginning can be so long that it is worth it."""
        return self._pays(2, _VERY_LONG, 0)

    def groups(self, step: HostStep, batch: DeviceBatch) -> tuple[PrefixGroup, ...]:
        """Groups of the step's decodes, by their place in it."""
        key = (step.rows.tobytes(), batch.num_rewrites)
        if key != self._known_for:
            self._known_for = key
            self._groups = tuple(self._find(step, batch))
        return self._groups

    def _find(self, step: HostStep, batch: DeviceBatch) -> list[PrefixGroup]:
        if step.num_decodes < 2:
            return []
        tables = batch.host_tables(step.rows)
        _, counts = np.unique(tables[:, 0], return_counts=True)
        # Nearly always at once: no two begin alike, or those that do are too few for any length.
        longest = int(step.lengths.max())
        if not self._pays(int(counts.max()), longest, 0):
            return []
        return find_prefix_groups(tables, step.lengths, self._block_size, self._pays)
