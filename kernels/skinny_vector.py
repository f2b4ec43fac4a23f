"""Products of a few rows with a weight, without tensor cores (Triton).

A program holds all weights of its outputs in registers: the loads are all under way at once, and
the rows are multiplied one after the other.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.gate_and_mul import activated


@triton.jit(do_not_specialize=["rows"])
def skinny_vector_kernel(
    x_ptr,  # [M, K], rows x_stride apart
    weight_ptr,  # [N, K], or [2N, K] gate first; contiguous
    bias_ptr,  # [N] or [2N]
    residual_ptr,  # [M, N], rows residual_stride apart
    norm_ptr,  # [K]
    out_ptr,  # [M, N], contiguous
    rows,  # M
    eps,
    x_stride,
    residual_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DEPTH: tl.constexpr,
    NORM: tl.constexpr,
    GATE: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """One program: ``OUTPUTS`` rows of the weight against all rows of ``x``."""
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    k = tl.arange(0, DEPTH)
    in_n = n < N
    in_k = k < K
    inside = in_n[:, None] & in_k[None, :]
    place = n.to(tl.int64)[:, None] * K + k[None, :]
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    weight = tl.load(weight_ptr + place, mask=inside, other=0.0, eviction_policy="evict_first")
    if GATE != "":
        up_weight = tl.load(
            weight_ptr + N * K + place, mask=inside, other=0.0, eviction_policy="evict_first"
        )
    if NORM:
        scale = tl.load(norm_ptr + k, mask=in_k, other=0.0).to(tl.float32)
    if PDL:
        # The weights are under way; what the kernel before writes is read from here on.
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    for m in tl.static_range(ROWS):
        known = tl.full([1], m, tl.int32) < rows
        x = tl.load(x_ptr + m * x_stride + k, mask=in_k & known, other=0.0).to(tl.float32)
        if NORM:
            x = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * scale
        y = tl.sum(weight.to(tl.float32) * x[None, :], 1)
        if BIAS:
            y += tl.load(bias_ptr + n, mask=in_n, other=0.0).to(tl.float32)
        if GATE != "":
            up = tl.sum(up_weight.to(tl.float32) * x[None, :], 1)
            if BIAS:
                up += tl.load(bias_ptr + N + n, mask=in_n, other=0.0).to(tl.float32)
            y = activated(y, GATE) * up
        if RESIDUAL:
            y += tl.load(residual_ptr + m * residual_stride + n, mask=in_n & known, other=0.0).to(
                tl.float32
            )
        tl.store(out_ptr + m * N + n, y.to(out_ptr.dtype.element_ty), mask=in_n & known)
