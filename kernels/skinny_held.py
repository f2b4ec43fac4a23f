"""Products of up to 16 rows with a weight that waits in registers, on tensor cores (Triton).

A program asks for all weights of its outputs before it waits for the kernel before, and multiplies
them from the registers that they arrive in. A product does not care about the order of its inner
dimension: a thread holds eight neighbours of it, which is one load, and calls them the eight that
the instruction wants from this thread; the same for ``x``. Nothing is exchanged between threads
but the sums of the warps, each of which has its own part of the inner dimension.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.gate_and_mul import activated


@triton.jit
def _places(COUNT: tl.constexpr, RUNS: tl.constexpr, WARPS: tl.constexpr):
    """Row and first inner element of each run of 32, ``[COUNT · RUNS · WARPS]``.

    The compiler gives a run to four threads, eight runs to a warp, and the next eight to the next
    warp: with eight rows fastest, then the warps, each thread has what its fragments consist of.
    """
    run = tl.arange(0, COUNT * RUNS * WARPS)
    row = run // (8 * WARPS * RUNS) * 8 + run % 8
    return row, (run // 8 % WARPS * RUNS + run // (8 * WARPS) % RUNS) * 32


@triton.jit
def _fragments(
    loaded, COUNT: tl.constexpr, RUNS: tl.constexpr, WARPS: tl.constexpr, CHAINS: tl.constexpr
):
    """``[CHAINS · WARPS, COUNT, 32 · RUNS / CHAINS]`` of the runs, whose order within is another.

    Of a run, thread t has elements 8t to 8t + 7; an instruction over 16 takes 2t, 2t + 1, 2t + 8
    and 2t + 9 from it.
    """
    parts = tl.reshape(loaded, [COUNT // 8, CHAINS, RUNS // CHAINS, WARPS, 8, 4, 2, 2, 2])
    parts = tl.permute(parts, (1, 3, 0, 4, 2, 6, 7, 5, 8))
    return tl.reshape(parts, [CHAINS * WARPS, COUNT, 32 * RUNS // CHAINS])


@triton.jit
def _total(parts, PARTS: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr):
    """Sum over the first dimension of ``[PARTS, COUNT, ROWS]``.

    Halves are added: the compiler exchanges all parts at once for that, where it takes a reduction
    to four exchanges.
    """
    if PARTS == 1:
        return tl.reshape(parts, [COUNT, ROWS])
    else:
        halves = tl.permute(tl.reshape(parts, [2, PARTS // 2, COUNT, ROWS]), (1, 2, 3, 0))
        low, high = tl.split(halves)
        return _total(low + high, PARTS // 2, COUNT, ROWS)


@triton.jit(do_not_specialize=["rows"])
def skinny_held_kernel(
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
    WARPS: tl.constexpr,
    GATE: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """One program: a tile of the result over one of ``SPLITS`` parts of the inner dimension."""
    RUNS: tl.constexpr = DEPTH // (32 * WARPS)
    # With a gate its outputs come first, then those that it multiplies: one product for both.
    TILE: tl.constexpr = OUTPUTS * (2 if GATE != "" else 1)
    # The instruction's sum is long in coming: each warp has four under way.
    SUMS: tl.constexpr = TILE * ROWS // 128
    CHAINS: tl.constexpr = min(RUNS, 4 // SUMS if SUMS < 4 else 1)
    FULL: tl.constexpr = SPLITS * DEPTH == K
    split = tl.program_id(2)
    step = split * DEPTH + tl.arange(0, 32)
    first = tl.program_id(1) * OUTPUTS
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    row, run = _places(TILE, RUNS, WARPS)
    n = first + row % OUTPUTS
    k = run[:, None] + step[None, :]
    # 64 bits: a vocabulary's weight has nearly 2**31 elements, and rows may lie far apart.
    place = (n + row // OUTPUTS * N).to(tl.int64)[:, None] * K + k
    inside = (n < N)[:, None] & (k < K)
    weight = tl.load(weight_ptr + place, mask=inside, other=0.0, eviction_policy="evict_first")
    row, run = _places(ROWS, RUNS, WARPS)
    # Rows that there are not are the last one, which costs nothing; their results are not kept.
    m = tl.minimum(tl.program_id(0) * ROWS + row, rows - 1)
    k = run[:, None] + step[None, :]
    place = m.to(tl.int64)[:, None] * x_stride + k
    if PDL:
        # The weights are under way; what the kernel before writes is read from here on.
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    x = tl.load(x_ptr + place) if FULL else tl.load(x_ptr + place, mask=k < K, other=0.0)
    if PDL:  # noqa: SIM102 - one of the conditions is the compiler's
        # Never so, and harmless if it were: a branch that the assembler cannot do without. Else it
        # saves registers and lets loads of x wait for products of earlier ones.
        if rows < 0:
            tl.extra.cuda.gdc_wait()
    if UPCAST:
        x = x.to(tl.float32)
        weight = weight.to(tl.float32)
    weight = _fragments(weight, TILE, RUNS, WARPS, CHAINS)
    x = tl.permute(_fragments(x, ROWS, RUNS, WARPS, CHAINS), (0, 2, 1))
    y = tl.dot(weight, x, input_precision=PRECISION)
    y = _total(y, CHAINS * WARPS, TILE, ROWS)
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = first + tl.arange(0, OUTPUTS)
    in_n = n < N
    if GATE != "":
        y, up = tl.split(tl.permute(tl.reshape(y, [2, OUTPUTS, ROWS]), (2, 1, 0)))
    else:
        y = tl.trans(y)
    if BIAS:
        y += tl.load(bias_ptr + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    if GATE != "":
        if BIAS:
            up += tl.load(bias_ptr + N + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
        y = activated(y, GATE) * up
    inside = (m < rows)[:, None] & in_n[None, :]
    if RESIDUAL:
        place = m.to(tl.int64)[:, None] * residual_stride + n[None, :]
        y += tl.load(residual_ptr + place, mask=inside, other=0.0).to(tl.float32)
    place = (split.to(tl.int64) * rows + m)[:, None] * N + n[None, :]
    tl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=inside)
