"""The oracle for pool events: a naive fold that must equal the pool after every step, both ways."""

from __future__ import annotations

from engine.api.events import BlockChanged, BlockState, BlockView, PoolEvent, TableChanged
from engine.block_pool import BlockPool

EMPTY = BlockView(BlockState.FREE, 0, b"", "", 0)


class PoolFold:
    """Rebuilds the pool from its events alone; keeps them to be able to go back."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [EMPTY] * num_blocks
        self.tables: dict[str, list[int]] = {}
        self.events: list[PoolEvent] = []

    def apply(self, events: tuple[PoolEvent, ...]) -> None:
        for event in events:
            assert event.seq == len(self.events) + 1, "a gap in the sequence"
            self.events.append(event)
            if isinstance(event, BlockChanged):
                assert self.blocks[event.block_id] == event.before
                self.blocks[event.block_id] = event.after
            else:
                self._replace(event, event.removed, event.added)

    def _replace(self, event: TableChanged, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        table = self.tables.setdefault(event.request_id, [])
        assert tuple(table[event.start :]) == old
        table[event.start :] = new
        if not table:
            del self.tables[event.request_id]

    def check(self, pool: BlockPool, tables: dict[str, list[int]]) -> None:
        for block_id, view in enumerate(self.blocks):
            assert view == pool.view(block_id), f"block {block_id}"
        assert self.tables == tables

    def rewind(self) -> None:
        """Backwards to the start: everything must be empty again."""
        for event in reversed(self.events):
            if isinstance(event, BlockChanged):
                assert self.blocks[event.block_id] == event.after
                self.blocks[event.block_id] = event.before
            else:
                self._replace(event, event.added, event.removed)
        assert self.blocks == [EMPTY] * len(self.blocks)
        assert self.tables == {}
