"""The pool of physical KV blocks: the one place where a block's state changes.

States: *free* (nobody uses it, no hash), *cached* (hashed, nobody uses it, reusable), *used*
(``ref_count`` > 0). A free cached block *is* the prefix cache: there is no other. Each change emits
one event with the block before and after. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.events import BlockChanged, BlockEventKind, BlockView
from engine.api.snapshot import CACHED, FREE, USED
from engine.free_queue import FreeBlockQueue
from engine.pool_state import PoolState
from engine.request import Request

_NO_REQUEST = ("", "")


class BlockPool(PoolState):
    """``num_blocks`` blocks of ``block_size`` tokens. Each change emits one event."""

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
        before = self._view(block_id)
        self._drop_hash(block_id)
        self._columns.state[block_id] = FREE
        self._columns.fill[block_id] = 0
        self._columns.owner[block_id] = -1
        self.num_cached -= 1
        self._emit(BlockEventKind.REMOVED, cause, block_id, before, request)

    def forget(self, block_id: int, cause: str, request: Request) -> None:
        """Lets nobody find a block any more that is in use; who uses it goes on."""
        assert self._columns.ref_count[block_id] > 0, f"block {block_id} is not in use"
        assert self._columns.pins[block_id] == 0, f"block {block_id} is pinned"
        before = self._view(block_id)
        self._drop_hash(block_id)
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

    # --- inside ---

    def _drop_hash(self, block_id: int) -> None:
        block_hash = self._hash[block_id]
        assert block_hash is not None, f"block {block_id} is not in the cache"
        del self._by_hash[block_hash]
        self._hash[block_id] = None
        self._content[block_id] = None
        self._columns.set_hash(block_id, None)

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
