"""Block tables as the panel shows them: one strip each, live or left behind. Free of Qt."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from app.cache_panel.looks import KIND_MASK, LOST, SHARED_CELL, Looks
from app.cache_panel.names import Names
from app.cache_panel.pool_model import Array, PoolModel
from app.cache_panel.pool_values import GhostTable, LiveTable


@dataclass(frozen=True, slots=True)
class Strip:
    """One table, logical block by logical block.

    ``blocks``: physical ids, -1 where a finished conversation's block is gone; ``codes``: the look
    of each entry, ``LOST`` there.
    ``last_fill``: filled share of the last block, 0 to 1. ``kept_blocks``: entries that still hold
    this conversation's tokens. ``shared_blocks``: leading entries that other tables use too.
    """

    request_id: str
    conversation_id: str
    number: int
    title: str
    is_live: bool
    blocks: tuple[int, ...]
    codes: Array = field(repr=False)
    last_fill: float
    tokens: int
    cached_tokens: int
    kept_blocks: int
    shared_blocks: int

    @property
    def key(self) -> tuple[str, bool]:
        return self.request_id, self.is_live


def strips_of(model: PoolModel, looks: Looks, names: Names) -> list[Strip]:
    """Live tables, and the last tables of open conversations that have none, by number."""
    live = {table.conversation_id for table in model.tables.values()}
    open_ids = set(names.open_ids())
    tables: list[LiveTable | GhostTable] = [
        *model.tables.values(),
        *(
            ghost
            for conversation_id, ghost in model.ghosts.items()
            if conversation_id in open_ids and conversation_id not in live
        ),
    ]
    if not tables:
        return []
    # One look-up for all tables: they are many small ones.
    blocks = np.concatenate([np.array(table.blocks, np.int64) for table in tables])
    codes, fill = looks.codes(model, blocks), model.fill[blocks]
    strips: list[Strip] = []
    start = 0
    for table in tables:
        part = slice(start, start + len(table.blocks))
        strips.append(_strip(model, table, names, codes[part], fill[part]))
        start = part.stop
    strips.sort(key=lambda strip: (strip.number == 0, strip.number))
    return strips


def _strip(
    model: PoolModel, table: LiveTable | GhostTable, names: Names, codes: Array, fill: Array
) -> Strip:
    is_live = isinstance(table, LiveTable)
    blocks = tuple(table.blocks)
    if isinstance(table, LiveTable):
        cached = model.hit_tokens.get(table.request_id, 0)
        kept, tokens = len(codes), int(fill.sum())
    else:
        alive = model.ghost_alive(table)
        codes = np.where(alive, codes, LOST)
        # The block that was there holds somebody else's tokens by now, or none.
        blocks = tuple(np.where(alive, blocks, -1).tolist())
        cached = table.cached_tokens
        kept = int(np.count_nonzero(alive))
        tokens = kept * model.block_size
    return Strip(
        request_id=table.request_id,
        conversation_id=table.conversation_id,
        number=names.number_of(table.conversation_id),
        title=names.title_of(table.conversation_id),
        is_live=is_live,
        blocks=blocks,
        codes=codes,
        last_fill=int(fill[-1]) / model.block_size if is_live else 1.0,
        tokens=tokens,
        cached_tokens=cached,
        kept_blocks=kept,
        shared_blocks=_leading(codes & KIND_MASK == SHARED_CELL),
    )


def _leading(flags: Array) -> int:
    """How many flags are set before the first that is not."""
    clear = np.flatnonzero(~flags)
    return int(clear[0]) if len(clear) else len(flags)
