"""Figures that the panel shows, derived from the pool model. Free of Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.cache_panel.pool_model import PoolModel

BYTES_PER_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the same blocks standing in several tables saves.

    ``shared_blocks``: physical blocks in more than one table; ``num_conversations`` and
    ``num_tables``: how many hold one of them. ``saved_blocks``: logical - physical blocks;
    ``saved_tokens``: tokens in them, which nobody computes or stores twice.
    """

    logical_blocks: int = 0
    physical_blocks: int = 0
    shared_blocks: int = 0
    num_conversations: int = 0
    num_tables: int = 0
    saved_tokens: int = 0

    @property
    def saved_blocks(self) -> int:
        return self.logical_blocks - self.physical_blocks


def sharing_of_live(model: PoolModel) -> Sharing:
    """Sharing between the tables of requests that hold blocks now."""
    tables = model.tables.values()
    return _sharing(model, [(t.conversation_id, t.blocks) for t in tables])


def sharing_of_kept(model: PoolModel) -> Sharing:
    """Sharing between live tables and what is still cached of finished conversations."""
    tables: list[tuple[str, Sequence[int]]] = [
        (table.conversation_id, table.blocks) for table in model.tables.values()
    ]
    live = {table.conversation_id for table in model.tables.values()}
    for conversation_id, ghost in model.ghosts.items():
        if conversation_id not in live:
            alive = model.ghost_alive(ghost)
            tables.append((conversation_id, np.array(ghost.blocks)[alive].tolist()))
    return _sharing(model, tables)


def _sharing(model: PoolModel, tables: list[tuple[str, Sequence[int]]]) -> Sharing:
    tables = [(conversation, blocks) for conversation, blocks in tables if blocks]
    if not tables:
        return Sharing()
    rows = [np.asarray(blocks, np.int64) for _, blocks in tables]
    logical = np.concatenate(rows)
    uses = np.bincount(logical, minlength=model.num_blocks)
    holders = [i for i, row in enumerate(rows) if bool((uses[row] > 1).any())]
    extra_uses = np.maximum(uses - 1, 0)
    return Sharing(
        logical_blocks=len(logical),
        physical_blocks=int(np.count_nonzero(uses)),
        shared_blocks=int(np.count_nonzero(uses > 1)),
        num_conversations=len({tables[i][0] for i in holders}),
        num_tables=len(holders),
        saved_tokens=int(extra_uses @ model.fill.astype(np.int64)),
    )


def megabytes(model: PoolModel, num_blocks: int) -> float:
    """KV bytes of so many blocks, in MB (10^6 bytes)."""
    return num_blocks * model.block_bytes / BYTES_PER_MB


def prefill_seconds(model: PoolModel, num_tokens: int) -> float:
    """Time that computing so many tokens would take, at the measured rate; 0 if none is known."""
    rate = model.prefill_tokens_per_s
    return num_tokens / rate if rate > 0 else 0.0


def waste_in_last_blocks(model: PoolModel) -> int:
    """Slots of live tables' last blocks that hold no token: what paging itself wastes."""
    last = {table.blocks[-1] for table in model.tables.values()}
    return sum(model.block_size - int(model.fill[block]) for block in last)


def cached_tokens(model: PoolModel) -> int:
    """Tokens in cached blocks: hashed blocks are full."""
    return model.counts.cached * model.block_size
