"""Sums over the groups of the vocabulary, and the draw from them (Triton); what groups are and how
a token is drawn: ``kernels.reference.gumbel``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.gumbel_noise import place_of_largest
from kernels.reference.gumbel import GROUP, GROUPS, TOKENS
from kernels.score_tile import relative_tile, score_tile

GROUP_SIZE = tl.constexpr(GROUP)
_GROUPS = tl.constexpr(GROUPS)
_TOKENS = tl.constexpr(TOKENS)
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)
_NO_TOKEN = tl.constexpr(0x7FFFFFFF)


@triton.jit
def group_tokens(chunk, CHUNK: tl.constexpr):
    """Groups and tokens of one chunk: ``[CHUNK / GROUP]`` and ``[CHUNK / GROUP, GROUP]``."""
    group = chunk * (CHUNK // GROUP_SIZE) + tl.arange(0, CHUNK // GROUP_SIZE)
    return group, group[:, None] * GROUP_SIZE + tl.arange(0, GROUP_SIZE)[None, :]


@triton.jit
def finite_or_zero(value):
    """Infinity minus infinity would be NaN."""
    return tl.where(tl.abs(value) == float("inf"), 0.0, value)


@triton.jit
def exponent_scale(temperature):
    """What differences of scores are multiplied by, to be exponents of 2; finite and not 0."""
    divisor = tl.where(temperature > 0.0, tl.maximum(temperature, 1e-30), 1.0)
    return tl.maximum(_LOG2_E / divisor, 1e-30)


@triton.jit
def group_sums(score, largest, scale):
    """Sum of exp((score - largest) / temperature) of each group; NaN if it has one."""
    return tl.sum(tl.exp2((score - finite_or_zero(largest)[:, None]) * scale), 1)


@triton.jit
def _first_of_best(value, place):
    return tl.min(tl.where(value == tl.max(value, 0), place, _NO_TOKEN), 0)


@triton.jit
def draw_row(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    group_best_ptr,  # [rows, groups] float32: the group's largest score
    group_sum_ptr,  # [rows, groups] float32: sum of exp relative to it, of what is left
    raw_best_ptr,  # [rows, groups] float32: as the two above, of all raw logits; not read
    raw_sum_ptr,  # if not LOGPROBS
    token_ptr,  # [rows] int64
    best_ptr,  # [rows] float32
    logprob_ptr,  # [rows] float32
    row,
    bound,  # relative scores below are out
    vocab,
    groups,
    GROUPS_POW2: tl.constexpr,
    PENALTIES: tl.constexpr,
    FILTERED: tl.constexpr,
    LOGPROBS: tl.constexpr,
):
    """Draws one row's token from its groups; the drawn token counts from the next draw on."""
    group = tl.arange(0, GROUPS_POW2)
    inside = group < groups
    place = row * groups + group
    # All loads are under way before the first is waited for.
    bests = tl.load(group_best_ptr + place, mask=inside, other=float("-inf"))
    # Written by other programs if FILTERED.
    left = tl.load(group_sum_ptr + place, mask=inside, other=0.0, cache_modifier=".cg")
    temperature = tl.load(floats_ptr + row * 14 + 8)
    seed = tl.load(ints_ptr + row * 7)
    index = tl.load(ints_ptr + row * 7 + 1)
    best = tl.max(bests, 0)
    tl.store(best_ptr + row, best)
    if not ((best > float("-inf")) & (best < float("inf"))):
        tl.store(token_ptr + row, tl.full([], -1, tl.int64))
        tl.store(logprob_ptr + row, float("nan"))
        return
    # Of greedy rows: both of the largest score, the first of equals.
    first = _first_of_best(bests, group)
    if temperature > 0.0:
        weight = (bests - best) * exponent_scale(temperature)
        weight += tl.log2(tl.where(left > 0.0, left, 1.0))
        weight = tl.where(left > 0.0, weight * _LN_2, float("-inf"))
        first = place_of_largest(weight, group, seed, index, _GROUPS)

    token = first * GROUP_SIZE + tl.arange(0, GROUP_SIZE)
    _, score = score_tile(
        logits_ptr + row * logits_stride, floats_ptr, ints_ptr, count_ptr, row, token, vocab,
        PENALTIES,
    )  # fmt: skip
    chosen = _first_of_best(score, token)
    if temperature > 0.0:
        relative = tl.div_rn(score - best, temperature + tl.zeros_like(score))
        if FILTERED:
            relative = tl.where(relative < bound, float("-inf"), relative)
        chosen = place_of_largest(relative, token, seed, index, _TOKENS)
    tl.store(token_ptr + row, chosen.to(tl.int64))
    if LOGPROBS:
        largest = tl.load(raw_best_ptr + place, mask=inside, other=float("-inf"))
        sums = tl.load(raw_sum_ptr + place, mask=inside, other=0.0)
        most = tl.max(largest, 0)
        whole = tl.sum(tl.where(sums > 0.0, sums * tl.exp(largest - most), 0.0), 0)
        raw = tl.load(logits_ptr + row * logits_stride + chosen).to(tl.float32)
        tl.store(logprob_ptr + row, raw - most - tl.log(whole))
    if PENALTIES:
        slot = tl.load(ints_ptr + row * 7 + 3)
        if slot >= 0:
            cell = count_ptr + slot * vocab + chosen
            tl.store(cell, tl.load(cell) + 1)


@triton.jit
def sums_of_what_is_left(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    group_best_ptr,
    group_sum_ptr,
    row,
    chunk,
    chunk_best,
    best,
    temperature,
    bound,
    vocab,
    groups,
    CHUNK: tl.constexpr,
    PENALTIES: tl.constexpr,
):
    """Replaces the sums of a chunk's groups by those of the relative scores from ``bound`` on."""
    group, token = group_tokens(chunk, CHUNK)
    inside = group < groups
    place = row * groups + group
    sums = tl.zeros([CHUNK // GROUP_SIZE], tl.float32)
    if tl.div_rn(chunk_best - best, temperature) >= bound:
        largest = tl.load(group_best_ptr + place, mask=inside, other=float("-inf"))
        relative = relative_tile(
            logits_ptr + row * logits_stride, floats_ptr, ints_ptr, count_ptr, row, token, vocab,
            best, temperature, PENALTIES,
        )  # fmt: skip
        of_largest = tl.div_rn(largest - best, temperature + tl.zeros_like(largest))
        weight = tl.exp(relative - finite_or_zero(of_largest)[:, None])
        sums = tl.sum(tl.where(relative >= bound, weight, 0.0), 1)
    tl.store(group_sum_ptr + place, sums, mask=inside)
