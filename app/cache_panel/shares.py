"""What sharing saves, conversation by conversation, and what reservation would take. No Qt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from app.cache_panel.pool_model import Array, PoolModel


@dataclass(frozen=True, slots=True)
class Share:
    """One block table. A block in k tables counts one k-th for each of them.

    ``logical_blocks``: entries of the table, of which ``shared_blocks`` stand in others too.
    ``physical_blocks``: its part of the memory. ``hit_tokens``: tokens that its request found in
    the cache and did not compute. ``empty_slots``: of its last block. ``is_live``: it is running;
    otherwise it is what the cache keeps.
    """

    request_id: str
    conversation_id: str
    is_live: bool
    logical_blocks: int
    shared_blocks: int
    physical_blocks: float
    hit_tokens: int
    empty_slots: int

    @property
    def saved_blocks(self) -> float:
        return self.logical_blocks - self.physical_blocks


def shares_of(model: PoolModel, open_ids: Collection[str]) -> list[Share]:
    """Live tables, and of open conversations that have none what the cache keeps."""
    live = {table.conversation_id for table in model.tables.values()}
    tables: list[tuple[str, str, bool, Array, int]] = [
        (
            table.request_id, table.conversation_id, True, np.array(table.blocks, np.int64),
            model.hit_tokens.get(table.request_id, 0),
        )
        for table in model.tables.values()
    ]  # fmt: skip
    for conversation_id, ghost in model.ghosts.items():
        if conversation_id in open_ids and conversation_id not in live:
            kept = np.array(ghost.blocks, np.int64)[model.ghost_alive(ghost)]
            if len(kept):
                row = (ghost.request_id, conversation_id, False, kept, ghost.cached_tokens)
                tables.append(row)
    if not tables:
        return []
    uses = np.bincount(np.concatenate([t[3] for t in tables]), minlength=model.num_blocks)
    return [_share(model, uses, *table) for table in tables]


def _share(
    model: PoolModel,
    uses: Array,
    request_id: str,
    conversation_id: str,
    is_live: bool,
    blocks: Array,
    hit_tokens: int,
) -> Share:
    counts = uses[blocks]
    empty = model.block_size - int(model.fill[blocks[-1]]) if is_live else 0
    return Share(
        request_id,
        conversation_id,
        is_live,
        len(blocks),
        int(np.count_nonzero(counts > 1)),
        float((1.0 / counts).sum()),
        hit_tokens,
        empty,
    )


def reserved_blocks(model: PoolModel, num_tables: int) -> int:
    """Blocks' worth of memory that so many sequences take where each reserves the whole context."""
    per_sequence = -(-model.context_length // model.block_size)
    return num_tables * per_sequence
