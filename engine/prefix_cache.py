"""The prefix cache: which blocks hold a prompt's beginning already, and which are on their way.

A full block's hash leads to it once its KV has been computed. Until then the request that computes
it has promised it, so that a twin (a request with the same beginning) waits for it. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.block_hash import HashChain
from engine.block_pool import BlockPool
from engine.request import Request

_HASHED_AHEAD = 16


class PrefixCache:
    """Hashes over one pool's blocks. ``root``: see ``block_hash.root_hash``.

    ``enabled`` False never matches, never promises and never publishes.
    """

    def __init__(self, pool: BlockPool, root: bytes, enabled: bool) -> None:
        self._pool = pool
        self._block_size = pool.block_size
        self._root = root
        self._enabled = enabled
        self._computing: dict[bytes, Request] = {}
        self._promised: dict[Request, list[bytes]] = {}

    def restart(self, root: bytes, enabled: bool) -> None:
        """From now on hashes begin at another root; nobody may have promised a block."""
        assert not self._promised, "somebody is still computing"
        self._root = root
        self._enabled = enabled

    def reset(self) -> None:
        """Nobody computes anything any more."""
        self._computing.clear()
        self._promised.clear()

    # --- what is there ---

    def known(self, token_ids: Sequence[int]) -> list[int]:
        """Blocks that hold the KV of these tokens' longest prefix of full blocks."""
        if not self._enabled:
            return []
        chain = HashChain(self._root, self._block_size)
        return self._walk(chain, token_ids, len(token_ids) // self._block_size)

    def match(self, request: Request) -> list[int]:
        """Blocks of a request's longest known prefix; one token at least is left to compute."""
        if not self._enabled:
            return []
        limit = (request.num_tokens - 1) // self._block_size
        return self._walk(self._chain(request), request.token_ids, limit)

    def publish(self, request: Request, num_full: int) -> None:
        """The request's first ``num_full`` blocks are full and computed: others may find them."""
        if not self._enabled:
            return
        chain = self._chain(request)
        hashes = chain.upto(request.token_ids, num_full)
        size = self._block_size
        for index in range(request.num_published_blocks, num_full):
            tokens = request.token_ids[index * size : (index + 1) * size]
            self._pool.publish(
                request.block_table[index],
                hashes[index],
                chain.parent_of(index),
                tokens,
                request,
            )
            if self._computing.get(hashes[index]) is request:
                del self._computing[hashes[index]]
        request.num_published_blocks = max(request.num_published_blocks, num_full)

    # --- what is on its way ---

    def twin_of(self, request: Request, num_hits: int) -> Request | None:
        """Who is computing the block after a request's hits; its hash becomes ``twin_hash``."""
        request.twin_hash = None
        if not self._enabled or num_hits >= (request.num_tokens - 1) // self._block_size:
            return None
        next_hash = self._chain(request).upto(request.token_ids, num_hits + 1)[num_hits]
        twin = self._computing.get(next_hash)
        if twin is not None:
            request.twin_hash = next_hash
        return twin

    def twin_still_computing(self, request: Request) -> bool:
        """O(1): the block that ``twin_of`` found a twin for is not there yet, and its twin goes
        on.
        """
        return request.twin_hash is not None and request.twin_hash in self._computing

    def promise(self, request: Request) -> None:
        """The request computes its full blocks: twins may wait for them."""
        if not self._enabled:
            return
        num_full = request.num_tokens // self._block_size
        hashes = self._chain(request).upto(request.token_ids, num_full)
        promised = hashes[request.num_published_blocks : num_full]
        for block_hash in promised:
            self._computing.setdefault(block_hash, request)
        self._promised[request] = promised

    def withdraw(self, request: Request) -> None:
        """The request computes no further for now: twins that wait for its blocks do it
        themselves.
        """
        for block_hash in self._promised.pop(request, ()):
            if self._computing.get(block_hash) is request:
                del self._computing[block_hash]

    # --- inside ---

    def _chain(self, request: Request) -> HashChain:
        if request.chain is None:
            request.chain = HashChain(self._root, self._block_size)
        return request.chain

    def _walk(self, chain: HashChain, token_ids: Sequence[int], limit: int) -> list[int]:
        size, lookup = self._block_size, self._pool.lookup
        hits: list[int] = []
        parent = self._root
        while len(hits) < limit:
            # Some blocks ahead at a time: most prompts of which nothing is known end here.
            hashes = chain.upto(token_ids, min(limit, len(hits) + _HASHED_AHEAD))
            for block_hash in hashes[len(hits) : len(hits) + _HASHED_AHEAD][: limit - len(hits)]:
                start = len(hits) * size
                block_id = lookup(block_hash, parent, token_ids[start : start + size])
                if block_id is None:
                    return hits
                hits.append(block_id)
                parent = block_hash
        return hits
