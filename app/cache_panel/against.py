"""The same conversations, paged and as a contiguous allocator would hold them. Free of Qt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from app.cache_panel.pool_model import Array, PoolModel


@dataclass(frozen=True, slots=True)
class Held:
    """One block table: ``own_blocks`` stand in no other; ``tokens`` are in all its blocks."""

    conversation_id: str
    own_blocks: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``held``: the tables. ``shared_blocks``: blocks that stand in several of them.

    ``paged_slots`` and ``reserved_slots`` are what each way takes, in tokens; ``paged_tokens`` and
    ``reserved_tokens`` of them are filled. A contiguous allocator stores equal beginnings again and
    reserves ``context_length`` for each table, since a buffer in the middle of others cannot grow.
    """

    held: tuple[Held, ...] = ()
    shared_blocks: int = 0
    block_size: int = 1
    context_length: int = 0
    pool_slots: int = 0
    paged_tokens: int = 0

    @property
    def paged_slots(self) -> int:
        return (self.shared_blocks + sum(h.own_blocks for h in self.held)) * self.block_size

    @property
    def reserved_slots(self) -> int:
        return len(self.held) * self.context_length

    @property
    def reserved_tokens(self) -> int:
        return sum(h.tokens for h in self.held)

    @property
    def paged_waste(self) -> float:
        """Share of the paged slots without a token, 0 to 1."""
        return 1.0 - self.paged_tokens / self.paged_slots if self.paged_slots else 0.0

    @property
    def reserved_waste(self) -> float:
        """Share of the reserved slots without a token, 0 to 1."""
        return 1.0 - self.reserved_tokens / self.reserved_slots if self.reserved_slots else 0.0

    @property
    def num_that_fit(self) -> int:
        """How many conversations such an allocator could hold in the memory of this pool."""
        return self.pool_slots // self.context_length if self.context_length else 0


def comparison_of(model: PoolModel, open_ids: Collection[str]) -> Comparison:
    """Live tables, and of open conversations that have none what the cache keeps."""
    tables: list[tuple[str, Array]] = [
        (table.conversation_id, np.array(table.blocks, np.int64))
        for table in model.tables.values()
        if table.blocks
    ]
    live = {conversation_id for conversation_id, _ in tables}
    for conversation_id, ghost in model.ghosts.items():
        if conversation_id in open_ids and conversation_id not in live:
            kept = np.array(ghost.blocks, np.int64)[model.ghost_alive(ghost)]
            if len(kept):
                tables.append((conversation_id, kept))
    if not tables:
        return Comparison()
    uses = np.bincount(np.concatenate([blocks for _, blocks in tables]), minlength=model.num_blocks)
    fill = model.fill.astype(np.int64)
    return Comparison(
        held=tuple(
            Held(name, int(np.count_nonzero(uses[blocks] == 1)), int(fill[blocks].sum()))
            for name, blocks in tables
        ),
        shared_blocks=int(np.count_nonzero(uses > 1)),
        block_size=model.block_size,
        context_length=model.context_length,
        pool_slots=model.num_blocks * model.block_size,
        paged_tokens=int(fill[uses > 0].sum()),
    )
