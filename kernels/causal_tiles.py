"""The loop of prefill attention: a running softmax over tiles of paged keys, each row up to its own
position (Triton).

Apart from ``attention_tiles``, whose rows all see the same keys: the compiler makes other code of a
loop that serves both.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend_causal(
    q,  # [ROWS, DIM_POW2]
    best,
    total,
    acc,
    k_head_ptr,  # the KV head's first element in k_cache
    v_head_ptr,
    table_ptr,
    position,  # [ROWS]
    lowest,  # keys lowest ... context - 1 are seen by some row
    context,
    first,  # tiles first ... last - 1
    last,
    scale,
    SLOT_STRIDE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    MASKED: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Goes on with a running softmax; not ``MASKED``: every row sees every key of the tiles."""
    dim = tl.arange(0, DIM_POW2)
    step = tl.arange(0, TILE)
    end = tl.minimum(context, last * TILE)
    key = first * TILE + step
    next_block = tl.load(table_ptr + key // BLOCK_SIZE, mask=(key >= lowest) & (key < end), other=0)
    for tile in range(first, last):
        key = tile * TILE + step
        known = (key >= lowest) & (key < context)
        block = next_block
        # The next tile's block ids are on their way while this tile's keys are.
        later = key + TILE
        next_block = tl.load(table_ptr + later // BLOCK_SIZE, mask=later < end, other=0)
        # 64 bits before the multiplication: a large pool has more than 2**31 elements.
        place = (block.to(tl.int64) * BLOCK_SIZE + key % BLOCK_SIZE) * SLOT_STRIDE
        place = place[:, None] + dim[None, :]
        if MASKED:
            # The rest of the pages may be NaN.
            inside = known[:, None] & (dim < HEAD_DIM)[None, :]
            k = tl.load(k_head_ptr + place, mask=inside, other=0.0)
            v = tl.load(v_head_ptr + place, mask=inside, other=0.0)
        elif HEAD_DIM == DIM_POW2:
            k = tl.load(k_head_ptr + place)
            v = tl.load(v_head_ptr + place)
        else:
            k = tl.load(k_head_ptr + place, mask=(dim < HEAD_DIM)[None, :], other=0.0)
            v = tl.load(v_head_ptr + place, mask=(dim < HEAD_DIM)[None, :], other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * _LOG2_E)
        if MASKED:
            seen = key[None, :] <= position[:, None]
            if WINDOW > 0:
                seen &= key[None, :] > position[:, None] - WINDOW
            score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        base = higher
        if WINDOW > 0:
            # A row whose window begins behind this tile: -inf minus -inf would be NaN.
            base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - base[:, None])
        shrink = tl.exp2(best - base)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        best = higher
    return best, total, acc
