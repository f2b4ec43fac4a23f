"""Checks of shapes and layouts that several operations share."""

from __future__ import annotations

from torch import Tensor


def check_paged(query: Tensor, k_cache: Tensor, v_cache: Tensor) -> None:
    """Refuses queries and a pool that attention over pages cannot work on.

    Args:
        query: ``[rows, heads, head_dim]``, head_dim contiguous.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.

    Raises:
        ValueError: they do not fit; the message has the shapes.
    """
    _, num_heads, head_dim = query.shape
    _, _, num_kv_heads, cache_dim = k_cache.shape
    if cache_dim != head_dim or v_cache.shape != k_cache.shape or num_heads % num_kv_heads:
        raise ValueError(f"query {tuple(query.shape)} and cache {tuple(k_cache.shape)} do not fit")
    if not (k_cache.is_contiguous() and v_cache.is_contiguous()) or query.stride(2) != 1:
        raise ValueError("the caches must be contiguous, and so must the query's last dimension")
