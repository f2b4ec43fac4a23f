"""Paged pools to test kernels with: shuffled blocks, and poison wherever nothing may be read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

JUNK_BLOCK = 2**30


@dataclass
class PagedData:
    """A pool that holds some sequences; everything else in it is NaN or infinite.

    ``keys[i]``, ``values[i]``: ``[length, kv_heads, head_dim]`` in float64.
    """

    k_cache: Tensor
    v_cache: Tensor
    tables: Tensor
    lengths: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def make_paged(
    lengths: list[int],
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
) -> PagedData:
    """Random keys and values in randomly permuted blocks; table entries past the end are junk."""
    generator = torch.Generator().manual_seed(seed)
    need = [-(-length // block_size) for length in lengths]
    num_blocks = sum(need) + 3
    shape = (num_blocks, block_size, kv_heads, head_dim)
    k_cache = torch.full(shape, float("nan"), dtype=dtype)
    v_cache = torch.full(shape, float("nan"), dtype=dtype)
    v_cache[::2] = float("inf")
    order = torch.randperm(num_blocks, generator=generator).tolist()
    tables = torch.full((len(lengths), max(need) + 2), JUNK_BLOCK, dtype=torch.int64)
    keys, values = [], []
    for i, length in enumerate(lengths):
        blocks = [order.pop() for _ in range(need[i])]
        tables[i, : need[i]] = torch.tensor(blocks, dtype=torch.int64)
        key = torch.randn((length, kv_heads, head_dim), generator=generator).to(dtype)
        value = torch.randn((length, kv_heads, head_dim), generator=generator).to(dtype)
        for position in range(length):
            place = (blocks[position // block_size], position % block_size)
            k_cache[place], v_cache[place] = key[position], value[position]
        keys.append(key.double())
        values.append(value.double())
    return PagedData(
        k_cache.to(device),
        v_cache.to(device),
        tables.to(device),
        torch.tensor(lengths, device=device),
        keys,
        values,
    )


def dense_attention(query: Tensor, key: Tensor, value: Tensor, scale: float, start: int) -> Tensor:
    """Float64 oracle: ``query`` ``[tokens, heads, head_dim]`` at positions from ``start`` on."""
    tokens, heads, _ = query.shape
    group = heads // key.shape[1]
    k = key.repeat_interleave(group, 1)
    v = value.repeat_interleave(group, 1)
    score = torch.einsum("thd,chd->htc", query.double(), k) * scale
    position = torch.arange(start, start + tokens)[:, None]
    hidden = torch.arange(k.shape[0])[None, :] > position
    weight = score.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("htc,chd->thd", weight, v)
