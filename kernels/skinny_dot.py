"""Products of up to some hundred rows with a weight, on tensor cores (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.gate_and_mul import activated


@triton.jit(do_not_specialize=["rows"])
def skinny_dot_kernel(
    x_ptr,  # [M, K], rows x_stride apart
    weight_ptr,  # [N, K], or [2N, K] gate first; contiguous
    bias_ptr,  # [N] or [2N]
    residual_ptr,  # [M, N], rows residual_stride apart
    out_ptr,  # [M, N], or the sums of the parts [SPLITS, M, N] float32; contiguous
    rows,  # M
    x_stride,
    residual_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHT_FIRST: tl.constexpr,
    GATE: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """One program: a tile of the result over one of ``SPLITS`` parts of the inner dimension."""
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    split = tl.program_id(2)
    in_m = m < rows
    in_n = n < N
    step = tl.arange(0, DEPTH)
    STEPS: tl.constexpr = (K + DEPTH - 1) // DEPTH
    PER_SPLIT: tl.constexpr = (STEPS + SPLITS - 1) // SPLITS
    first = split * PER_SPLIT
    # 64 bits: rows may lie far apart, and a vocabulary's weight has nearly 2**31 elements.
    x_row = x_ptr + m.to(tl.int64)[:, None] * x_stride
    weight_row = weight_ptr + n.to(tl.int64)[:, None] * K
    if WEIGHT_FIRST:
        y = tl.zeros([OUTPUTS, ROWS], tl.float32)
    else:
        y = tl.zeros([ROWS, OUTPUTS], tl.float32)
    up = y
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    for i in tl.range(first, tl.minimum(first + PER_SPLIT, STEPS), num_stages=STAGES):
        k = i * DEPTH + step
        in_k = k < K
        x = tl.load(x_row + k[None, :], mask=in_m[:, None] & in_k[None, :], other=0.0)
        inside = in_n[:, None] & in_k[None, :]
        # A weight is read once a step: it is not to displace what is read again soon.
        weight = tl.load(
            weight_row + k[None, :], mask=inside, other=0.0, eviction_policy="evict_first"
        )
        if UPCAST:
            x = x.to(tl.float32)
            weight = weight.to(tl.float32)
        if WEIGHT_FIRST:
            y = tl.dot(weight, tl.trans(x), y, input_precision=PRECISION)
        else:
            y = tl.dot(x, tl.trans(weight), y, input_precision=PRECISION)
        if GATE != "":
            up_weight = tl.load(
                weight_row + N * K + k[None, :],
                mask=inside,
                other=0.0,
                eviction_policy="evict_first",
            )
            if UPCAST:
                up_weight = up_weight.to(tl.float32)
            if WEIGHT_FIRST:
                up = tl.dot(up_weight, tl.trans(x), up, input_precision=PRECISION)
            else:
                up = tl.dot(x, tl.trans(up_weight), up, input_precision=PRECISION)
    if WEIGHT_FIRST:
        y = tl.trans(y)
        up = tl.trans(up)
    inside = in_m[:, None] & in_n[None, :]
    if BIAS:
        y += tl.load(bias_ptr + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    if GATE != "":
        if BIAS:
            up += tl.load(bias_ptr + N + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
        y = activated(y, GATE) * up
    if RESIDUAL:
        place = m.to(tl.int64)[:, None] * residual_stride + n[None, :]
        y += tl.load(residual_ptr + place, mask=inside, other=0.0).to(tl.float32)
    place = (split.to(tl.int64) * rows + m)[:, None] * N + n[None, :]
    tl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=inside)
