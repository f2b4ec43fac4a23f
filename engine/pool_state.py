"""What is known of a pool's blocks, to read: ``BlockPool`` alone changes it. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.api.events import BlockState, BlockView
from engine.api.snapshot import CACHED, FREE, USED, PoolColumns
from engine.block_columns import BlockColumns
from engine.block_hash import SHORT_HASH_BYTES
from engine.event_log import PoolEventLog
from engine.free_queue import FreeBlockQueue
from engine.pool_audit import audit

_STATES = (BlockState.FREE, BlockState.CACHED, BlockState.USED)
assert (FREE, CACHED, USED) == (0, 1, 2)


class PoolState:
    """``num_blocks`` blocks of ``block_size`` tokens.

    Columns are flat arrays, so that a snapshot is a copy of bytes. ``free`` holds the free and the
    cached blocks in the order in which they are given away. ``num_stored`` and ``num_hits`` count
    publications and hits: while they stand still no prefix can be had for less than before.
    """

    def __init__(self, num_blocks: int, block_size: int, log: PoolEventLog | None = None) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.log = log or PoolEventLog()
        self.free = FreeBlockQueue(num_blocks)
        self.num_cached = 0
        self.num_shared = 0
        self.num_pinned = 0
        self.num_stored = self.num_hits = 0
        self._columns = BlockColumns(num_blocks)
        self._hash: list[bytes | None] = [None] * num_blocks
        self._content: list[tuple[bytes, tuple[int, ...]] | None] = [None] * num_blocks
        self._by_hash: dict[bytes, int] = {}

    @property
    def num_available(self) -> int:
        """Blocks that can be given away: free and cached."""
        return len(self.free)

    @property
    def num_free(self) -> int:
        return len(self.free) - self.num_cached

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self.free)

    @property
    def num_hashed(self) -> int:
        """Blocks that can be found by their hash."""
        return len(self._by_hash)

    @property
    def owners(self) -> list[str]:
        """Conversations, as the columns number them."""
        return self._columns.owners

    def state(self, block_id: int) -> int:
        """FREE, CACHED or USED of ``engine.api.snapshot``."""
        return self._columns.state[block_id]

    def pins(self, block_id: int) -> int:
        return self._columns.pins[block_id]

    def block_of(self, block_hash: bytes) -> int | None:
        """The block that a hash leads to, whatever it holds."""
        return self._by_hash.get(block_hash)

    def ref_count(self, block_id: int) -> int:
        return self._columns.ref_count[block_id]

    def fill(self, block_id: int) -> int:
        return self._columns.fill[block_id]

    def hash_of(self, block_id: int) -> bytes | None:
        return self._hash[block_id]

    def tokens_of(self, block_id: int) -> tuple[int, ...]:
        """Token ids of a hashed block; empty for others."""
        content = self._content[block_id]
        return content[1] if content else ()

    def parent_of(self, block_id: int) -> bytes | None:
        """Hash of the block before a hashed block; None for others."""
        content = self._content[block_id]
        return content[0] if content else None

    def is_unused(self, block_id: int) -> bool:
        return self._columns.ref_count[block_id] == 0

    def is_pinned(self, block_id: int) -> bool:
        return self._columns.pins[block_id] > 0

    def is_untouched(self, first: int, last: int) -> bool:
        """Whether the blocks from ``first`` to before ``last`` are as in a new pool: free, without
        references, tokens or hashes. Does not look at each by itself.
        """
        some = slice(first, last)
        count = len(range(first, last))
        return self._hash[some].count(None) == count and self._columns.is_blank(some)

    def lookup(self, block_hash: bytes, parent: bytes, token_ids: Sequence[int]) -> int | None:
        """The block that holds the KV of these tokens after this parent, or None.

        Parent and tokens are compared, not only the hash: a collision must not serve another
        prompt.
        """
        block_id = self._by_hash.get(block_hash)
        if block_id is None or self._content[block_id] != (parent, tuple(token_ids)):
            return None
        return block_id

    def view(self, block_id: int) -> BlockView:
        """The block as events show it."""
        block_hash = self._hash[block_id]
        return BlockView(
            state=_STATES[self._columns.state[block_id]],
            ref_count=self._columns.ref_count[block_id],
            block_hash=block_hash[:SHORT_HASH_BYTES] if block_hash else b"",
            owner=self._columns.owner_of(block_id),
            fill=self._columns.fill[block_id],
            pins=self._columns.pins[block_id],
        )

    def columns(self) -> PoolColumns:
        """A copy of all columns, for a snapshot."""
        return self._columns.snapshot()

    def violations(self, tables: Iterable[Sequence[int]]) -> list[str]:
        """What is wrong with the pool, given all live block tables; empty when all is well.

        Recounts everything: O(blocks). Tests call it after each step.
        """
        return [found for part in audit(self, tables, self.num_blocks) for found in part]
