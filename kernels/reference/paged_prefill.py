"""Attention of several consecutive tokens of one sequence over its paged keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.reference.gather_rows import gather_rows
from kernels.reference.store_kv import cache_rows


@dataclass(frozen=True, slots=True)
class PrefillGather:
    """Where one chunk's context lies and what each token sees; the same for every layer of a step.

    ``slots``: ``[context]`` int64, of what any token of the chunk sees. ``mask``: ``[tokens,
    context]``, 0 or −inf; None for a chunk that sees itself only, whose mask is plainly causal.
    """

    slots: Tensor
    mask: Tensor | None


def prefill_gather(
    block_table: Tensor,
    start: int,
    num_tokens: int,
    block_size: int,
    dtype: torch.dtype,
    window: int | None = None,
) -> PrefillGather:
    """Lays out one chunk's gather.

    Args:
        block_table: ``[blocks]`` integer ids; entries past the chunk's last block are not read.
        start: position of the chunk's first token.
        num_tokens: tokens of the chunk.
        block_size: tokens a block.
        dtype: of the mask, the queries' own.
        window: a query sees the last so many tokens, its own included; None for all.
    """
    end = start + num_tokens
    first = 0 if window is None else max(start + 1 - window, 0)
    place = torch.arange(first, end, device=block_table.device)
    slots = block_table.long()[place // block_size] * block_size + place % block_size
    cut = window is not None and window < end
    if first == start and not cut:
        return PrefillGather(slots, None)
    own = place[start - first :, None]
    unseen = place > own
    if window is not None and cut:
        unseen |= place <= own - window
    mask = torch.zeros((num_tokens, end - first), dtype=dtype, device=block_table.device)
    return PrefillGather(slots, mask.masked_fill_(unseen, float("-inf")))


def prefill_attend(
    query: Tensor, k_rows: Tensor, v_rows: Tensor, gather: PrefillGather, scale: float
) -> Tensor:
    """``paged_prefill`` with the gather laid out beforehand; see ``decode_attend``."""
    _, num_heads, head_dim = query.shape
    num_kv_heads = k_rows.shape[1] // head_dim
    context = (-1, num_kv_heads, head_dim)
    key = gather_rows(k_rows, gather.slots, "keys").view(context).transpose(0, 1)
    value = gather_rows(v_rows, gather.slots, "values").view(context).transpose(0, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key[None],
        value[None],
        attn_mask=gather.mask,
        is_causal=gather.mask is None,
        scale=scale,
        enable_gqa=num_heads != num_kv_heads,
    )
    return out[0].transpose(0, 1).flatten(1)


def paged_prefill(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    start: int,
    scale: float,
    *,
    window: int | None = None,
) -> Tensor:
    """Causal attention of a chunk over everything up to each token, the chunk's own KV included.

    Args:
        query: ``[tokens, heads, head_dim]``, positions ``start … start + tokens − 1``.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``; ``v_cache`` likewise; the chunk's
            own keys and values are already stored.
        block_table: ``[blocks]`` integer ids; entries past the chunk's last block are not read.
        start: position of the first query; what lies before it was computed earlier.
        scale: factor on the scores.
        window: a query sees the last so many tokens, its own included; None for all.

    Returns:
        ``[tokens, heads, head_dim]``.
    """
    block_size = k_cache.shape[1]
    gather = prefill_gather(block_table, start, query.shape[0], block_size, query.dtype, window)
    out = prefill_attend(query, cache_rows(k_cache), cache_rows(v_cache), gather, scale)
    return out.view(query.shape)
