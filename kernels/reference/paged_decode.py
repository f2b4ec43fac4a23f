"""Attention of one new token a sequence over its paged keys and values."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.reference.gather_rows import kept_rows
from kernels.reference.store_kv import cache_rows

_WORTH_SPLITTING = 1024
"""Padded places, in tokens, from which a second group costs less than the padding."""


class _Gathered:
    """Where the keys and values of a group are gathered, layer after layer.

    ``key``, ``value``: ``[group, kv_heads, width, head_dim]``, views of what is gathered.
    ``query_shape``: the query heads of one KV head are the rows of one small attention, so that
    keys and values are never repeated.
    """

    def __init__(self, query: Tensor, rows: Tensor, slots: Tensor) -> None:
        batch, num_heads, head_dim = query.shape
        num_kv_heads = rows.shape[1] // head_dim
        self._keys = kept_rows(rows, len(slots), "keys")
        self._values = kept_rows(rows, len(slots), "values")
        context = (batch, -1, num_kv_heads, head_dim)
        self.key = self._keys.view(context).transpose(1, 2)
        self.value = self._values.view(context).transpose(1, 2)
        self.query_shape = (batch, num_kv_heads, num_heads // num_kv_heads, head_dim)

    def gather(self, k_rows: Tensor, v_rows: Tensor, slots: Tensor) -> None:
        torch.index_select(k_rows, 0, slots, out=self._keys)
        torch.index_select(v_rows, 0, slots, out=self._values)


@dataclass(slots=True)
class DecodeGroup:
    """Sequences of similar length, attended to together.

    ``rows``: ``[group]`` int64, their places in the batch; None for the whole batch in order.
    ``slots``: ``[group · width]`` int64. Places past a sequence's end repeat its first slot, so
    that no slot is read that the sequence does not own. ``mask``: ``[group, 1, 1, width]``, 0 or
    −inf, None where all are equally long. ``gathered``: made by the step's first layer for all.
    """

    rows: Tensor | None
    slots: Tensor
    mask: Tensor | None
    gathered: _Gathered | None = field(default=None, init=False)


DecodeGather = tuple[DecodeGroup, ...]
"""Where the context of each decoding sequence lies; the same for every layer of a step."""


def decode_gather(
    block_tables: Tensor,
    context_lens: Tensor,
    block_size: int,
    dtype: torch.dtype,
    window: int | None = None,
) -> DecodeGather:
    """Lays out one step's gather.

    Args:
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; at least 1.
        block_size: tokens a block.
        dtype: of the mask, the queries' own.
        window: a query sees the last so many tokens, its own included; None for all.
    """
    lengths: list[int] = context_lens.tolist()
    longest = max(lengths)
    tables = block_tables[:, : -(-longest // block_size)].long()
    first = None
    if window is not None and window < longest:
        first = (context_lens - window).clamp_(min=0)
        lengths = [min(length, window) for length in lengths]
        longest = window
    if longest * len(lengths) - sum(lengths) <= _WORTH_SPLITTING:
        return (_lay_group(None, tables, lengths, first, block_size, dtype),)
    groups = []
    for places in _similar(lengths):
        rows = torch.tensor(places, device=tables.device)
        begins = None if first is None else first[rows]
        inside = [lengths[place] for place in places]
        groups.append(_lay_group(rows, tables[rows], inside, begins, block_size, dtype))
    return tuple(groups)


def _similar(lengths: list[int]) -> list[list[int]]:
    """Places of the lengths in groups, in each of which none is below half of the longest."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    groups = [[order[0]]]
    for place in order[1:]:
        if 2 * lengths[place] < lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(place)
    return groups


def _lay_group(
    rows: Tensor | None,
    tables: Tensor,
    lengths: list[int],
    first: Tensor | None,
    block_size: int,
    dtype: torch.dtype,
) -> DecodeGroup:
    """``lengths`` tokens of each sequence, from position ``first`` on, 0 if that is None."""
    device, longest = tables.device, max(lengths)
    slots = tables.unsqueeze(-1) * block_size + torch.arange(block_size, device=device)
    slots = slots.flatten(1)
    even = min(lengths) == longest
    if even and first is None:
        return DecodeGroup(rows, slots[:, :longest].flatten(), None)
    place = torch.arange(longest, device=device)
    inside = place < torch.tensor(lengths, device=device)[:, None]
    if first is not None:
        place = place + first[:, None]
    slots = torch.gather(slots, 1, torch.where(inside, place, 0))
    mask = None
    if not even:
        mask = torch.zeros(inside.shape, dtype=dtype, device=device)
        mask = mask.masked_fill_(~inside, float("-inf"))[:, None, None, :]
    return DecodeGroup(rows, slots.flatten(), mask)


def decode_attend(
    query: Tensor, k_rows: Tensor, v_rows: Tensor, gather: DecodeGather, scale: float
) -> Tensor:
    """``paged_decode`` with the gather laid out beforehand.

    Args:
        query: ``[batch, heads, head_dim]``.
        k_rows: ``cache_rows`` of a layer's keys; ``v_rows`` of its values.
        gather: from ``decode_gather``.
        scale: factor on the scores.

    Returns:
        ``[batch, heads · head_dim]``.
    """
    if len(gather) == 1:
        return _attend_group(query, k_rows, v_rows, gather[0], scale)
    out = torch.empty_like(query).flatten(1)
    for group in gather:
        assert group.rows is not None
        part = _attend_group(query[group.rows], k_rows, v_rows, group, scale)
        out.index_copy_(0, group.rows, part)
    return out


def _attend_group(
    query: Tensor, k_rows: Tensor, v_rows: Tensor, group: DecodeGroup, scale: float
) -> Tensor:
    gathered = group.gathered
    if gathered is None:
        gathered = group.gathered = _Gathered(query, k_rows, group.slots)
    gathered.gather(k_rows, v_rows, group.slots)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(gathered.query_shape),
        gathered.key,
        gathered.value,
        attn_mask=group.mask,
        scale=scale,
    )
    return out.reshape(query.shape[0], -1)


def paged_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    *,
    window: int | None = None,
) -> Tensor:
    """``softmax(scale · q kᵀ) v`` of each sequence's new token over its whole context.

    Args:
        query: ``[batch, heads, head_dim]``.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``; ``v_cache`` likewise.
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; at least 1.
        scale: factor on the scores.
        window: a query sees the last so many tokens, its own included; None for all.

    Returns:
        ``[batch, heads, head_dim]``.
    """
    gather = decode_gather(block_tables, context_lens, k_cache.shape[1], query.dtype, window)
    out = decode_attend(query, cache_rows(k_cache), cache_rows(v_cache), gather, scale)
    return out.view(query.shape)
