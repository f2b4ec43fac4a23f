"""Which keys and values of a conversation the pool holds just now. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.errors import UnknownIdError
from engine.core import EngineCore


@dataclass(frozen=True, slots=True)
class PresentKV:
    """Tokens whose KV the pool holds, in the blocks of ``block_table``.

    ``running``: a request holds them; else they are cached.
    """

    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    running: bool


def present_kv(core: EngineCore, conversation_id: str, token_ids: Sequence[int] = ()) -> PresentKV:
    """The conversation's request that has the most computed, else what is cached of it.

    That is the longest known prefix of ``token_ids``; without one, the longest chain of blocks that
    ends in one that the conversation used last (the pool keeps their token ids).

    Raises:
        UnknownIdError: the pool holds nothing of such a conversation.
    """
    running = [
        request
        for request in core.requests.values()
        if request.conversation_id == conversation_id and request.num_committed_tokens
    ]
    if running:
        request = max(running, key=lambda each: each.num_committed_tokens)
        count = request.num_committed_tokens
        table = request.block_table[: core.manager.num_blocks_for(count)]
        return PresentKV(tuple(request.token_ids[:count]), tuple(table), running=True)
    chain = core.manager.known_prefix(token_ids) or _cached_chain(core, conversation_id)
    if not chain:
        raise UnknownIdError(
            f"The cache holds nothing of the conversation {conversation_id}.",
            action="Send a message in it first.",
            conversation_id=conversation_id,
        )
    tokens = [token for block_id in chain for token in core.pool.tokens_of(block_id)]
    return PresentKV(tuple(tokens), tuple(chain), running=False)


def _cached_chain(core: EngineCore, conversation_id: str) -> list[int]:
    """Blocks from the first to the last of the longest chain that ends in one of its own."""
    pool = core.pool
    by_hash: dict[bytes, int] = {}
    owned: list[int] = []
    for block_id in range(pool.num_blocks):
        block_hash = pool.hash_of(block_id)
        if block_hash is not None:
            by_hash[block_hash] = block_id
            if pool.view(block_id).owner == conversation_id:
                owned.append(block_id)
    inner = {pool.parent_of(block_id) for block_id in owned}
    leaves = [block_id for block_id in owned if pool.hash_of(block_id) not in inner]
    chains = [_chain_to(core, leaf, by_hash) for leaf in leaves]
    return max(chains, key=len, default=[])


def _chain_to(core: EngineCore, leaf: int, by_hash: dict[bytes, int]) -> list[int]:
    """The blocks up to ``leaf``; empty if one before it has been evicted."""
    chain = [leaf]
    while (parent := core.pool.parent_of(chain[-1])) != core.limits.root:
        before = by_hash.get(parent) if parent is not None else None
        if before is None:
            return []
        chain.append(before)
    return chain[::-1]
