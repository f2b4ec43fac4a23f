"""The noise of ``kernels.reference.gumbel``, from the same bits, and who wins with it (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl

_LN_2 = tl.constexpr(0.6931471805599453)
MARGIN = 1e-3
_MARGIN = tl.constexpr(MARGIN)
_NOWHERE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox4x32 on uint32 words; see ``kernels.reference.philox``."""
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, tl.full([], 0xD2511F53, tl.uint32))
        low0 = c0 * tl.full([], 0xD2511F53, tl.uint32)
        high2 = tl.umulhi(c2, tl.full([], 0xCD9E8D57, tl.uint32))
        low2 = c2 * tl.full([], 0xCD9E8D57, tl.uint32)
        c0 = high2 ^ c1 ^ k0
        c2 = high0 ^ c3 ^ k1
        c1 = low2
        c3 = low0
        k0 = k0 + tl.full([], 0x9E3779B9, tl.uint32)
        k1 = k1 + tl.full([], 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def _words(seed, index, place, DOMAIN: tl.constexpr):
    """The upper 32 and the lower 20 bits of a block of numbers."""
    low = (index & 0xFFFFFFFF).to(tl.uint32)
    high = ((index >> 32) & 0xFFFFFFFF).to(tl.uint32)
    key0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    key1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c0 = place.to(tl.uint32)
    zero = tl.zeros_like(c0)
    upper, lower, _, _ = philox4x32(
        c0, zero + DOMAIN, zero + low, zero + high, zero + key0, zero + key1
    )
    return upper, lower >> 12


@triton.jit
def gumbel(upper, lower):
    """The noise of some numbers, by their upper 32 and lower 20 bits, in float64."""
    uniform = upper.to(tl.float64) * (2.0**-32) + (lower.to(tl.float64) + 0.5) * (2.0**-52)
    return -tl.log(-tl.log(uniform))


@triton.jit
def rough_gumbel(upper, lower):
    """``gumbel`` in float32, wrong by less than ``MARGIN``."""
    uniform = upper.to(tl.float32) * (2.0**-32) + (lower.to(tl.float32) + 0.5) * (2.0**-52)
    # 1 - u, which float32 does not get from a u near 1.
    rest = (~upper).to(tl.float32) * (2.0**-32)
    rest += ((lower ^ 0xFFFFF).to(tl.float32) + 0.5) * (2.0**-52)
    near_one = rest < 2.0**-10
    log = tl.log2(tl.where(near_one, 0.5, uniform)) * _LN_2
    return tl.log2(tl.where(near_one, rest + 0.5 * rest * rest, -log)) * -_LN_2


@triton.jit
def place_of_largest(value, place, seed, index, DOMAIN: tl.constexpr):
    """The place with the largest value + noise, the first of equals.

    float32 tells which it is unless two are very close: then float64 decides among these, as some
    GPUs take 64 times as long for it.
    """
    upper, lower = _words(seed, index, place, DOMAIN)
    rough = value + rough_gumbel(upper, lower)
    near = rough >= tl.max(rough, 0) - 2 * _MARGIN
    chosen = tl.min(tl.where(near, place, _NOWHERE), 0)
    if tl.sum(near.to(tl.int32), 0) > 1:
        most = tl.full([], float("-inf"), tl.float64)
        place_now = chosen
        while place_now < _NOWHERE:
            value_now = tl.max(tl.where(place == place_now, value, float("-inf")), 0)
            upper_now, lower_now = _words(seed, index, place_now, DOMAIN)
            total = value_now.to(tl.float64) + gumbel(upper_now, lower_now)
            chosen = tl.where(total > most, place_now, chosen)
            most = tl.maximum(most, total)
            place_now = tl.min(tl.where(near & (place > place_now), place, _NOWHERE), 0)
    return chosen
