"""Products of few rows with a grouped weight, on tensor cores (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _by_group(
    part_ptr,  # [N, K // GROUP]
    rows,  # [OUTPUTS, 1] int64, the first place of each row's groups
    groups,  # [GROUPS]
    inside,  # [OUTPUTS, GROUPS]
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    EACH: tl.constexpr,
):
    """A scale or minimum for each of ``GROUPS · EACH`` neighbours, float32."""
    part = tl.load(part_ptr + rows + groups[None, :], mask=inside, other=0.0).to(tl.float32)
    spread = tl.broadcast_to(part[:, :, None], (OUTPUTS, GROUPS, EACH))
    return tl.reshape(spread, (OUTPUTS, GROUPS * EACH))


@triton.jit(do_not_specialize=["rows"])
def grouped_dot_kernel(
    x_ptr,  # [M, K], rows x_stride apart
    codes_ptr,  # [N, K] uint8, or [N, K // 2]; contiguous
    scale_ptr,  # [N, K // GROUP]; contiguous
    minimum_ptr,  # [N, K // GROUP]; contiguous
    bias_ptr,  # [N]
    residual_ptr,  # [M, N], rows residual_stride apart
    out_ptr,  # [M, N]; contiguous
    rows,  # M
    x_stride,
    residual_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    UPCAST: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """One program: a tile of the result.

    In four bits the two halves of the bytes are two products, each with its own half of every
    eight elements of ``x``; both halves have the same scales. Elements are read in the order of
    the codes.
    """
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    in_m = m < rows
    in_n = n < N
    HALVES: tl.constexpr = 8 // BITS
    BYTES: tl.constexpr = DEPTH // HALVES
    ROW_BYTES: tl.constexpr = K // HALVES
    ROW_GROUPS: tl.constexpr = K // GROUP
    GROUPS: tl.constexpr = DEPTH // GROUP
    EACH: tl.constexpr = BYTES // GROUPS
    # 64 bits: a vocabulary's weight has nearly 2**31 elements.
    x_row = x_ptr + m.to(tl.int64)[:, None] * x_stride
    codes_row = codes_ptr + n.to(tl.int64)[:, None] * ROW_BYTES
    groups_row = n.to(tl.int64)[:, None] * ROW_GROUPS
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    y = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for i in tl.range(0, (K + DEPTH - 1) // DEPTH, num_stages=STAGES):
        place = i * BYTES + tl.arange(0, BYTES)
        groups = i * GROUPS + tl.arange(0, GROUPS)
        in_k = place < ROW_BYTES
        known = in_n[:, None] & in_k[None, :]
        in_groups = in_n[:, None] & (groups < ROW_GROUPS)[None, :]
        codes = tl.load(
            codes_row + place[None, :], mask=known, other=0, eviction_policy="evict_first"
        )
        scale = _by_group(scale_ptr, groups_row, groups, in_groups, OUTPUTS, GROUPS, EACH)
        least = _by_group(minimum_ptr, groups_row, groups, in_groups, OUTPUTS, GROUPS, EACH)
        for half in tl.static_range(HALVES):
            # See unpack_codes: place is 4 · word + byte.
            if HALVES == 1:
                k = place // 4 * 4 + place % 2 * 2 + place % 4 // 2
                code = codes
            else:
                k = place // 4 * 8 + place % 2 * 4 + half * 2 + place % 4 // 2
                code = (codes >> (4 * half)) & 15
            x = tl.load(x_row + k[None, :], mask=in_m[:, None] & in_k[None, :], other=0.0)
            weight = code.to(tl.float32) * scale + least
            if UPCAST:
                x = x.to(tl.float32)
            else:
                weight = weight.to(x.dtype)
            y = tl.dot(x, tl.trans(weight), y, input_precision="ieee")
    inside = in_m[:, None] & in_n[None, :]
    if BIAS:
        y += tl.load(bias_ptr + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    if RESIDUAL:
        at = m.to(tl.int64)[:, None] * residual_stride + n[None, :]
        y += tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)
    out = out_ptr + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(out, y.to(out_ptr.dtype.element_ty), mask=inside)
