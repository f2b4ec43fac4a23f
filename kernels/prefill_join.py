"""Joins the parts that the keys of a tile of rows were cut into (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def join_rows(
    partial_ptr,  # [parts, KV_HEADS, ROWS, DIM_POW2] float32 from the tile's first part on
    lse_ptr,  # [parts, KV_HEADS, ROWS] float32, base 2
    parts,
    kv_head,
    KV_HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    DIM_POW2: tl.constexpr,
):
    """``[ROWS, DIM_POW2]``, always summed in the same order; 0 for rows that see nothing."""
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_POW2)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_POW2], tl.float32)
    for part in range(parts):
        cell = (part * KV_HEADS + kv_head) * ROWS + row
        # Past the first-level cache, where lines from before another program wrote may lie.
        lse = tl.load(lse_ptr + cell, cache_modifier=".cg")
        place = cell[:, None] * DIM_POW2 + dim[None, :]
        partial = tl.load(partial_ptr + place, cache_modifier=".cg")
        higher = tl.maximum(best, lse)
        # Nothing seen yet: -inf minus -inf would be NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(lse - base)
        shrink = tl.exp2(best - base)
        total = total * shrink + weight
        acc = acc * shrink[:, None] + partial * weight[:, None]
        best = higher
    return acc / tl.where(total > 0.0, total, 1.0)[:, None]
