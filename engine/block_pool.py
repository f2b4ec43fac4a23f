"""The pool of physical KV blocks: the one place where a block's state changes.

States: *free* (nobody uses it, no hash), *cached* (hashed, nobody uses it, reusable), *used*
(``ref_count`` > 0). A free cached block *is* the prefix cache: there is no other. Each change emits
one event with the block before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.api.events import BlockChanged, BlockEventKind, BlockState, BlockView
from engine.api.snapshot import CACHED, FREE, USED, PoolColumns
from engine.block_columns import BlockColumns
from engine.block_hash import SHORT_HASH_BYTES
from engine.event_log import PoolEventLog
from engine.free_queue import FreeBlockQueue
from engine.pool_audit import audit
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
        self._columns = BlockColumns(num_blocks)
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
        self._columns.state[block_id] = USED
        self._columns.ref_count[block_id] = 1
        self._columns.fill[block_id] = 0
        self._columns.set_owner(block_id, request.conversation_id)
        self._emit(BlockEventKind.ALLOCATED, cause, block_id, before, request)
        return block_id

    def hit(self, block_id: int, request: Request, cause: str) -> None:
        """One more reference to a block whose KV is wanted again."""
        self.num_hits += 1
        before = self._view(block_id)
        self._add_reference(block_id)
        self._columns.set_owner(block_id, request.conversation_id)
        self._emit(BlockEventKind.HIT, cause, block_id, before, request)

    def copy(self, source: int, request: Request) -> int:
        """A new block that will hold what ``source`` holds, once the step has copied it."""
        block_id = self.allocate(request, "copy")
        before = self._view(block_id)
        self._columns.fill[block_id] = self._columns.fill[source]
        self._emit(BlockEventKind.COPIED, "copy", block_id, before, request, source=source)
        return block_id

    def release(self, block_id: int, request: Request, cause: str) -> None:
        """One reference less; the last one puts the block back into the queue."""
        before = self._view(block_id)
        self._drop_reference(block_id)
        self._emit(BlockEventKind.RELEASED, cause, block_id, before, request)

    def set_fill(self, block_id: int, fill: int, request: Request, step: int) -> None:
        """``fill`` tokens of the block have their KV since ``step``."""
        before = self.view(block_id) if self.log.enabled else None
        self._columns.fill[block_id] = fill
        self._columns.last_step[block_id] = step
        if before is not None:
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
        assert self._columns.fill[block_id] == self.block_size, "only a full block has a hash"
        assert self._columns.ref_count[block_id] > 0, "only a used block is published"
        if block_hash in self._by_hash or self._hash[block_id] is not None:
            return False
        before = self._view(block_id)
        self._hash[block_id] = block_hash
        self._content[block_id] = (parent, tuple(token_ids))
        self._by_hash[block_hash] = block_id
        self.num_stored += 1
        self._columns.set_hash(block_id, block_hash)
        self._emit(BlockEventKind.STORED, "full", block_id, before, request)
        return True

    def evict(self, block_id: int, cause: str, request: Request | None = None) -> None:
        """Forgets the content of a cached block, which becomes free where it stands in the
        queue.
        """
        assert self._columns.ref_count[block_id] == 0, f"block {block_id} is in use"
        block_hash = self._hash[block_id]
        assert block_hash is not None, f"block {block_id} is not cached"
        before = self._view(block_id)
        del self._by_hash[block_hash]
        self._hash[block_id] = None
        self._content[block_id] = None
        self._columns.state[block_id] = FREE
        self._columns.fill[block_id] = 0
        self._columns.owner[block_id] = -1
        self.num_cached -= 1
        self._columns.set_hash(block_id, None)
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
            if self._columns.state[block_id] == FREE and self._hash[block_id] is None:
                continue
            before = self._view(block_id)
            self._columns.state[block_id] = FREE
            self._columns.ref_count[block_id] = self._columns.pins[block_id] = 0
            self._columns.fill[block_id] = 0
            self._hash[block_id] = self._content[block_id] = None
            self._columns.owner[block_id] = -1
            self._columns.set_hash(block_id, None)
            self._emit(BlockEventKind.REMOVED, "reset", block_id, before)
        self.free = FreeBlockQueue(self.num_blocks)
        self._by_hash.clear()
        self.num_cached = self.num_shared = self.num_pinned = 0

    def pin(self, block_id: int, conversation_id: str) -> None:
        """Keeps a hashed block in the pool; a pin holds one reference."""
        assert self._hash[block_id] is not None, "only a hashed block can be pinned"
        before = self._view(block_id)
        self._add_reference(block_id)
        self._columns.pins[block_id] += 1
        self.num_pinned += self._columns.pins[block_id] == 1
        self._columns.set_owner(block_id, conversation_id)
        self._emit(BlockEventKind.PINNED, "pin", block_id, before, conversation_id=conversation_id)

    def unpin(self, block_id: int, conversation_id: str) -> None:
        """Gives a pin back."""
        assert self._columns.pins[block_id] > 0, f"block {block_id} is not pinned"
        before = self._view(block_id)
        self._drop_reference(block_id)
        self._columns.pins[block_id] -= 1
        self.num_pinned -= self._columns.pins[block_id] == 0
        self._emit(
            BlockEventKind.UNPINNED, "unpin", block_id, before, conversation_id=conversation_id
        )

    # --- whole-pool views ---

    def columns(self) -> PoolColumns:
        """A copy of all columns, for a snapshot."""
        return self._columns.snapshot()

    def violations(self, tables: Iterable[Sequence[int]]) -> list[str]:
        """What is wrong with the pool, given all live block tables; empty when all is well.

        Recounts everything: O(blocks). Tests call it after each step.
        """
        return [found for part in audit(self, tables, self.num_blocks) for found in part]

    # --- inside ---

    def _add_reference(self, block_id: int) -> None:
        count = self._columns.ref_count[block_id]
        if count == 0:
            self.free.remove(block_id)
            self.num_cached -= self._columns.state[block_id] == CACHED
            self._columns.state[block_id] = USED
        self._columns.ref_count[block_id] = count + 1
        self.num_shared += count == 1

    def _drop_reference(self, block_id: int) -> None:
        count = self._columns.ref_count[block_id] - 1
        assert count >= 0, f"block {block_id} released more often than taken"
        cached = self._hash[block_id] is not None
        if count == 0:
            # First: should it fail, the block still is what the last event said.
            (self.free.push_back if cached else self.free.push_front)(block_id)
        self._columns.ref_count[block_id] = count
        self.num_shared -= count == 1
        if count:
            return
        if cached:
            self._columns.state[block_id] = CACHED
            self.num_cached += 1
        else:
            self._columns.state[block_id] = FREE
            self._columns.fill[block_id] = 0
            self._columns.owner[block_id] = -1

    def _view(self, block_id: int) -> BlockView | None:
        return self.view(block_id) if self.log.enabled else None

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
