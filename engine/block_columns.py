"""What is known of every physical block, as flat columns: a snapshot of them is a copy of bytes."""

from __future__ import annotations

from array import array

from engine.api.snapshot import PoolColumns
from engine.block_hash import NO_SHORT_HASH, SHORT_HASH_BYTES


class BlockColumns:
    """One entry a block in each column: ``state`` (FREE, CACHED, USED of ``engine.api.snapshot``),
    ``ref_count``, ``pins``, ``owner`` (index into ``owners`` or −1), ``fill`` (tokens computed),
    ``last_step`` (−1: never) and the first bytes of the hash.
    """

    def __init__(self, num_blocks: int) -> None:
        self.state = bytearray(num_blocks)
        self.ref_count = array("H", bytes(2 * num_blocks))
        self.pins = array("H", bytes(2 * num_blocks))
        self.owner = array("i", [-1]) * num_blocks
        self.fill = array("H", bytes(2 * num_blocks))
        self.last_step = array("i", [-1]) * num_blocks
        self.owners: list[str] = []
        self._owner_index: dict[str, int] = {}
        self._short_hash = bytearray(SHORT_HASH_BYTES * num_blocks)

    def set_owner(self, block_id: int, conversation_id: str) -> None:
        """The conversation that used the block last."""
        index = self._owner_index.get(conversation_id)
        if index is None:
            index = self._owner_index[conversation_id] = len(self.owners)
            self.owners.append(conversation_id)
        self.owner[block_id] = index

    def owner_of(self, block_id: int) -> str:
        """The conversation that used the block last; empty if it is nobody's."""
        index = self.owner[block_id]
        return self.owners[index] if index >= 0 else ""

    def set_hash(self, block_id: int, block_hash: bytes | None) -> None:
        """Keeps the first bytes of a hash, or none."""
        start = block_id * SHORT_HASH_BYTES
        short = NO_SHORT_HASH if block_hash is None else block_hash[:SHORT_HASH_BYTES]
        self._short_hash[start : start + SHORT_HASH_BYTES] = short

    def is_blank(self, blocks: slice) -> bool:
        """Whether nothing is known of ``blocks``: free, no references, no pins, no tokens."""
        columns = (self.state, self.ref_count, self.pins, self.fill)
        return not any(any(column[blocks]) for column in columns)

    def snapshot(self) -> PoolColumns:
        """A copy of all columns."""
        return PoolColumns(
            state=bytes(self.state),
            ref_count=self.ref_count.tobytes(),
            pins=self.pins.tobytes(),
            owner=self.owner.tobytes(),
            fill=self.fill.tobytes(),
            last_step=self.last_step.tobytes(),
            block_hash=bytes(self._short_hash),
        )
