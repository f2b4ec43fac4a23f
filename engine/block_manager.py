"""Block tables: which physical blocks a request uses, what it can take from the prefix cache.

The manager decides *which* blocks; ``BlockPool`` alone changes their state. A hash is published
only after the KV of its block has been computed (``commit``), so a failed or cancelled step leaves
no block that could be found with wrong content. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.events import TableChanged
from engine.block_pool import BlockPool
from engine.prefix_cache import PrefixCache
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Admission:
    """What admitting a request would take, valid until the pool changes.

    ``hits``: cached or live blocks of its longest known prefix. ``num_new_blocks``: blocks to
    allocate besides. ``num_short``: how many of those the pool lacks, the reserve counted in; 0
    means it fits. ``twin``: the request that is computing the next block of this prefix just now,
    or None.
    """

    hits: tuple[int, ...]
    num_new_blocks: int
    num_short: int
    twin: Request | None


class BlockManager:
    """Block tables over one pool.

    ``root``: see ``block_hash.root_hash``. ``prefix_caching`` False never matches and never
    publishes.
    """

    def __init__(self, pool: BlockPool, root: bytes, *, prefix_caching: bool = True) -> None:
        self.pool = pool
        self.block_size = pool.block_size
        self._prefixes = PrefixCache(pool, root, prefix_caching)

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def can_ever_fit(self, prompt_ids: Sequence[int]) -> bool:
        """Whether a prompt and its first output token fit into the pool when nobody else runs.

        Pinned blocks are not to be had, but those that hold the prompt's own beginning serve it.
        """
        missing = self.num_blocks_for(len(prompt_ids) + 1)
        usable = self.pool.num_blocks - self.pool.num_pinned
        if missing > usable and self.pool.num_pinned:
            prefix = self.known_prefix(prompt_ids[: len(prompt_ids) - 1])
            missing -= sum(self.pool.is_pinned(block_id) for block_id in prefix)
        return missing <= usable

    # --- admission ---

    def examine(self, request: Request, reserve: int) -> Admission:
        """Looks what admission would take; changes nothing (so a refusal leaves no reference
        behind).

        At least one token is left to compute: its logits are what the request is for. ``reserve``
        blocks must stay available after admission.
        """
        hits = self._prefixes.match(request)
        twin = self._prefixes.twin_of(request, len(hits))
        new = self.num_blocks_for(request.num_tokens) - len(hits)
        unused_hits = sum(self.pool.is_unused(block_id) for block_id in hits)
        short = new + unused_hits + reserve - self.pool.num_available
        return Admission(tuple(hits), new, max(0, short), twin)

    def known_prefix(self, token_ids: Sequence[int]) -> list[int]:
        """Blocks that hold the KV of these tokens' longest prefix of full blocks."""
        return self._prefixes.known(token_ids)

    def twin_still_computing(self, request: Request) -> bool:
        """O(1): the block that ``examine`` found a twin for is not there yet, and its twin goes
        on.
        """
        return self._prefixes.twin_still_computing(request)

    def admit(self, request: Request, admission: Admission) -> None:
        """Gives the request its blocks: the hits, and new ones for all of its known tokens.

        Sets ``block_table`` and ``num_computed_tokens``, and promises its uncomputed full blocks to
        twins. Call only with ``num_short`` 0 and an unchanged pool.
        """
        assert not request.block_table, "already admitted"
        for block_id in admission.hits:
            self.pool.hit(block_id, request, "prefix")
        new = [self.pool.allocate(request, "prompt") for _ in range(admission.num_new_blocks)]
        self._set_table(request, 0, [*admission.hits, *new], "admit")
        request.num_computed_tokens = len(admission.hits) * self.block_size
        request.num_committed_tokens = request.num_computed_tokens
        request.num_published_blocks = len(admission.hits)
        self._prefixes.promise(request)

    def fork(self, parent: Request, child: Request, num_tokens: int) -> None:
        """Lets ``child`` share every block that holds the KV of its first ``num_tokens`` tokens.

        The last block may be partial and go on being written by ``parent``: whoever writes into it
        first while it is shared gets a copy (``own_block``). ``child`` must have the same tokens.
        """
        assert not child.block_table, "already admitted"
        parent.num_owned_slots = 0
        shared = parent.block_table[: self.num_blocks_for(num_tokens)]
        for block_id in shared:
            self.pool.hit(block_id, child, "fork")
        self._set_table(child, 0, shared, "fork")
        assert parent.num_committed_tokens >= num_tokens, "its KV may never come to be"
        child.num_computed_tokens = child.num_committed_tokens = num_tokens
        num_full = num_tokens // self.block_size
        child.num_published_blocks = min(parent.num_published_blocks, num_full)

    def own_block(self, request: Request) -> tuple[int, int] | None:
        """Copy-on-write: makes the block of the next token to compute the request's own.

        Returns (source, destination) of the copy to make before this step writes, or None if the
        block was its own already. A free block must be there (``append_slot`` has looked).
        """
        index = request.num_computed_tokens // self.block_size
        request.num_owned_slots = (index + 1) * self.block_size
        if not self._must_copy(request):
            return None
        source, *rest = request.block_table[index:]
        destination = self.pool.copy(source, request)
        self._set_table(request, index, [destination, *rest], "copy")
        self.pool.release(source, request, "copy")
        request.num_published_blocks = min(request.num_published_blocks, index)
        return source, destination

    def append_slot(self, request: Request) -> bool:
        """Makes sure that the request's last token has a slot.

        False if the pool has no block left.
        """
        missing = max(0, self.num_blocks_for(request.num_tokens) - len(request.block_table))
        if self.pool.num_available < missing + self._must_copy(request):
            return False
        if missing == 0:
            return True
        new = [self.pool.allocate(request, "grow") for _ in range(missing)]
        self._set_table(request, len(request.block_table), new, "grow")
        return True

    # --- after a step ---

    def commit(self, request: Request, start: int, num_tokens: int, step: int) -> None:
        """The KV of ``num_tokens`` tokens from ``start`` on is in the pool: fills, then hashes."""
        size, end = self.block_size, start + num_tokens
        request.num_committed_tokens = end
        if num_tokens == 1:
            self.pool.set_fill(request.block_table[start // size], start % size + 1, request, step)
        else:
            self._fill(request, start, end, step)
        if end // size > request.num_published_blocks:
            self._prefixes.publish(request, end // size)

    def _fill(self, request: Request, start: int, end: int, step: int) -> None:
        size = self.block_size
        for index in range(start // size, self.num_blocks_for(end)):
            fill = min(size, end - index * size)
            self.pool.set_fill(request.block_table[index], fill, request, step)

    def doubt(self, request: Request, cause: str) -> None:
        """What the request computed may be wrong: nobody finds it any more.

        What others use or have pinned stays, as it has served them, unless they are doubted too:
        the last of them takes it along.
        """
        request.doubt_cause = cause
        self._forget_own(request, cause)

    def free(self, request: Request, cause: str) -> int:
        """Gives all blocks back, the tail first, so that a chain's head stays in the cache longest.

        Returns how many blocks nobody uses any more.
        """
        self.withdraw(request)
        if request.doubt_cause:
            self._forget_own(request, request.doubt_cause)
        table = request.block_table
        before = self.pool.num_available
        removed = tuple(table)
        for block_id in reversed(table):
            self.pool.release(block_id, request, cause)
        request.block_table = []
        request.num_owned_slots = 0
        request.num_computed_tokens = request.num_committed_tokens = 0
        request.num_published_blocks = 0
        self._emit_table(request, 0, removed, (), cause)
        return self.pool.num_available - before

    def truncate(self, request: Request) -> None:
        """The request's ids have become fewer: what lies behind their end goes back.

        The KV of all tokens but the last stays, so that the last one's logits are computed next.
        """
        num_tokens = request.num_tokens
        kept = min(self.num_blocks_for(num_tokens), len(request.block_table))
        self.withdraw(request)
        if request.chain is not None:
            request.chain.cut(num_tokens // self.block_size)
        request.twin_hash = None
        request.num_owned_slots = 0
        request.num_computed_tokens = min(request.num_computed_tokens, num_tokens - 1)
        computed = min(request.num_committed_tokens, num_tokens - 1)
        request.num_committed_tokens = computed
        num_full = computed // self.block_size
        request.num_published_blocks = min(request.num_published_blocks, num_full)
        dropped = request.block_table[kept:]
        for block_id in reversed(dropped):
            self.pool.release(block_id, request, "truncate")
        if dropped:
            self._set_table(request, kept, [], "truncate")

    def restart(self, root: bytes, *, prefix_caching: bool) -> None:
        """From now on hashes begin at another root; nobody may hold blocks or wait for a twin."""
        self._prefixes.restart(root, prefix_caching)
        self.pool.drop_cached("restart")

    def disown(self, request: Request) -> None:
        """The request holds nothing any more; what became of its blocks is settled elsewhere."""
        removed = tuple(request.block_table)
        request.block_table = []
        request.num_owned_slots = 0
        request.num_computed_tokens = request.num_committed_tokens = 0
        request.num_published_blocks = 0
        self._emit_table(request, 0, removed, (), "reset")

    def reset(self) -> None:
        """All blocks are free and nobody computes anything; every request has been disowned."""
        self._prefixes.reset()
        self.pool.reset()

    def withdraw(self, request: Request) -> None:
        """The request computes no further for now.

        Twins that wait for its blocks do it themselves.
        """
        self._prefixes.withdraw(request)

    def renew_promise(self, request: Request) -> None:
        """A paused request goes on: twins may wait for it again."""
        self._prefixes.promise(request)

    # --- inside ---

    def _forget_own(self, request: Request, cause: str) -> None:
        for block_id in request.block_table:
            if self.pool.ref_count(block_id) == 1 and self.pool.hash_of(block_id) is not None:
                self.pool.forget(block_id, cause, request)

    def _must_copy(self, request: Request) -> bool:
        """Whether the block of the next token is shared, or published: neither may be written."""
        index = request.num_computed_tokens // self.block_size
        if index >= len(request.block_table):
            return False
        block_id = request.block_table[index]
        return self.pool.ref_count(block_id) > 1 or self.pool.hash_of(block_id) is not None

    def _set_table(self, request: Request, start: int, added: list[int], cause: str) -> None:
        removed = tuple(request.block_table[start:])
        request.block_table[start:] = added
        self._emit_table(request, start, removed, tuple(added), cause)

    def _emit_table(
        self,
        request: Request,
        start: int,
        removed: tuple[int, ...],
        added: tuple[int, ...],
        cause: str,
    ) -> None:
        log = self.pool.log
        if log.enabled and (removed or added):
            log.append(
                TableChanged(
                    seq=log.next_seq(),
                    step=log.step,
                    cause=cause,
                    request_id=request.request_id,
                    conversation_id=request.conversation_id,
                    start=start,
                    removed=removed,
                    added=added,
                )
            )
