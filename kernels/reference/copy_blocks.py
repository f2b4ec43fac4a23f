"""Copying whole blocks inside the pool (copy-on-write)."""

from __future__ import annotations

from torch import Tensor


def copy_blocks(k_cache: Tensor, v_cache: Tensor, source: Tensor, destination: Tensor) -> None:
    """Copies block ``source[i]`` over block ``destination[i]``; all sources are read first.

    Args:
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``; ``v_cache`` likewise.
        source: ``[pairs]`` int64 block ids; ``destination`` likewise, without repetition.
    """
    for cache in (k_cache, v_cache):
        cache.index_copy_(0, destination, cache.index_select(0, source))
