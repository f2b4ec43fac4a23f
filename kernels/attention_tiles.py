"""The loop that attention over pages shares: a running softmax over tiles of paged keys (Triton).

Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; cut into parts that run
in parallel and are joined by their log-sum-exp, as in Flash-Decoding (Dao and others, 2023).
Exponentials and logarithms are base 2 throughout.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def first_blocks(table_ptr, first, lowest, length, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Block ids of a tile's tokens, which ``attend_tiles`` begins with."""
    token = first * TILE + tl.arange(0, TILE)
    known = (token >= lowest) & (token < length)
    return tl.load(table_ptr + token // BLOCK_SIZE, mask=known, other=0)


@triton.jit
def attend_tiles(
    q,  # [ROWS, DIM_POW2]
    next_block,  # of first_blocks
    k_head_ptr,  # the KV head's first element in k_cache [num_blocks, block_size, kv_heads, dim]
    v_head_ptr,
    table_ptr,  # the sequence's row of block ids
    first,  # tiles first ... last - 1
    last,
    lowest,  # tokens lowest ... length - 1 are attended to
    length,
    scale,
    SLOT_STRIDE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Unnormalised sum ``[ROWS, DIM_POW2]``, maximum and divisor ``[ROWS]`` over some tiles.

    Each tile must hold a token that is attended to; without tiles the divisor is 0.
    """
    dim = tl.arange(0, DIM_POW2)
    in_dim = dim < HEAD_DIM
    step = tl.arange(0, TILE)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_POW2], tl.float32)
    end = tl.minimum(length, last * TILE)
    for tile in range(first, last):
        token = tile * TILE + step
        known = (token >= lowest) & (token < length)
        block = next_block
        # The next tile's block ids are on their way while this tile's keys are.
        later = token + TILE
        next_block = tl.load(table_ptr + later // BLOCK_SIZE, mask=later < end, other=0)
        # 64 bits before the multiplication: a large pool has more than 2**31 elements.
        place = (block.to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE) * SLOT_STRIDE
        inside = known[:, None] & in_dim[None, :]
        # What a page holds behind the last token may be NaN: it is not read, not multiplied by 0.
        k = tl.load(k_head_ptr + place[:, None] + dim[None, :], mask=inside, other=0.0)
        v = tl.load(v_head_ptr + place[:, None] + dim[None, :], mask=inside, other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * _LOG2_E)
        score = tl.where(known[None, :], score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        best = higher
    return acc, best, total


@triton.jit
def join_parts(
    partial_ptr,  # [rows, head_dim] float32
    lse_ptr,  # [rows] float32, base 2
    first,  # row of the first part's first head
    parts,
    stride,  # rows from one part to the next
    shared_first,  # those of a shared beginning, which come before; unused without
    shared_parts,
    shared_stride,
    head,  # [HEADS], rows from the first head's
    in_group,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    CHUNK: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Sum, maximum and divisor over the parts of some heads, always in the same order.

    Both kinds of parts are asked for at once: one after the other would be two latencies.
    """
    dim = tl.arange(0, DIM_POW2)
    in_dim = dim < HEAD_DIM
    step = tl.arange(0, CHUNK)
    best = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, DIM_POW2], tl.float32)
    count = parts
    if SHARED:
        count += shared_parts
    for start in range(0, count, CHUNK):
        part = start + step
        valid = (part < count)[:, None] & in_group[None, :]
        if SHARED:
            in_shared = part < shared_parts
            # Of one tensor, not of two: a choice of pointers would be loaded word by word.
            row = tl.where(
                in_shared,
                shared_first + part.to(tl.int64) * shared_stride,
                first + (part - shared_parts).to(tl.int64) * stride,
            )
        else:
            row = first + part.to(tl.int64) * stride
        cell = row[:, None] + head[None, :]
        # Past the first-level cache, where lines from before another program wrote may lie.
        lse = tl.load(lse_ptr + cell, mask=valid, other=float("-inf"), cache_modifier=".cg")
        partial = tl.load(
            partial_ptr + cell[:, :, None] * HEAD_DIM + dim[None, None, :],
            mask=valid[:, :, None] & in_dim[None, None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        higher = tl.maximum(best, tl.max(lse, 0))
        # All parts empty (a padded row): -inf minus -inf would be NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(lse - base[None, :])
        shrink = tl.exp2(best - base)
        total = total * shrink + tl.sum(weight, 0)
        acc = acc * shrink[:, None] + tl.sum(partial * weight[:, :, None], 0)
        best = higher
    return acc, best, total


@triton.jit
def normalise(acc, best, total):
    """Result and log-sum-exp of a running softmax; 0 and -inf where there was nothing."""
    divisor = tl.where(total > 0.0, total, 1.0)
    lse = tl.where(total > 0.0, best + tl.log2(divisor), float("-inf"))
    return acc / divisor[:, None], lse
