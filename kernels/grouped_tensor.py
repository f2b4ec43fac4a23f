"""Products of up to 64 rows with a grouped weight, on tensor cores (Triton).

Codes go from memory into the product in the registers that they arrive in: a code is put into the
mantissa of a number whose exponent makes its last bit one, two codes at once, which gives the code
and a constant more. Each run's product is scaled when it is a sum already, in float32, where the
constant is taken off as part of the minimum: no weight is rounded.

A product does not care about the order of its inner dimension: a thread has a word of a run and the
elements of ``x`` that belong to it, and calls them those that the instruction wants from it. Each
warp has its own part of the inner dimension; what threads exchange is the sums of the warps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.grouped_vector import quarters

# In both halves of a word: a code of four bits, and the bits of what it is added to. The last bit
# of 128 and 1024 is worth one; that of 2048 and 16384, for the upper half of a byte, worth 16.
_CODES = tl.constexpr(0x000F000F)
_LOW_BFLOAT16 = tl.constexpr(0x43004300)
_HIGH_BFLOAT16 = tl.constexpr(0x45004500)
_LOW_FLOAT16 = tl.constexpr(0x64006400)
_HIGH_FLOAT16 = tl.constexpr(0x74007400)
_CONSTANT_BFLOAT16 = tl.constexpr(128.0)
_CONSTANT_FLOAT16 = tl.constexpr(1024.0)


@triton.jit
def _halves(words, KIND: tl.constexpr):
    """Two numbers of 16 bits for each word, in a dimension of their own at the end."""
    low = words.to(tl.int16).to(KIND, bitcast=True)
    high = (words >> 16).to(tl.int16).to(KIND, bitcast=True)
    return tl.join(low, high)


@triton.jit
def _weights(words, zero, KIND: tl.constexpr, BITS: tl.constexpr, UPCAST: tl.constexpr):
    """Codes with their constant, ``[WARPS, OUTPUTS, 32]``.

    Args:
        words: of one run, ``[OUTPUTS // 8, WARPS, 8, 4]``; in eight bits a code is two of four.

    Of 32 the compiler takes 4t to 4t + 3 and 16 more than those from thread t, two from both sides
    for each of two instructions.
    """
    # Known to the compiler, they would be added by an instruction of their own.
    low_half = zero + (_LOW_BFLOAT16 if KIND.is_bf16() else _LOW_FLOAT16)
    high_half = low_half
    if BITS == 8:
        high_half = zero + (_HIGH_BFLOAT16 if KIND.is_bf16() else _HIGH_FLOAT16)
    first = (words & _CODES) | low_half
    second = ((words >> 4) & _CODES) | high_half
    third = ((words >> 8) & _CODES) | low_half
    fourth = ((words >> 12) & _CODES) | high_half
    if BITS == 4:
        pairs = tl.join(tl.join(first, second), tl.join(third, fourth))
    else:
        pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    value = tl.permute(_halves(pairs, KIND), (1, 0, 2, 4, 3, 5, 6))
    value = tl.reshape(value, [words.shape[1], words.shape[0] * 8, 32])
    return value.to(tl.float32) if UPCAST else value


@triton.jit
def _over_rows(parts, ROWS: tl.constexpr):
    """A value for each output, as often as there are rows of ``x``: ``[WARPS, OUTPUTS, ROWS]``.

    Args:
        parts: ``[OUTPUTS // 8, WARPS, 8, 4]``, the same in all four threads of an output.
    """
    parts = tl.permute(tl.join(parts, parts), (1, 0, 2, 3, 4))
    parts = tl.reshape(parts, [parts.shape[0], parts.shape[1] * 8, 8])
    return _repeated(parts, ROWS)


@triton.jit
def _repeated(parts, ROWS: tl.constexpr):
    """The last dimension again and again until it has ``ROWS``."""
    shape: tl.constexpr = parts.shape
    if shape[2] == ROWS:
        return parts
    else:
        twice = tl.permute(tl.join(parts, parts), (0, 1, 3, 2))
        return _repeated(tl.reshape(twice, [shape[0], shape[1], 2 * shape[2]]), ROWS)


@triton.jit
def _over_outputs(sums, OUTPUTS: tl.constexpr):
    """``[WARPS, 16, ROWS]``, as often as there are outputs: ``[WARPS, OUTPUTS, ROWS]``."""
    shape: tl.constexpr = sums.shape
    if shape[1] == OUTPUTS:
        return sums
    else:
        twice = tl.permute(tl.join(sums, sums), (0, 3, 1, 2))
        return _over_outputs(tl.reshape(twice, [shape[0], 2 * shape[1], shape[2]]), OUTPUTS)


@triton.jit
def _add_run(
    y,  # [WARPS, OUTPUTS, ROWS]
    x_ptr,
    known,
    words,
    scale,
    least,
    nothing,  # as words, for 16 outputs: codes of 0
    zero,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    UPCAST: tl.constexpr,
    EVEN: tl.constexpr,
):
    """``y`` and what one run adds to it."""
    WARPS: tl.constexpr = y.shape[0]
    OUTPUTS: tl.constexpr = y.shape[1]
    ROWS: tl.constexpr = y.shape[2]
    x = tl.load(x_ptr) if EVEN else tl.load(x_ptr, mask=known, other=0.0)
    if UPCAST:
        x = x.to(tl.float32)
    if BITS == 4:
        x = tl.reshape(x, [ROWS // 8, WARPS, 8, 4, 2, 2, 2])
    else:
        x = tl.reshape(x, [ROWS // 8, WARPS, 8, 4, 2, 2])
        x = tl.permute(tl.join(x, x), (0, 1, 2, 3, 4, 6, 5))
    # So ordered, an instruction's elements are in registers that are neighbours already.
    x = tl.permute(x, (1, 5, 3, 4, 6, 0, 2) if BITS == 4 else (1, 4, 3, 5, 6, 0, 2))
    x = tl.reshape(x, [WARPS, 32, ROWS])
    total = tl.dot(_weights(nothing, zero, KIND, BITS, UPCAST), x, input_precision="ieee")
    weights = _weights(words, zero, KIND, BITS, UPCAST)
    product = tl.dot(weights, x, input_precision="ieee")
    # For eight bits x is there twice, so that both halves of a byte have their constant.
    CONSTANT: tl.constexpr = _CONSTANT_BFLOAT16 if KIND.is_bf16() else _CONSTANT_FLOAT16
    EACH: tl.constexpr = CONSTANT if BITS == 4 else 17 * CONSTANT
    scale = scale.to(tl.float32)
    least = least.to(tl.float32) * (1.0 / EACH) - scale
    y += _over_rows(scale, ROWS) * product
    return y + _over_rows(least, ROWS) * _over_outputs(total, OUTPUTS)


@triton.jit
def _scales(part, OUTPUTS: tl.constexpr, WARPS: tl.constexpr, SHARED: tl.constexpr):
    """Those of four runs, each ``[OUTPUTS // 8, WARPS, 8, 4]``."""
    if SHARED == 2:
        part = tl.join(part, part)
    return quarters(tl.reshape(part, [OUTPUTS // 8, WARPS, 8, 4, 4]))


@triton.jit
def _fetched(codes_ptr, scale_ptr, minimum_ptr, in_words, in_parts, CHECK: tl.constexpr):
    """Codes, scales and minima of a round, from pointers of their shapes."""
    if CHECK:
        words = tl.load(codes_ptr, mask=in_words, other=0, eviction_policy="evict_first")
        scale = tl.load(scale_ptr, mask=in_parts, other=0.0)
        least = tl.load(minimum_ptr, mask=in_parts, other=0.0)
    else:
        words = tl.load(codes_ptr, eviction_policy="evict_first")
        scale = tl.load(scale_ptr)
        least = tl.load(minimum_ptr)
    return words, scale, least


@triton.jit(do_not_specialize=["rows", "zero"])
def grouped_tensor_kernel(
    x_ptr,  # [M, K], rows x_stride apart
    codes_ptr,  # [N, K * BITS // 32] int32; contiguous
    scale_ptr,  # [N, K // GROUP]; contiguous
    minimum_ptr,  # [N, K // GROUP]; contiguous
    bias_ptr,  # [N]
    residual_ptr,  # [M, N], rows residual_stride apart
    out_ptr,  # [M, N]; contiguous
    rows,  # M
    x_stride,
    residual_stride,
    zero,  # 0, unknown to the compiler: it must not give a thread neighbours it has no use for
    N: tl.constexpr,
    K: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WARPS: tl.constexpr,
    AHEAD: tl.constexpr,  # codes are asked for a round before they are used
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    EVEN: tl.constexpr,  # no warp reaches over the end of a row
    UPCAST: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """One program: a tile of the result.

    A run is 16 bytes of codes, a word for each of four threads: 32 elements in four bits, 16 in
    eight. All of them have one scale. A warp reads four runs of each output at once.
    """
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    RUN: tl.constexpr = 128 // BITS
    ROW_RUNS: tl.constexpr = K // RUN
    SHARED: tl.constexpr = GROUP // RUN
    ROW_GROUPS: tl.constexpr = K // GROUP
    ROUND: tl.constexpr = 4 * WARPS
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    # Not known to be aligned: of a run a thread is to read one word.
    codes_ptr += zero
    # The compiler gives the first dimension to eight threads, then to the warps.
    place = tl.arange(0, OUTPUTS * WARPS * 16)
    word_run = place // 32 % WARPS * 4 + place // (32 * WARPS) % 4
    first = tl.program_id(1) * OUTPUTS
    # Outputs that there are not are the last one, which costs nothing; they are not kept.
    # 64 bits: a vocabulary's weight has nearly 2**31 elements.
    n = tl.minimum(first + place // (128 * WARPS) * 8 + place // 4 % 8, N - 1).to(tl.int64)
    word = (n * ROW_RUNS + word_run) * 4 + place % 4
    # A scale goes to the four threads of its output.
    place = tl.arange(0, OUTPUTS * WARPS * 4)
    in_part = tl.arange(0, 4 // SHARED)[None, :]
    part_group = (place // 32 % WARPS * (4 // SHARED))[:, None] + in_part
    n = tl.minimum(first + place // (32 * WARPS) * 8 + place // 4 % 8, N - 1).to(tl.int64)
    part = n[:, None] * ROW_GROUPS + part_group
    place = tl.arange(0, ROWS * WARPS)
    x_run = place // 8 % WARPS * 4
    m = tl.program_id(0) * ROWS + place // (8 * WARPS) * 8 + place % 8
    m = tl.minimum(m, rows - 1)
    x_row = x_ptr + m.to(tl.int64)[:, None] * x_stride
    if BITS == 8:
        # Of a run of 16 elements a thread is to read four.
        x_row += zero * 4
    x_row = x_row + x_run[:, None] * RUN + tl.arange(0, RUN)[None, :]
    codes = codes_ptr + word
    scales = scale_ptr + part
    minima = minimum_ptr + part
    if AHEAD:
        # These are no other kernel's results.
        ahead = _fetched(
            codes, scales, minima, word_run < ROW_RUNS, part_group < ROW_GROUPS, not EVEN
        )
    # Codes of 0, for sums of x. The compiler orders an operand by the load that it comes from: were
    # these no such, it would want x in another order.
    nothing = tl.load(codes_ptr + tl.zeros([WARPS * 64], tl.int32)) & zero
    nothing = tl.reshape(nothing, [2, WARPS, 8, 4])
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    y = tl.zeros([WARPS, OUTPUTS, ROWS], tl.float32)
    for i in tl.range(0, ROW_RUNS, ROUND, num_stages=1):
        at = i + ROUND if AHEAD else i
        if EVEN:
            in_words = tl.full(word.shape, at, tl.int32) < ROW_RUNS
            in_parts = tl.full(part.shape, at, tl.int32) < ROW_RUNS
        else:
            in_words = word_run < ROW_RUNS - at
            in_parts = part_group < ROW_GROUPS - at // SHARED
        groups = at // SHARED
        fetched = _fetched(
            codes + at * 4,
            scales + groups,
            minima + groups,
            in_words,
            in_parts,
            AHEAD or not EVEN,
        )
        if AHEAD:
            words, scale, least = ahead
            ahead = fetched
        else:
            words, scale, least = fetched
        s0, s1, s2, s3 = _scales(scale, OUTPUTS, WARPS, SHARED)
        l0, l1, l2, l3 = _scales(least, OUTPUTS, WARPS, SHARED)
        words = tl.reshape(words, [OUTPUTS // 8, 4, WARPS, 8, 4])
        w0, w1, w2, w3 = quarters(tl.permute(words, (0, 2, 3, 4, 1)))
        x = x_row + i * RUN
        left = tl.broadcast_to((ROW_RUNS - i - x_run)[:, None], (ROWS * WARPS, RUN))
        y = _add_run(y, x, left > 0, w0, s0, l0, nothing, zero, KIND, BITS, UPCAST, EVEN)
        y = _add_run(y, x + RUN, left > 1, w1, s1, l1, nothing, zero, KIND, BITS, UPCAST, EVEN)
        y = _add_run(y, x + 2 * RUN, left > 2, w2, s2, l2, nothing, zero, KIND, BITS, UPCAST, EVEN)
        y = _add_run(y, x + 3 * RUN, left > 3, w3, s3, l3, nothing, zero, KIND, BITS, UPCAST, EVEN)
    y = tl.trans(tl.sum(y, 0))
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = first + tl.arange(0, OUTPUTS)
    in_n = n < N
    inside = (m < rows)[:, None] & in_n[None, :]
    if BIAS:
        y += tl.load(bias_ptr + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    if RESIDUAL:
        place = m.to(tl.int64)[:, None] * residual_stride + n[None, :]
        y += tl.load(residual_ptr + place, mask=inside, other=0.0).to(tl.float32)
    place = m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=inside)
