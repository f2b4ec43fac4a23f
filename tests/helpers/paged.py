"""Random paged pools for kernel tests, poisoned where nothing may be read."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

NEVER_READ = 2**30


@dataclass(frozen=True)
class PagedPool:
    """``key[i]``, ``value[i]``: ``[length, kv_heads, head_dim]`` of sequence i, as dense
    tensors."""

    k_cache: Tensor
    v_cache: Tensor
    block_tables: Tensor
    lengths: list[int]
    key: list[Tensor]
    value: list[Tensor]


def paged_pool(
    lengths: list[int],
    *,
    block_size: int,
    num_kv_heads: int = 2,
    head_dim: int = 16,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    blocks: list[int] | None = None,
) -> PagedPool:
    """Sequences in shuffled physical blocks (or in ``blocks``, in that order).

    Every slot that no sequence owns is NaN; table entries past a sequence's last block are 2³⁰.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-length // block_size) for length in lengths]
    num_blocks = sum(counts) + 3
    if blocks is None:
        blocks = list(range(num_blocks))
        random.Random(seed).shuffle(blocks)
    num_blocks = max(num_blocks, *(block + 1 for block in blocks))
    shape = (num_blocks, block_size, num_kv_heads, head_dim)
    k_cache = torch.full(shape, float("nan"), dtype=dtype)
    v_cache = torch.full(shape, float("nan"), dtype=dtype)
    tables = torch.full((len(lengths), max(counts) + 1), NEVER_READ, dtype=torch.int64)
    free = iter(blocks)
    keys, values = [], []
    for index, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        table = torch.tensor([next(free) for _ in range(count)], dtype=torch.int64)
        tables[index, :count] = table
        size = (length, num_kv_heads, head_dim)
        key = torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
        value = torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
        place = torch.arange(length)
        k_cache[table[place // block_size], place % block_size] = key
        v_cache[table[place // block_size], place % block_size] = value
        keys.append(key)
        values.append(value)
    return PagedPool(k_cache, v_cache, tables, lengths, keys, values)


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: int,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Causal attention written out in float64.

    ``query`` ``[tokens, heads, head_dim]`` at positions from ``start``; ``key`` and ``value``
    ``[context, kv_heads, head_dim]``. Each query sees the last ``window`` tokens, its own
    included; None for all.
    """
    query, key, value = query.double(), key.double(), value.double()
    group = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(group, 1) for part in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    distance = start + torch.arange(len(query))[:, None] - torch.arange(len(key))
    unseen = distance < 0
    if window is not None:
        unseen |= distance >= window
    weights = scores.masked_fill(unseen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value)
