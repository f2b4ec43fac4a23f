"""Attention of one new token a sequence over its paged keys and values (Triton).

The context of a sequence is cut into splits that run in parallel; each keeps a running softmax
(Milakov and Gimelshein, 2018) and its log-sum-exp, and one combine joins them. With one split the
result is written directly. Base-2 exponentials inside, natural logarithms outside.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.checks import check_paged
from kernels.device_guard import on_device_of
from kernels.launch import decode_launch, next_power_of_2

_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _paged_decode_kernel(
    query_ptr,  # [batch, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # [batch, blocks]
    length_ptr,  # [batch]
    out_ptr,  # [batch, heads, head_dim], contiguous
    partial_ptr,  # [batch, heads, splits, head_dim] float32
    lse_ptr,  # [batch, heads, splits] float32, natural logarithms
    scale,
    query_stride_token,
    query_stride_head,
    table_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program = (sequence, KV head, split); rows = the query heads of the KV head."""
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(length_ptr + sequence).to(tl.int32)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_POW2)
    in_group = row < GROUP
    in_dim = dim < HEAD_DIM
    head = kv_head * GROUP + row
    mask = in_group[:, None] & in_dim[None, :]
    q = tl.load(
        query_ptr
        + sequence * query_stride_token
        + head[:, None] * query_stride_head
        + dim[None, :],
        mask=mask,
        other=0.0,
    )
    if UPCAST:
        q = q.to(tl.float32)

    # Splits are whole tiles, so that where a tile begins does not depend on how many there are.
    tiles = tl.cdiv(length, TILE)
    per_split = tl.cdiv(tiles, SPLITS)
    first = split * per_split
    last = tl.minimum(first + per_split, tiles)

    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_POW2], tl.float32)
    step = tl.arange(0, TILE)
    for tile in range(first, last):
        token = tile * TILE + step
        known = token < length
        block = tl.load(
            table_ptr + sequence * table_stride + token // BLOCK_SIZE, mask=known, other=0
        )
        slot = block.to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
        place = (slot * NUM_KV_HEADS + kv_head) * HEAD_DIM
        inside = known[:, None] & in_dim[None, :]
        # What a page holds behind the last token may be NaN: it is not read, not multiplied by 0.
        k = tl.load(k_cache_ptr + place[:, None] + dim[None, :], mask=inside, other=0.0)
        v = tl.load(v_cache_ptr + place[:, None] + dim[None, :], mask=inside, other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * _LOG2_E)
        score = tl.where(known[None, :], score, float("-inf"))
        # Every tile up to the last has a known token, so the maximum is finite from the first on.
        higher = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        best = higher

    # A split without tokens, or a padded row of length 0: finite output, log-sum-exp -inf.
    divisor = tl.where(total > 0.0, total, 1.0)
    result = acc / divisor[:, None]
    if SPLITS == 1:
        place = (sequence * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
        tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        cell = (sequence * NUM_HEADS + head) * SPLITS + split
        tl.store(partial_ptr + cell[:, None] * HEAD_DIM + dim[None, :], result, mask=mask)
        lse = tl.where(total > 0.0, (best + tl.log2(divisor)) * _LN_2, float("-inf"))
        tl.store(lse_ptr + cell, lse, mask=in_group)


@triton.jit
def _combine_kernel(
    partial_ptr,  # [rows, splits, head_dim] float32
    lse_ptr,  # [rows, splits] float32
    out_ptr,  # [rows, head_dim]
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Joins the splits of one (sequence, head): a mean weighted by exp(log-sum-exp)."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    dim = tl.arange(0, DIM_POW2)
    in_dim = dim < HEAD_DIM
    lse = tl.load(lse_ptr + row * SPLITS + split)
    best = tl.max(lse, 0)
    # All splits empty (a padded row): -inf minus -inf would be NaN.
    best = tl.where(best == float("-inf"), 0.0, best)
    weight = tl.exp2((lse - best) * _LOG2_E)
    total = tl.sum(weight, 0)
    partial = tl.load(
        partial_ptr + (row * SPLITS + split)[:, None] * HEAD_DIM + dim[None, :],
        mask=in_dim[None, :],
        other=0.0,
    )
    result = tl.sum(partial * weight[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + row * HEAD_DIM + dim, result.to(out_ptr.dtype.element_ty), mask=in_dim)


def paged_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    *,
    max_context: int | None = None,
    splits: int | None = None,
    upcast: bool = False,
) -> Tensor:
    """``softmax(scale * q k^T) v`` of each sequence's new token over its whole context.

    Args:
        query: ``[batch, heads, head_dim]``, head_dim contiguous.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; 0 for a padded row,
            whose output is 0.
        scale: factor on the scores.
        max_context: the longest of ``context_lens``, known to the host; else the tables' width.
        splits: parts of a context, a power of two; chosen by ``launch.decode_launch`` if None.
        upcast: multiply in float32 (the interpreter cannot multiply bfloat16).

    Returns:
        ``[batch, heads, head_dim]``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    batch, num_heads, head_dim = query.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    check_paged(query, k_cache, v_cache)
    if block_tables.shape[0] != batch or context_lens.shape != (batch,):
        raise ValueError(
            f"{block_tables.shape[0]} tables and {context_lens.shape[0]} lengths for {batch} rows"
        )
    out = torch.empty((batch, num_heads, head_dim), dtype=query.dtype, device=query.device)
    if batch == 0:
        return out
    longest = max_context or block_tables.shape[1] * block_size
    launch = decode_launch(batch, num_heads, num_kv_heads, head_dim, longest, query.device)
    cut = splits or launch.splits
    partial, lse = out, out
    if cut > 1:
        partial = out.new_empty((batch, num_heads, cut, head_dim), dtype=torch.float32)
        lse = out.new_empty((batch, num_heads, cut), dtype=torch.float32)
    dim_pow2 = next_power_of_2(head_dim)
    with on_device_of(query):
        _paged_decode_kernel[(batch, num_kv_heads, cut)](
            query,
            k_cache,
            v_cache,
            block_tables,
            context_lens,
            out,
            partial,
            lse,
            scale,
            query.stride(0),
            query.stride(1),
            block_tables.stride(0),
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            DIM_POW2=dim_pow2,
            BLOCK_SIZE=block_size,
            ROWS=launch.rows,
            TILE=launch.tile,
            SPLITS=cut,
            UPCAST=upcast,
            PRECISION="ieee",
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
        if cut > 1:
            _combine_kernel[(batch * num_heads,)](
                partial, lse, out, HEAD_DIM=head_dim, DIM_POW2=dim_pow2, SPLITS=cut, num_warps=1
            )
    return out
