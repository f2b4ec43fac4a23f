"""A grouped weight as the library's products take it (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _pair(words, PLACE: tl.constexpr, BITS: tl.constexpr):
    """Two neighbours of each word, float32; see ``unpack_codes``."""
    mask: tl.constexpr = 2**BITS - 1
    low = (words >> (BITS * PLACE)) & mask
    high = (words >> (BITS * PLACE + 16)) & mask
    return tl.join(low.to(tl.float32), high.to(tl.float32))


@triton.jit(do_not_specialize=["zero"])
def grouped_expand_kernel(
    codes_ptr,  # [N, K * BITS // 32] int32; contiguous
    scale_ptr,  # [N, K // GROUP]; contiguous
    minimum_ptr,  # [N, K // GROUP]; contiguous
    out_ptr,  # [N, K]; contiguous
    words,  # N * K * BITS // 32
    zero,  # 0, unknown to the compiler: neighbouring threads are to have neighbouring words
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program = ``TILE`` words of codes, wherever rows begin.

    A thread reads a word at a time and writes its elements at once, so that both sides are read
    and written without gaps by neighbouring threads.
    """
    WORD: tl.constexpr = 32 // BITS
    # 64 bits: a vocabulary's weight has nearly 2**31 elements.
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = place < words
    codes = tl.load(codes_ptr + place + zero, mask=inside, other=0, eviction_policy="evict_first")
    group = place // (GROUP // WORD) + zero
    scale = tl.load(scale_ptr + group, mask=inside, other=0.0).to(tl.float32)
    least = tl.load(minimum_ptr + group, mask=inside, other=0.0).to(tl.float32)
    if BITS == 4:
        first = tl.join(_pair(codes, 0, BITS), _pair(codes, 2, BITS))
        second = tl.join(_pair(codes, 1, BITS), _pair(codes, 3, BITS))
        # Word, half, whether the later two, whether the second of them.
        value = tl.permute(tl.join(first, second), (0, 2, 3, 1))
    else:
        value = tl.permute(tl.join(_pair(codes, 0, BITS), _pair(codes, 1, BITS)), (0, 2, 1))
    value = tl.reshape(value, [TILE, WORD])
    value = value * scale[:, None] + least[:, None]
    at = out_ptr + place[:, None] * WORD + tl.arange(0, WORD)[None, :]
    tl.store(at, value.to(out_ptr.dtype.element_ty), mask=inside[:, None])
