"""Attention of several consecutive tokens of one sequence over its paged keys and values (Triton).

Keys and values are always read from the pages, so a chunk with a cached prefix takes the same path
as one without. The query heads of one KV head are rows of one tile, as in ``paged_decode``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.checks import check_paged
from kernels.device_guard import on_device_of
from kernels.launch import next_power_of_2, prefill_launch

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _paged_prefill_kernel(
    query_ptr,  # [tokens, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # [blocks]
    out_ptr,  # [tokens, heads, head_dim], contiguous
    scale,
    start,
    num_tokens,
    query_stride_token,
    query_stride_head,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program = (rows, KV head); row = (token, query head of the KV head)."""
    kv_head = tl.program_id(1)
    pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = pair // GROUP
    head = kv_head * GROUP + pair % GROUP
    position = start + token
    dim = tl.arange(0, DIM_POW2)
    in_dim = dim < HEAD_DIM
    mask = (token < num_tokens)[:, None] & in_dim[None, :]
    q = tl.load(
        query_ptr
        + token.to(tl.int64)[:, None] * query_stride_token
        + head[:, None] * query_stride_head
        + dim[None, :],
        mask=mask,
        other=0.0,
    )
    if UPCAST:
        q = q.to(tl.float32)

    first_token = tl.program_id(0) * ROWS // GROUP
    last_token = tl.minimum((tl.program_id(0) * ROWS + ROWS - 1) // GROUP, num_tokens - 1)
    # Keys up to the first row's own are seen by every row: whole tiles of them need no mask.
    plain = (start + first_token + 1) // TILE
    tiles = tl.cdiv(start + last_token + 1, TILE)
    context = start + num_tokens

    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_POW2], tl.float32)
    step = tl.arange(0, TILE)
    for tile in range(0, tiles):
        place_in_context = tile * TILE + step
        known = place_in_context < context
        block = tl.load(table_ptr + place_in_context // BLOCK_SIZE, mask=known, other=0)
        slot = block.to(tl.int64) * BLOCK_SIZE + place_in_context % BLOCK_SIZE
        place = (slot * NUM_KV_HEADS + kv_head) * HEAD_DIM
        inside = known[:, None] & in_dim[None, :]
        k = tl.load(k_cache_ptr + place[:, None] + dim[None, :], mask=inside, other=0.0)
        v = tl.load(v_cache_ptr + place[:, None] + dim[None, :], mask=inside, other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * _LOG2_E)
        if tile >= plain:
            seen = place_in_context[None, :] <= position[:, None]
            score = tl.where(seen, score, float("-inf"))
        # The first tile holds position 0, which every row sees: the maximum is finite from there.
        higher = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        best = higher

    result = acc / total[:, None]
    place = (token.to(tl.int64) * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
    tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=mask)


def paged_prefill(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    start: int,
    scale: float,
    *,
    upcast: bool = False,
) -> Tensor:
    """Causal attention of a chunk over everything up to each token, the chunk's own KV included.

    Args:
        query: ``[tokens, heads, head_dim]``, positions ``start ... start + tokens - 1``.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise;
            the chunk's own keys and values are already stored.
        block_table: ``[blocks]`` integer ids; entries past the chunk's last block are not read.
        start: position of the first query; what lies before it was computed earlier.
        scale: factor on the scores.
        upcast: multiply in float32 (the interpreter cannot multiply bfloat16).

    Returns:
        ``[tokens, heads, head_dim]``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    num_tokens, num_heads, head_dim = query.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    check_paged(query, k_cache, v_cache)
    if block_table.shape[0] * block_size < start + num_tokens:
        raise ValueError(
            f"{block_table.shape[0]} blocks of {block_size} do not hold {start + num_tokens} tokens"
        )
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=query.dtype, device=query.device)
    if num_tokens == 0:
        return out
    group = num_heads // num_kv_heads
    launch = prefill_launch(num_tokens, group, head_dim)
    grid = (triton.cdiv(num_tokens * group, launch.rows), num_kv_heads)
    with on_device_of(query):
        _paged_prefill_kernel[grid](
            query,
            k_cache,
            v_cache,
            block_table,
            out,
            scale,
            start,
            num_tokens,
            query.stride(0),
            query.stride(1),
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=group,
            HEAD_DIM=head_dim,
            DIM_POW2=next_power_of_2(head_dim),
            BLOCK_SIZE=block_size,
            ROWS=launch.rows,
            TILE=launch.tile,
            UPCAST=upcast,
            PRECISION="ieee",
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    return out
