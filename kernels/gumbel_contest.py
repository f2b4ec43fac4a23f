"""The noise of ``kernels.reference.gumbel``, bit for bit, and the best score with it (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl

_GROUP = tl.constexpr(16)
_MARGIN = tl.constexpr(1e-3)
_MAX_NOISE = tl.constexpr(28.5)


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
def _words(first, second: tl.constexpr, seed, index):
    """The call with the counter (first, second, index) and the seed as key."""
    low = (index & 0xFFFFFFFF).to(tl.uint32)
    high = ((index >> 32) & 0xFFFFFFFF).to(tl.uint32)
    key0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    key1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c0 = first.to(tl.uint32)
    zero = tl.zeros_like(c0)
    return philox4x32(c0, zero + second, zero + low, zero + high, zero + key0, zero + key1)


@triton.jit
def _gumbel(upper, lower):
    uniform = (upper.to(tl.float64) + (lower.to(tl.float64) + 0.5) * (2.0**-32)) / 256.0
    return -tl.log(-tl.log(uniform))


@triton.jit
def gumbel_of_token(seed, index, token):
    """Noise of some tokens in float64."""
    w0, w1, w2, w3 = _words(token >> 4, 0, seed, index)
    part = (token >> 2) & 3
    word = tl.where(part == 0, w0, tl.where(part == 1, w1, tl.where(part == 2, w2, w3)))
    upper = (word >> ((token & 3) << 3).to(tl.uint32)) & 0xFF
    lower, _, _, _ = _words(token, 1, seed, index)
    return _gumbel(upper, lower)


@triton.jit
def best_with_noise(relative, first, seed, index, floor, GROUPS: tl.constexpr):
    """Largest score + noise (float64) of a tile ``[GROUPS, 16]`` of consecutive tokens, and its
    token; -inf where none reaches ``floor``.

    The upper byte alone bounds the noise from above. Each round takes every group's most promising
    token, computes its noise in full and drops what cannot win any more: one or two rounds suffice
    as a rule.
    """
    group = tl.arange(0, GROUPS)
    column = tl.arange(0, _GROUP)
    w0, w1, w2, w3 = _words(first // _GROUP + group, 0, seed, index)
    part = (column >> 2)[None, :]
    word = tl.where(
        part == 0,
        w0[:, None],
        tl.where(part == 1, w1[:, None], tl.where(part == 2, w2[:, None], w3[:, None])),
    )
    upper = ((word >> ((column & 3) << 3).to(tl.uint32)[None, :]) & 0xFF).to(tl.int32)
    # The noise of the next byte's smallest number; the last byte's largest is the largest of all.
    above = tl.minimum(upper + 1, 255).to(tl.float32) * (1.0 / 256.0)
    most = tl.where(upper == 255, _MAX_NOISE, -tl.log(-tl.log(above)) + _MARGIN)
    reach = relative + most
    winner = tl.full([], float("-inf"), tl.float64)
    winner_token = tl.full([], 0x7FFFFFFF, tl.int32)
    highest = tl.max(tl.max(reach, 1), 0)
    while (highest >= floor) & (highest > float("-inf")):
        top = tl.max(reach, 1)
        chosen = tl.argmax(reach, 1)
        picked = column[None, :] == chosen[:, None]
        score = tl.max(tl.where(picked, relative, float("-inf")), 1)
        token = first + group * _GROUP + chosen
        total = score.to(tl.float64) + gumbel_of_token(seed, index, token)
        total = tl.where(top >= floor, total, float("-inf"))
        most_now = tl.max(total, 0)
        token_now = tl.min(tl.where(total == most_now, token, 0x7FFFFFFF), 0)
        winner_token = tl.where(most_now > winner, token_now, winner_token)
        winner = tl.maximum(winner, most_now)
        floor = tl.maximum(floor, winner.to(tl.float32) - _MARGIN)
        reach = tl.where(picked, float("-inf"), reach)
        highest = tl.max(tl.max(reach, 1), 0)
    return winner, winner_token
