"""The oracle for ``BlockManager``: whole prefixes instead of hashes, and every slot's true content.

Its pool predicts which block is given away next, so that block tables are equal id by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.api.events import BlockState
from tests.helpers.naive_pool import NaivePool


@dataclass(eq=False)
class NaiveSequence:
    """``tried``: leading blocks whose publication was tried already. ``flights``: (start, number of
    tokens) of the steps submitted and not committed yet.
    """

    name: str
    ids: list[int]
    table: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_committed: int = 0
    tried: int = 0
    flights: list[tuple[int, int]] = field(default_factory=list)

    def clear(self) -> None:
        self.table = []
        self.flights = []
        self.num_computed = self.num_committed = self.tried = 0


class NaiveManager:
    """``slots``: the (token, position) last written into each (block, offset), as the device has
    it: what an evicted block held stays there until something else is written.
    """

    def __init__(self, num_blocks: int, block_size: int, caching: bool) -> None:
        self.pool = NaivePool(num_blocks, block_size)
        self.block_size = block_size
        self.caching = caching
        self.slots: dict[tuple[int, int], tuple[int, int]] = {}
        self.computing: dict[tuple[int, ...], NaiveSequence] = {}
        self.promised: dict[NaiveSequence, list[tuple[int, ...]]] = {}
        self.pins: dict[str, list[int]] = {}

    # --- reading ---

    def key(self, prefix: Sequence[int]) -> bytes:
        """Stands for the hash of the block that ends this prefix."""
        return repr(tuple(prefix)).encode()

    def prefixes(self, ids: Sequence[int], start: int, end: int) -> list[tuple[int, ...]]:
        """The prefixes that blocks ``start`` to before ``end`` close."""
        return [tuple(ids[: (index + 1) * self.block_size]) for index in range(start, end)]

    def known(self, ids: Sequence[int], limit: int) -> list[int]:
        hits: list[int] = []
        for prefix in self.prefixes(ids, 0, limit):
            block_id = self.pool.canonical(self.key(prefix))
            if block_id is None:
                break
            hits.append(block_id)
        return hits

    def match(self, ids: Sequence[int]) -> list[int]:
        """At least the last token is left to compute."""
        return self.known(ids, (len(ids) - 1) // self.block_size) if self.caching else []

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def short(self, ids: Sequence[int], reserve: int) -> int:
        """Blocks that admission lacks."""
        hits = self.match(ids)
        taken = sum(self.pool.blocks[i].state is BlockState.CACHED for i in hits)
        needed = self.blocks_for(len(ids)) - len(hits) + taken + reserve
        return max(0, needed - len(self.pool.queue()))

    def twin(self, ids: Sequence[int]) -> NaiveSequence | None:
        place = len(self.match(ids))
        if not self.caching or place >= (len(ids) - 1) // self.block_size:
            return None
        return self.computing.get(self.prefixes(ids, place, place + 1)[0])

    def must_copy(self, seq: NaiveSequence) -> bool:
        index = seq.num_computed // self.block_size
        if index >= len(seq.table):
            return False
        block = self.pool.blocks[seq.table[index]]
        return block.ref_count > 1 or block.block_hash is not None

    # --- changing ---

    def admit(self, seq: NaiveSequence) -> None:
        hits = self.match(seq.ids)
        for block_id in hits:
            self.pool.hit(block_id, seq.name)
        missing = self.blocks_for(len(seq.ids)) - len(hits)
        seq.table = hits + [self.pool.allocate(seq.name) for _ in range(missing)]
        seq.num_computed = seq.num_committed = len(hits) * self.block_size
        seq.tried = len(hits)
        self.promise(seq)

    def promise(self, seq: NaiveSequence) -> None:
        if self.caching:
            promised = self.prefixes(seq.ids, seq.tried, len(seq.ids) // self.block_size)
            for prefix in promised:
                self.computing.setdefault(prefix, seq)
            self.promised[seq] = promised

    def withdraw(self, seq: NaiveSequence) -> None:
        for prefix in self.promised.pop(seq, []):
            if self.computing.get(prefix) is seq:
                del self.computing[prefix]

    def fork(self, parent: NaiveSequence, child: NaiveSequence, num_tokens: int) -> None:
        child.table = parent.table[: self.blocks_for(num_tokens)]
        for block_id in child.table:
            self.pool.hit(block_id, child.name)
        child.num_computed = child.num_committed = num_tokens
        child.tried = min(parent.tried, num_tokens // self.block_size)

    def grow(self, seq: NaiveSequence) -> bool:
        missing = max(0, self.blocks_for(len(seq.ids)) - len(seq.table))
        if len(self.pool.queue()) < missing + self.must_copy(seq):
            return False
        seq.table += [self.pool.allocate(seq.name) for _ in range(missing)]
        return True

    def own(self, seq: NaiveSequence) -> tuple[int, int] | None:
        if not self.must_copy(seq):
            return None
        index = seq.num_computed // self.block_size
        source, destination = seq.table[index], self.pool.allocate(seq.name)
        self.pool.blocks[destination].fill = self.pool.blocks[source].fill
        seq.table[index] = destination
        self.pool.release(source)
        seq.tried = min(seq.tried, index)
        return source, destination

    def copy_content(self, source: int, destination: int) -> None:
        for offset in range(self.block_size):
            self.slots.pop((destination, offset), None)
            if (source, offset) in self.slots:
                self.slots[destination, offset] = self.slots[source, offset]

    def compute(self, seq: NaiveSequence, num_tokens: int) -> None:
        """Writes where the sequence's table says; nobody else may read there."""
        start = seq.num_computed
        for position in range(start, start + num_tokens):
            block_id = seq.table[position // self.block_size]
            block = self.pool.blocks[block_id]
            assert block.ref_count == 1, f"{seq.name} writes into block {block_id}, which is shared"
            assert block.block_hash is None, f"{seq.name} writes into published block {block_id}"
            self.slots[block_id, position % self.block_size] = (seq.ids[position], position)
        seq.num_computed += num_tokens
        seq.flights.append((start, num_tokens))

    def commit(self, seq: NaiveSequence) -> tuple[int, int]:
        start, num_tokens = seq.flights.pop(0)
        size, end = self.block_size, start + num_tokens
        seq.num_committed = end
        for index in range(start // size, self.blocks_for(end)):
            self.pool.blocks[seq.table[index]].fill = min(size, end - index * size)
        if self.caching:
            for index, prefix in enumerate(self.prefixes(seq.ids, seq.tried, end // size)):
                block_id = seq.table[seq.tried + index]
                self.pool.publish(block_id, self.key(prefix), b"", prefix)
                if self.computing.get(prefix) is seq:
                    del self.computing[prefix]
            seq.tried = max(seq.tried, end // size)
        return start, num_tokens

    def free(self, seq: NaiveSequence) -> None:
        self.withdraw(seq)
        for block_id in reversed(seq.table):
            self.pool.release(block_id)
        seq.clear()

    def truncate(self, seq: NaiveSequence, num_tokens: int) -> None:
        """All but the last of the tokens that are left stay computed."""
        self.withdraw(seq)
        del seq.ids[num_tokens:]
        kept = self.blocks_for(num_tokens)
        for block_id in reversed(seq.table[kept:]):
            self.pool.release(block_id)
        del seq.table[kept:]
        seq.num_computed = min(seq.num_computed, num_tokens - 1)
        seq.num_committed = min(seq.num_committed, num_tokens - 1)
        seq.tried = min(seq.tried, seq.num_committed // self.block_size)

    def reset(self, sequences: Sequence[NaiveSequence]) -> None:
        """All blocks are free in the order of their ids; the device still has what it has."""
        for seq in sequences:
            seq.clear()
        self.pool = NaivePool(len(self.pool.blocks), self.block_size)
        self.computing, self.promised, self.pins = {}, {}, {}

    def pin(self, name: str, ids: Sequence[int]) -> int:
        found = self.known(ids, len(ids) // self.block_size)
        for block_id in found:
            self.pool.pin(block_id, name)
        self.unpin(name)
        self.pins[name] = found
        return len(found)

    def unpin(self, name: str) -> None:
        for block_id in reversed(self.pins.pop(name, [])):
            self.pool.unpin(block_id)
