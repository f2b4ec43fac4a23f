"""Products of a few rows with a grouped weight, without tensor cores (Triton).

With so few rows the weight is read once and hardly multiplied: what counts is how many instructions
turn a code into a factor. Here that is one and a half in four bits, two in eight. A code is put
into the upper half of a mantissa whose exponent says 1, which gives ``1 + code / 2ⁿ``; the row is
multiplied by ``2ⁿ``, and what its ones have added is taken off once for each group.

A thread has the same place in ``OUTPUTS`` rows of the weight, so that it prepares its elements of
``x`` once for all of them. The shapes of the loads are such that Triton 3.6 and later give each the
layout of the codes, so that no element changes its thread: a test looks at the compiler's listing.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Bits of a float32: the exponent of one, and the codes right below it.
_ONE = tl.constexpr(0x3F800000)
_BYTE = tl.constexpr(0xFF << 15)
_LOW = tl.constexpr(0xF << 15)
_HIGH = tl.constexpr(0xF << 19)
# What a code is divided by there: a byte or the low half of one, the high half.
_SMALL = tl.constexpr(256.0)
_LARGE = tl.constexpr(16.0)


@triton.jit
def _moved(words, BYTE: tl.constexpr):
    """Byte ``BYTE`` of each word, right below the exponent."""
    if BYTE == 0:
        return words << 15
    elif BYTE == 1:
        return words << 7
    elif BYTE == 2:
        return words >> 1
    else:
        return words >> 9


@triton.jit
def _factors(moved, one, MASK: tl.constexpr):
    """``1 + code / 2ⁿ``; ``one``: the bits of 1."""
    return ((moved & MASK) | one).to(tl.float32, bitcast=True)


@triton.jit
def _pair(x_ptr, place, known, KIND: tl.constexpr, EVEN: tl.constexpr):
    """Two neighbouring elements each that are read as one, float32."""
    two = tl.load(x_ptr + place) if EVEN else tl.load(x_ptr + place, mask=known, other=0)
    if KIND.is_bf16():
        # Its bits are the upper half of a float32's.
        first = (two << 16).to(tl.float32, bitcast=True)
        second = (two & -65536).to(tl.float32, bitcast=True)
    else:
        first = two.to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
        second = (two >> 16).to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
    return first, second


@triton.jit
def quarters(parts):
    """The four parts of the last dimension."""
    shape: tl.constexpr = parts.shape
    # The language has no stars.
    even, odd = tl.split(tl.reshape(parts, shape[:-1] + [2, 2]))  # noqa: RUF005
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _multiplied(
    x_ptr, place, known, words, one, KIND: tl.constexpr, BITS: tl.constexpr, EVEN: tl.constexpr
):
    """A row times the codes of some runs of 16 bytes.

    Args:
        x_ptr: the row, two elements at a time.
        place: ``[RUNS, 4]``, where the first eight elements of each run are.
        known: whether they are there, ``[RUNS, 4]``; all are if ``EVEN``.
        words: the codes, four bytes at a time: four of ``[OUTPUTS, RUNS]``.

    Returns:
        ``[OUTPUTS, RUNS]`` sums of code times element; ``[RUNS]`` sums of elements.
    """
    RUNS: tl.constexpr = place.shape[0]
    ys = tl.zeros(words[0].shape, tl.float32)
    small = tl.zeros([RUNS], tl.float32)
    large = tl.zeros([RUNS], tl.float32)
    for j in tl.static_range(16 // BITS):
        firsts, seconds = _pair(x_ptr, place + 4 * j, known, KIND, EVEN)
        firsts = quarters(firsts)
        seconds = quarters(seconds)
        for i in tl.static_range(4):
            first = firsts[i]
            second = seconds[i]
            # See unpack_codes. Added one after the other, each by the instruction that multiplies.
            if BITS == 4:
                low = _moved(words[j], i // 2)
                high = _moved(words[j], 2 + i // 2)
                if i % 2 == 0:
                    small += first + second
                    ys += _factors(low, one, _LOW) * (first * _SMALL)[None, :]
                    ys += _factors(high, one, _LOW) * (second * _SMALL)[None, :]
                else:
                    large += first + second
                    ys += _factors(low, one, _HIGH) * (first * _LARGE)[None, :]
                    ys += _factors(high, one, _HIGH) * (second * _LARGE)[None, :]
            else:
                word = words[2 * j + i // 2]
                small += first + second
                ys += _factors(_moved(word, i % 2), one, _BYTE) * (first * _SMALL)[None, :]
                ys += _factors(_moved(word, 2 + i % 2), one, _BYTE) * (second * _SMALL)[None, :]
    return ys - (small * _SMALL + large * _LARGE)[None, :], small + large


@triton.jit
def _finish(
    sums,  # [OUTPUTS, RUNS]
    bias_ptr,
    residual_ptr,
    out_ptr,
    m,
    rows,
    n,
    residual_stride,
    N: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    inside = (n < N) & (m + tl.zeros([1], tl.int32) < rows)
    y = tl.sum(sums, 1)
    if BIAS:
        y += tl.load(bias_ptr + n, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        at = residual_ptr + m.to(tl.int64) * residual_stride + n
        y += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    out = out_ptr + m.to(tl.int64) * N + n
    tl.store(out, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "zero"])
def grouped_vector_kernel(
    x_ptr,  # [M, K // 2] int32, two elements each; rows x_stride apart
    codes_ptr,  # [N, K * BITS // 32] int32; contiguous
    scale_ptr,  # [N, K // GROUP]; contiguous
    minimum_ptr,  # [N, K // GROUP]; contiguous
    bias_ptr,  # [N]
    residual_ptr,  # [M, N], rows residual_stride apart
    out_ptr,  # [M, N]; contiguous
    rows,  # M
    x_stride,
    residual_stride,
    zero,  # 0, unknown to the compiler: it must not give a thread several neighbouring scales
    N: tl.constexpr,
    K: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    RUNS: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    EVEN: tl.constexpr,  # no program reaches over an edge of the weight, ROWS not over the last row
    PDL: tl.constexpr,  # see next_starts
):
    """One program: ``OUTPUTS`` rows of the weight against ``ROWS`` rows of ``x``.

    A run is 16 bytes of codes, which one thread reads at once: 32 elements in four bits, 16 in
    eight. All of them have one scale.
    """
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    RUN: tl.constexpr = 128 // BITS
    ROW_RUNS: tl.constexpr = K // RUN
    m = tl.program_id(0) * ROWS
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    in_n = n < N
    q = tl.arange(0, 4)
    # 64 bits: a vocabulary's weight has nearly 2**31 elements.
    row = n.to(tl.int64)
    x_row = x_ptr + m.to(tl.int64) * x_stride
    at = m + tl.zeros([1, 1], tl.int32)
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    first = tl.zeros([OUTPUTS, RUNS], tl.float32)
    if ROWS > 1:
        second = tl.zeros([OUTPUTS, RUNS], tl.float32)
    if ROWS > 2:
        third = tl.zeros([OUTPUTS, RUNS], tl.float32)
        fourth = tl.zeros([OUTPUTS, RUNS], tl.float32)
    # Known to the compiler, it would be put into a register anew for every second code.
    one = _ONE + zero
    # A start that is unknown, or a loop of one round is taken apart into longer code.
    for i in range(zero, ROW_RUNS, RUNS):
        run = i + tl.arange(0, RUNS)
        in_run = run < ROW_RUNS
        in_row = i * 4 + tl.arange(0, RUNS * 4)
        word = row[:, None] * (ROW_RUNS * 4) + in_row[None, :]
        # Without aligned neighbours that one thread could read at once: it is to have one.
        in_groups = (run if RUN == GROUP else run * RUN // GROUP) + zero
        group = row[:, None] * (K // GROUP) + in_groups[None, :]
        if EVEN:
            words = tl.load(codes_ptr + word, eviction_policy="evict_first")
            scale = tl.load(scale_ptr + group).to(tl.float32)
            least = tl.load(minimum_ptr + group).to(tl.float32)
        else:
            words = tl.load(
                codes_ptr + word,
                mask=in_n[:, None] & (in_row < ROW_RUNS * 4)[None, :],
                other=0,
                eviction_policy="evict_first",
            )
            inside = in_n[:, None] & in_run[None, :]
            scale = tl.load(scale_ptr + group, mask=inside, other=0.0).to(tl.float32)
            least = tl.load(minimum_ptr + group, mask=inside, other=0.0).to(tl.float32)
        # A thread keeps its four neighbours.
        words = quarters(tl.reshape(words, (OUTPUTS, RUNS, 4)))
        place = run[:, None] * (RUN // 2) + q[None, :]
        known = tl.broadcast_to(in_run[:, None], (RUNS, 4))
        y, total = _multiplied(x_row, place, known & (at < rows), words, one, KIND, BITS, EVEN)
        first += scale * y + least * total[None, :]
        if ROWS > 1:
            x = x_row + x_stride
            y, total = _multiplied(x, place, known & (at + 1 < rows), words, one, KIND, BITS, EVEN)
            second += scale * y + least * total[None, :]
        if ROWS > 2:
            x = x_row + 2 * x_stride
            y, total = _multiplied(x, place, known & (at + 2 < rows), words, one, KIND, BITS, EVEN)
            third += scale * y + least * total[None, :]
            x = x_row + 3 * x_stride
            y, total = _multiplied(x, place, known & (at + 3 < rows), words, one, KIND, BITS, EVEN)
            fourth += scale * y + least * total[None, :]
    # The compiler has no loop over values of this many kinds.
    b, r, o = bias_ptr, residual_ptr, out_ptr
    _finish(first, b, r, o, m, rows, n, residual_stride, N, BIAS, RESIDUAL)
    if ROWS > 1:
        _finish(second, b, r, o, m + 1, rows, n, residual_stride, N, BIAS, RESIDUAL)
    if ROWS > 2:
        _finish(third, b, r, o, m + 2, rows, n, residual_stride, N, BIAS, RESIDUAL)
        _finish(fourth, b, r, o, m + 3, rows, n, residual_stride, N, BIAS, RESIDUAL)
