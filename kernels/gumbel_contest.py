"""The noise of ``kernels.reference.gumbel``, bit for bit, and the best score with it (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl

_GROUP = tl.constexpr(16)
_MARGIN = tl.constexpr(1e-3)
_MAX_NOISE = tl.constexpr(28.5)
_LOG2_E = tl.constexpr(1.4426950408889634)
_ROUNDING = tl.constexpr(2e-6)
"""More than float32 errs in a double exponential, as it is used here."""


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
def _may_win(relative, upper, floor):
    """Whether score + noise may reach ``floor``, by the upper byte of the noise's number alone.

    ``noise < x`` is ``u < exp(-exp(-x))``: the noise stays below that of the next byte's smallest
    number, whatever the lower bits are. The last byte's largest noise is the largest of all.
    """
    needed = tl.exp2(-tl.exp2((relative - floor) * _LOG2_E) * _LOG2_E)
    above = (upper + 1).to(tl.float32) * (1.0 / 256.0) + _ROUNDING
    return tl.where(upper == 255, relative + _MAX_NOISE >= floor, above >= needed)


@triton.jit
def _most_noise(upper, lower):
    """No noise of these 40 bits is larger: ``-log(-log u) <= -log(1 - u)``, float32 of 1 - u."""
    rest = (255 - upper).to(tl.float32) * (1.0 / 256.0)
    rest += ((~lower).to(tl.float32) + 0.5) * (1.0 / 1099511627776.0)
    return -tl.log(rest) + _MARGIN


@triton.jit
def best_with_noise(
    score,
    best,
    temperature,
    bound,
    first,
    seed,
    index,
    floor,
    GROUPS: tl.constexpr,
    FILTERED: tl.constexpr,
):
    """Largest relative score + noise (float64) of a tile ``[GROUPS, 16]`` of consecutive tokens,
    and its token; -inf where none reaches ``floor``.

    The upper byte alone rules out nearly all tokens. Each round takes one token of every group that
    is left; only where its 32 lower bits do not rule it out as well is its noise computed in full.
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
    if FILTERED:
        # To the last bit: the bound is one of the scores.
        relative = tl.div_rn(score - best, temperature + tl.zeros_like(score))
        relative = tl.where(relative < bound, float("-inf"), relative)
    else:
        relative = (score - best) * (1.0 / temperature)
    winner = tl.full([], float("-inf"), tl.float64)
    winner_token = tl.full([], 0x7FFFFFFF, tl.int32)
    open_ = _may_win(relative, upper, floor)
    count = tl.max(tl.max(open_.to(tl.int32), 1), 0)
    while count > 0:
        value = tl.where(open_, relative, float("-inf"))
        chosen = tl.argmax(value, 1)
        picked = open_ & (column[None, :] == chosen[:, None])
        near = tl.max(tl.where(picked, value, float("-inf")), 1)
        byte = tl.max(tl.where(picked, upper, 0), 1)
        token = first + group * _GROUP + chosen
        lower, _, _, _ = _words(token, 1, seed, index)
        wins = near + _most_noise(byte, lower) >= floor
        if tl.max(wins.to(tl.int32), 0) > 0:
            exact = tl.max(tl.where(picked, score, float("-inf")), 1)
            exact = tl.div_rn(exact - best, temperature + tl.zeros_like(exact))
            total = exact.to(tl.float64) + _gumbel(byte.to(tl.uint32), lower)
            total = tl.where(wins, total, float("-inf"))
            most_now = tl.max(total, 0)
            token_now = tl.min(tl.where(total == most_now, token, 0x7FFFFFFF), 0)
            winner_token = tl.where(most_now > winner, token_now, winner_token)
            winner = tl.maximum(winner, most_now)
            floor = tl.maximum(floor, winner.to(tl.float32) - _MARGIN)
            open_ = open_ & _may_win(relative, upper, floor)
        open_ = open_ & (column[None, :] != chosen[:, None])
        count = tl.max(tl.max(open_.to(tl.int32), 1), 0)
    return winner, winner_token
