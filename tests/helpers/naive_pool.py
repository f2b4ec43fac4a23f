"""The oracle for ``BlockPool`` and its free queue: plain lists and dictionaries, no cleverness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.events import BlockState, BlockView
from engine.block_hash import SHORT_HASH_BYTES


@dataclass
class NaiveBlock:
    """``content``: (parent hash, token ids) of a published block."""

    ref_count: int = 0
    pins: int = 0
    fill: int = 0
    owner: str = ""
    block_hash: bytes | None = None
    content: tuple[bytes, tuple[int, ...]] | None = None

    @property
    def state(self) -> BlockState:
        if self.ref_count:
            return BlockState.USED
        return BlockState.CACHED if self.block_hash else BlockState.FREE

    def view(self) -> BlockView:
        short = (self.block_hash or b"")[:SHORT_HASH_BYTES]
        return BlockView(self.state, self.ref_count, short, self.owner, self.fill, self.pins)


class NaivePool:
    """``never_hashed``: a stack, the block given back last is taken first. ``cached``: the one
    unused for longest is taken first, but only when the stack is empty.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = [NaiveBlock() for _ in range(num_blocks)]
        self.never_hashed = list(reversed(range(num_blocks)))
        self.cached: list[int] = []

    def queue(self) -> list[int]:
        """The order in which blocks are given away."""
        return [*reversed(self.never_hashed), *self.cached]

    def ids(self, *states: BlockState) -> list[int]:
        return [i for i, block in enumerate(self.blocks) if block.state in states]

    def canonical(self, block_hash: bytes) -> int | None:
        """The published block of this hash."""
        found = [i for i, block in enumerate(self.blocks) if block.block_hash == block_hash]
        assert len(found) <= 1, f"two published blocks of one hash: {found}"
        return found[0] if found else None

    def allocate(self, owner: str) -> int:
        block_id = self.never_hashed.pop() if self.never_hashed else self.cached.pop(0)
        self.blocks[block_id] = NaiveBlock(ref_count=1, owner=owner)
        return block_id

    def hit(self, block_id: int, owner: str) -> None:
        block = self.blocks[block_id]
        if block.state is BlockState.CACHED:
            self.cached.remove(block_id)
        block.ref_count += 1
        block.owner = owner

    def release(self, block_id: int) -> None:
        block = self.blocks[block_id]
        block.ref_count -= 1
        if block.ref_count:
            return
        if block.block_hash:
            self.cached.append(block_id)
        else:
            self.blocks[block_id] = NaiveBlock()
            self.never_hashed.append(block_id)

    def publish(
        self, block_id: int, block_hash: bytes, parent: bytes, tokens: Sequence[int]
    ) -> bool:
        """The first published stays canonical, and a block is published once."""
        block = self.blocks[block_id]
        if block.block_hash or self.canonical(block_hash) is not None:
            return False
        block.block_hash, block.content = block_hash, (parent, tuple(tokens))
        return True

    def forget(self, block_id: int) -> None:
        self.blocks[block_id].block_hash = self.blocks[block_id].content = None

    def pin(self, block_id: int, owner: str) -> None:
        self.hit(block_id, owner)
        self.blocks[block_id].pins += 1

    def unpin(self, block_id: int) -> None:
        self.blocks[block_id].pins -= 1
        self.release(block_id)

    def drop_cached(self) -> int:
        """All cached blocks become free where they stand in the queue."""
        dropped, order = len(self.cached), self.queue()
        for block_id in self.cached:
            self.blocks[block_id] = NaiveBlock()
        self.never_hashed, self.cached = order[::-1], []
        return dropped
