"""Which decoding sequences begin with the same blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_Ints = NDArray[np.int64]

Pays = Callable[[int, int, int], bool]
"""Whether it pays to read once what so many sequences begin with: their number, the tokens that
they have in common, and those that all of them together have besides.
"""


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """``rows``: places in the batch of sequences whose first ``shared_blocks`` blocks are the
    same, all of them full.
    """

    rows: tuple[int, ...]
    shared_blocks: int


@dataclass(frozen=True, slots=True)
class PrefixGroups:
    """A step's groups as the kernel takes them.

    ``members``: ``[groups, width]`` int64, the rows of each group, −1 behind the last.
    ``shared_blocks``: ``[groups]`` int64; 0 for a padded group.
    """

    members: Tensor
    shared_blocks: Tensor


def find_prefix_groups(
    tables: _Ints, lengths: _Ints, block_size: int, pays: Pays
) -> list[PrefixGroup]:
    """Groups of sequences, none in two of them, that save the most reading.

    Blocks that are appended change nothing, so the groups of a step hold until the set of decodes
    changes.

    Args:
        tables: ``[decodes, blocks]`` ids; entries past a sequence's last block are junk.
        lengths: ``[decodes]`` tokens of each, the new one included. The block that it is written to
            is never shared.
        block_size: tokens a block.
        pays: whether a group is worth it, as ``kernels.launch.uses_shared_prefix`` says.
    """
    full = np.maximum(lengths - 1, 0) // block_size

    def is_worth_it(group: PrefixGroup) -> bool:
        count, shared = len(group.rows), group.shared_blocks * block_size
        return pays(count, shared, int(lengths[list(group.rows)].sum()) - count * shared)

    return [g for g in _split(tables, full, np.arange(len(tables)), 0) if is_worth_it(g)]


def _split(tables: _Ints, full: _Ints, rows: _Ints, depth: int) -> list[PrefixGroup]:
    """The groups that save the most among rows that agree in their first ``depth`` blocks: all of
    them together, or those of each continuation by themselves.
    """
    if len(rows) < 2:
        return []
    common = _common(tables, full, rows, depth)
    whole = (len(rows) - 1) * common
    # A row that ends here goes on with none.
    going = rows[full[rows] > common]
    parts: list[PrefixGroup] = []
    if len(going):
        follow = tables[going, common]
        # Not numpy's unique: its first call imports a package, while answers wait.
        for block in sorted(set(follow.tolist())):
            parts += _split(tables, full, going[follow == block], common)
    if sum((len(part.rows) - 1) * part.shared_blocks for part in parts) > whole:
        return parts
    return [PrefixGroup(tuple(rows.tolist()), common)] if common else []


def _common(tables: _Ints, full: _Ints, rows: _Ints, depth: int) -> int:
    """Leading blocks, ``depth`` or more, in which all of the rows agree."""
    end = int(full[rows].min())
    differs = (tables[rows, depth:end] != tables[rows[0], depth:end]).any(0)
    return depth + int(differs.argmax()) if differs.any() else max(depth, end)
