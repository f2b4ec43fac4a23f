"""Attention of one new token a sequence over its paged keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.reference.store_kv import cache_rows


@dataclass(frozen=True, slots=True)
class DecodeGather:
    """Where the context of each decoding sequence lies; the same for every layer of a step.

    ``slots``: ``[batch · width]`` int64. Places past a sequence's end repeat its first slot, so
    that no slot is read that the sequence does not own. ``mask``: ``[batch, 1, 1, width]``, 0 or
    −inf, None where all sequences are equally long.
    """

    slots: Tensor
    mask: Tensor | None


def decode_gather(
    block_tables: Tensor, context_lens: Tensor, block_size: int, dtype: torch.dtype
) -> DecodeGather:
    """Lays out one step's gather.

    Args:
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; at least 1.
        block_size: tokens a block.
        dtype: of the mask, the queries' own.
    """
    width = int(context_lens.max())
    place = torch.arange(width, device=block_tables.device)
    inside = place < context_lens[:, None]
    block = torch.where(inside, place // block_size, 0)
    offset = torch.where(inside, place % block_size, 0)
    slots = torch.gather(block_tables.long(), 1, block) * block_size + offset
    mask = None
    if not bool(inside.all()):
        mask = torch.zeros(inside.shape, dtype=dtype, device=inside.device)
        mask = mask.masked_fill_(~inside, float("-inf"))[:, None, None, :]
    return DecodeGather(slots.flatten(), mask)


def decode_attend(
    query: Tensor, k_rows: Tensor, v_rows: Tensor, gather: DecodeGather, scale: float
) -> Tensor:
    """``paged_decode`` with the gather laid out beforehand.

    The query heads of one KV head become the rows of one small attention, so that keys and values
    are never repeated.

    Args:
        query: ``[batch, heads, head_dim]``.
        k_rows: ``cache_rows`` of a layer's keys; ``v_rows`` of its values.
        gather: from ``decode_gather``.
        scale: factor on the scores.

    Returns:
        ``[batch, heads, head_dim]``.
    """
    batch, num_heads, head_dim = query.shape
    num_kv_heads = k_rows.shape[1] // head_dim
    context = (batch, -1, num_kv_heads, head_dim)
    key = k_rows.index_select(0, gather.slots).view(context).transpose(1, 2)
    value = v_rows.index_select(0, gather.slots).view(context).transpose(1, 2)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.view(batch, num_kv_heads, num_heads // num_kv_heads, head_dim),
        key,
        value,
        attn_mask=gather.mask,
        scale=scale,
    )
    return out.reshape(batch, num_heads, head_dim)


def paged_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    """``softmax(scale · q kᵀ) v`` of each sequence's new token over its whole context.

    Args:
        query: ``[batch, heads, head_dim]``.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``; ``v_cache`` likewise.
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; at least 1.
        scale: factor on the scores.

    Returns:
        ``[batch, heads, head_dim]``.
    """
    gather = decode_gather(block_tables, context_lens, k_cache.shape[1], query.dtype)
    return decode_attend(query, cache_rows(k_cache), cache_rows(v_cache), gather, scale)
