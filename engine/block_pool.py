"""The pool of physical KV blocks: the one place where a block's state changes.

States: *free* (nobody uses it, no hash), *cached* (hashed, nobody uses it, reusable), *used*
(``ref_count`` > 0). A free cached block *is* the prefix cache: there is no other. Each change emits
one event with the block before and after.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from engine.api.events import BlockChanged, BlockEventKind, BlockState, BlockView
from engine.api.snapshot import CACHED, FREE, USED, PoolColumns
from engine.block_hash import NO_SHORT_HASH, SHORT_HASH_BYTES
from engine.event_log import PoolEventLog
from engine.free_queue import FreeBlockQueue
from engine.request import Request

_STATES = (BlockState.FREE, BlockState.CACHED, BlockState.USED)
assert (FREE, CACHED, USED) == (0, 1, 2)

_NO_REQUEST = ("", "")


class BlockPool:
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
        self.owners: list[str] = []
        self._owner_index: dict[str, int] = {}
        self._state = bytearray(num_blocks)
        self._ref_count = array("H", bytes(2 * num_blocks))
        self._pins = array("H", bytes(2 * num_blocks))
        self._owner = array("i", [-1]) * num_blocks
        self._fill = array("H", bytes(2 * num_blocks))
        self._last_step = array("i", [-1]) * num_blocks
        self._short_hash = bytearray(SHORT_HASH_BYTES * num_blocks)
        self._hash: list[bytes | None] = [None] * num_blocks
        self._content: list[tuple[bytes, tuple[int, ...]] | None] = [None] * num_blocks
        self._by_hash: dict[bytes, int] = {}

    # --- reading ---

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

    def ref_count(self, block_id: int) -> int:
        return self._ref_count[block_id]

    def fill(self, block_id: int) -> int:
        return self._fill[block_id]

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
        return self._ref_count[block_id] == 0

    def is_pinned(self, block_id: int) -> bool:
        return self._pins[block_id] > 0

    def lookup(self, block_hash: bytes, parent: bytes, token_ids: Sequence[int]) -> int | None:
        """The block that holds the KV of these tokens after this parent, or None.

        Parent and tokens are compared, not only the hash: a collision must not serve another
        prompt.
        """
        block_id = self._by_hash.get(block_hash)
        if block_id is None or self._content[block_id] != (parent, tuple(token_ids)):
            return None
        return block_id

    # --- changing: one event each ---

    def allocate(self, request: Request, cause: str) -> int:
        """Takes the block at the front of the queue, evicting its cached content if it has one."""
        block_id = self.free.front()
        if self._hash[block_id] is not None:
            self.evict(block_id, cause, request)
        before = self._view(block_id)
        self.free.remove(block_id)
        self._state[block_id] = USED
        self._ref_count[block_id] = 1
        self._fill[block_id] = 0
        self._set_owner(block_id, request.conversation_id)
        self._emit(BlockEventKind.ALLOCATED, cause, block_id, before, request)
        return block_id

    def hit(self, block_id: int, request: Request, cause: str) -> None:
        """One more reference to a block whose KV is wanted again."""
        self.num_hits += 1
        before = self._view(block_id)
        self._add_reference(block_id)
        self._set_owner(block_id, request.conversation_id)
        self._emit(BlockEventKind.HIT, cause, block_id, before, request)

    def copy(self, source: int, request: Request) -> int:
        """A new block that will hold what ``source`` holds, once the step has copied it."""
        block_id = self.allocate(request, "copy")
        before = self._view(block_id)
        self._fill[block_id] = self._fill[source]
        self._emit(BlockEventKind.COPIED, "copy", block_id, before, request, source=source)
        return block_id

    def release(self, block_id: int, request: Request, cause: str) -> None:
        """One reference less; the last one puts the block back into the queue."""
        before = self._view(block_id)
        self._drop_reference(block_id)
        self._emit(BlockEventKind.RELEASED, cause, block_id, before, request)

    def set_fill(self, block_id: int, fill: int, request: Request, step: int) -> None:
        """``fill`` tokens of the block have their KV since ``step``."""
        before = self._view(block_id)
        self._fill[block_id] = fill
        self._last_step[block_id] = step
        self._emit(BlockEventKind.FILLED, "computed", block_id, before, request, step=step)

    def publish(
        self,
        block_id: int,
        block_hash: bytes,
        parent: bytes,
        token_ids: Sequence[int],
        request: Request,
    ) -> bool:
        """Makes a full, computed block findable. False if an identical one is canonical already."""
        assert self._fill[block_id] == self.block_size, "only a full block has a hash"
        assert self._ref_count[block_id] > 0, "only a used block is published"
        if block_hash in self._by_hash or self._hash[block_id] is not None:
            return False
        before = self._view(block_id)
        self._hash[block_id] = block_hash
        self._content[block_id] = (parent, tuple(token_ids))
        self._by_hash[block_hash] = block_id
        self.num_stored += 1
        self._write_short_hash(block_id, block_hash[:SHORT_HASH_BYTES])
        self._emit(BlockEventKind.STORED, "full", block_id, before, request)
        return True

    def evict(self, block_id: int, cause: str, request: Request | None = None) -> None:
        """Forgets the content of a cached block, which becomes free where it stands in the
        queue.
        """
        assert self._ref_count[block_id] == 0, f"block {block_id} is in use"
        block_hash = self._hash[block_id]
        assert block_hash is not None, f"block {block_id} is not cached"
        before = self._view(block_id)
        del self._by_hash[block_hash]
        self._hash[block_id] = None
        self._content[block_id] = None
        self._state[block_id] = FREE
        self._fill[block_id] = 0
        self._owner[block_id] = -1
        self.num_cached -= 1
        self._write_short_hash(block_id, NO_SHORT_HASH)
        self._emit(BlockEventKind.REMOVED, cause, block_id, before, request)

    def drop_cached(self, cause: str) -> int:
        """Evicts every cached block, keeping the queue's rule (never-hashed in front)."""
        cached = [block_id for block_id in self.free if self._hash[block_id] is not None]
        for block_id in cached:
            self.evict(block_id, cause)
        return len(cached)

    def reset(self) -> None:
        """Frees every block whatever it is, with one event each, and builds the queue anew."""
        for block_id in range(self.num_blocks):
            if self._state[block_id] == FREE and self._hash[block_id] is None:
                continue
            before = self._view(block_id)
            self._state[block_id] = FREE
            self._ref_count[block_id] = self._pins[block_id] = self._fill[block_id] = 0
            self._hash[block_id] = self._content[block_id] = None
            self._owner[block_id] = -1
            self._write_short_hash(block_id, NO_SHORT_HASH)
            self._emit(BlockEventKind.REMOVED, "reset", block_id, before)
        self.free = FreeBlockQueue(self.num_blocks)
        self._by_hash.clear()
        self.num_cached = self.num_shared = self.num_pinned = 0

    def pin(self, block_id: int, conversation_id: str) -> None:
        """Keeps a hashed block in the pool; a pin holds one reference."""
        assert self._hash[block_id] is not None, "only a hashed block can be pinned"
        before = self._view(block_id)
        self._add_reference(block_id)
        self._pins[block_id] += 1
        self.num_pinned += self._pins[block_id] == 1
        self._set_owner(block_id, conversation_id)
        self._emit(BlockEventKind.PINNED, "pin", block_id, before, conversation_id=conversation_id)

    def unpin(self, block_id: int, conversation_id: str) -> None:
        """Gives a pin back."""
        assert self._pins[block_id] > 0, f"block {block_id} is not pinned"
        before = self._view(block_id)
        self._pins[block_id] -= 1
        self.num_pinned -= self._pins[block_id] == 0
        self._drop_reference(block_id)
        self._emit(
            BlockEventKind.UNPINNED, "unpin", block_id, before, conversation_id=conversation_id
        )

    # --- whole-pool views ---

    def columns(self) -> PoolColumns:
        """A copy of all columns, for a snapshot."""
        return PoolColumns(
            state=bytes(self._state),
            ref_count=self._ref_count.tobytes(),
            pins=self._pins.tobytes(),
            owner=self._owner.tobytes(),
            fill=self._fill.tobytes(),
            last_step=self._last_step.tobytes(),
            block_hash=bytes(self._short_hash),
        )

    def violations(self, tables: Iterable[Sequence[int]]) -> list[str]:
        """What is wrong with the pool, given all live block tables; empty when all is well.

        Recounts everything: O(blocks). Tests call it after each step.
        """
        return [found for part in self.violation_slices(tables, self.num_blocks) for found in part]

    def violation_slices(
        self, tables: Iterable[Sequence[int]], slice_blocks: int
    ) -> Iterator[list[str]]:
        """``violations`` bit by bit, about so many blocks at a time: an idle engine recounts so.

        Worth nothing once the pool has changed since the first slice.
        """
        references = array("I", bytes(4 * self.num_blocks))
        for table in tables:
            for block_id in table:
                references[block_id] += 1
        queued = list(self.free)
        found: list[str] = []
        if len(queued) != len(set(queued)) or len(queued) != len(self.free):
            found.append("the free queue has duplicates or a wrong length")
        yield found
        counts = [0, 0, 0]
        for first in range(0, self.num_blocks, slice_blocks):
            found = []
            for block_id in range(first, min(first + slice_blocks, self.num_blocks)):
                counts[self._state[block_id]] += 1
                found.extend(self._block_violations(block_id, references[block_id]))
            yield found
        found = []
        if counts != [self.num_free, self.num_cached, self.num_used]:
            found.append(
                f"counted free/cached/used {counts}, kept "
                f"[{self.num_free}, {self.num_cached}, {self.num_used}]"
            )
        shared = sum(count > 1 for count in self._ref_count)
        if shared != self.num_shared:
            found.append(f"{shared} blocks are shared, kept count {self.num_shared}")
        if len(self._by_hash) != sum(block_hash is not None for block_hash in self._hash):
            found.append("the hash index and the blocks' hashes differ in number")
        yield found

    def _block_violations(self, block_id: int, references: int) -> list[str]:
        found: list[str] = []
        count, block_hash = self._ref_count[block_id], self._hash[block_id]
        if count != references + self._pins[block_id]:
            found.append(
                f"block {block_id}: ref_count {count}, but {references} table entries "
                f"and {self._pins[block_id]} pins"
            )
        if (block_id in self.free) != (count == 0):
            found.append(f"block {block_id}: ref_count {count} and its place in the queue disagree")
        expected = USED if count else (CACHED if block_hash is not None else FREE)
        if self._state[block_id] != expected:
            found.append(f"block {block_id}: state {self._state[block_id]}, expected {expected}")
        if block_hash is not None and self._by_hash.get(block_hash) != block_id:
            found.append(f"block {block_id}: its hash leads to another block")
        if block_hash is not None and self._fill[block_id] != self.block_size:
            found.append(f"block {block_id}: hashed with {self._fill[block_id]} tokens computed")
        return found

    # --- inside ---

    def _add_reference(self, block_id: int) -> None:
        count = self._ref_count[block_id]
        if count == 0:
            self.free.remove(block_id)
            self.num_cached -= self._state[block_id] == CACHED
            self._state[block_id] = USED
        self._ref_count[block_id] = count + 1
        self.num_shared += count == 1

    def _drop_reference(self, block_id: int) -> None:
        count = self._ref_count[block_id] - 1
        assert count >= 0, f"block {block_id} released more often than taken"
        self._ref_count[block_id] = count
        self.num_shared -= count == 1
        if count:
            return
        if self._hash[block_id] is None:
            self._state[block_id] = FREE
            self._fill[block_id] = 0
            self._owner[block_id] = -1
            self.free.push_front(block_id)
        else:
            self._state[block_id] = CACHED
            self.num_cached += 1
            self.free.push_back(block_id)

    def _set_owner(self, block_id: int, conversation_id: str) -> None:
        index = self._owner_index.get(conversation_id)
        if index is None:
            index = self._owner_index[conversation_id] = len(self.owners)
            self.owners.append(conversation_id)
        self._owner[block_id] = index

    def _write_short_hash(self, block_id: int, short: bytes) -> None:
        start = block_id * SHORT_HASH_BYTES
        self._short_hash[start : start + SHORT_HASH_BYTES] = short

    def _view(self, block_id: int) -> BlockView | None:
        return self.view(block_id) if self.log.enabled else None

    def view(self, block_id: int) -> BlockView:
        """The block as events show it."""
        block_hash = self._hash[block_id]
        owner = self._owner[block_id]
        return BlockView(
            state=_STATES[self._state[block_id]],
            ref_count=self._ref_count[block_id],
            block_hash=block_hash[:SHORT_HASH_BYTES] if block_hash else b"",
            owner=self.owners[owner] if owner >= 0 else "",
            fill=self._fill[block_id],
            pins=self._pins[block_id],
        )

    def _emit(
        self,
        kind: BlockEventKind,
        cause: str,
        block_id: int,
        before: BlockView | None,
        request: Request | None = None,
        conversation_id: str = "",
        source: int = -1,
        step: int | None = None,
    ) -> None:
        if before is None:
            return
        log = self.log
        request_id, conversation = (
            (request.request_id, request.conversation_id) if request else _NO_REQUEST
        )
        log.append(
            BlockChanged(
                seq=log.next_seq(),
                step=log.step if step is None else step,
                kind=kind,
                cause=cause,
                block_id=block_id,
                request_id=request_id,
                conversation_id=conversation or conversation_id,
                before=before,
                after=self.view(block_id),
                source_block_id=source,
            )
        )
