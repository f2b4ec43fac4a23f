"""Writing keys and values into the paged pool."""

from __future__ import annotations

from torch import Tensor


def cache_rows(cache: Tensor) -> Tensor:
    """The pool as one row a slot: ``[num_blocks · block_size, kv_heads · head_dim]``.

    A view: raises where the pool's memory would have to be copied, because a write to a copy is
    lost.
    """
    num_blocks, block_size, num_kv_heads, head_dim = cache.shape
    return cache.view(num_blocks * block_size, num_kv_heads * head_dim)


def store_kv(
    key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor
) -> None:
    """Writes each token's key and value to its slot; nothing else in the pool changes.

    Args:
        key: ``[tokens, kv_heads, head_dim]``; ``value`` likewise.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``; ``v_cache`` likewise.
        slot_mapping: ``[tokens]`` integers, ``block_id · block_size + offset``; −1 skips the token.
    """
    keep = slot_mapping >= 0
    # An index of −1 would mean the last slot of the pool.
    slots = slot_mapping[keep].long()
    cache_rows(k_cache).index_copy_(0, slots, key[keep].flatten(1))
    cache_rows(v_cache).index_copy_(0, slots, value[keep].flatten(1))
