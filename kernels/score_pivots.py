"""Pivots among the scores of a row: what is above each tells on which side of it the cut lies
(Triton).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.sample_buffers import PIVOTS, STATE_WORDS
from kernels.score_tile import LANES

_PIVOTS = tl.constexpr(PIVOTS)
_STATE_WORDS = tl.constexpr(STATE_WORDS)
LOWEST = tl.constexpr(-25.0)


@triton.jit
def first_pivots():
    """From the best score down to the lowest that matters, dense at the top; then all scores."""
    index = tl.arange(0, _PIVOTS)
    step = (index + 1).to(tl.float32) / (_PIVOTS - 1)
    return tl.where(index == _PIVOTS - 1, float("-inf"), LOWEST * step * step)


@triton.jit
def even_pivots(low, high):
    """From just below ``high`` down to ``low``."""
    index = tl.arange(0, _PIVOTS)
    pivot = high - (high - low) * (index + 1).to(tl.float32) / _PIVOTS
    return tl.where(index == _PIVOTS - 1, low, pivot)


@triton.jit
def tile_sums(relative, pivots, CHUNK: tl.constexpr):
    """Number and mass of the scores at or above each pivot, of a tile ``[CHUNK / 16, 16]``."""
    index = tl.arange(0, _PIVOTS)
    numbers = tl.zeros([CHUNK // LANES, _PIVOTS], tl.int32)
    masses = tl.zeros([CHUNK // LANES, _PIVOTS], tl.float32)
    weight = tl.exp(relative)
    for i in tl.static_range(_PIVOTS):
        pivot = tl.max(tl.where(index == i, pivots, float("-inf")), 0)
        above = relative >= pivot
        # Added up within threads first: one sum over all of them does for all pivots.
        number = tl.sum(above.to(tl.int32), 1)
        mass = tl.sum(tl.where(above, weight, 0.0), 1)
        here = (index == i)[None, :]
        numbers = tl.where(here, number[:, None], numbers)
        masses = tl.where(here, mass[:, None], masses)
    return tl.sum(numbers, 0), tl.sum(masses, 0)


@triton.jit
def merged_sums(number_ptr, mass_ptr, row, chunks, CHUNKS_POW2: tl.constexpr):
    """Sums of ``tile_sums`` over a row's chunks."""
    chunk = tl.arange(0, CHUNKS_POW2)
    cell = (row * chunks + chunk)[:, None] * _PIVOTS + tl.arange(0, _PIVOTS)[None, :]
    inside = (chunk < chunks)[:, None]
    numbers = tl.load(number_ptr + cell, mask=inside, other=0, cache_modifier=".cg")
    masses = tl.load(mass_ptr + cell, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(numbers, 0), tl.sum(masses, 0)


@triton.jit
def narrow(
    pivots, numbers, masses, low, high, number_above, mass_above, whole, top_k, top_p, slack
):
    """The part of [low, high) in which the cut lies, with number and mass of what is above it."""
    total_most = whole
    total_least = whole
    cut_k = numbers >= top_k
    if top_k > 0:
        # Top-p is of the mass that top-k leaves, which is known only as far as top-k's own cut is.
        total_most = tl.min(tl.where(cut_k, masses, whole), 0)
        total_least = tl.max(tl.where(cut_k, 0.0, masses), 0)
    below = tl.where(top_k > 0, cut_k, numbers >= 0)
    above = tl.where(top_k > 0, numbers < top_k, numbers >= 0)
    if top_p < 1.0:
        below &= masses >= top_p * total_most * (1.0 + slack)
        above &= masses < top_p * total_least * (1.0 - slack)
    low = tl.maximum(low, tl.max(tl.where(below, pivots, float("-inf")), 0))
    new_high = tl.min(tl.where(above, pivots, float("inf")), 0)
    lowered = new_high < high
    number_above = tl.where(lowered, tl.max(tl.where(above, numbers, 0), 0), number_above)
    mass_above = tl.where(lowered, tl.max(tl.where(above, masses, 0.0), 0), mass_above)
    return low, tl.minimum(high, new_high), number_above, mass_above


@triton.jit
def load_state(state_ptr, row):
    """What the rounds so far have found; see ``save_state``."""
    word = state_ptr + row * _STATE_WORDS
    return (
        tl.load(word),
        tl.load(word + 1),
        tl.load(word + 2).to(tl.int32),
        tl.load(word + 3),
        tl.load(word + 4),
    )


@triton.jit
def save_state(state_ptr, row, low, high, number_above, mass_above, whole):
    word = state_ptr + row * _STATE_WORDS
    tl.store(word, low)
    tl.store(word + 1, high)
    # A vocabulary is smaller than 2**24: exact in float32.
    tl.store(word + 2, number_above.to(tl.float32))
    tl.store(word + 3, mass_above)
    tl.store(word + 4, whole)
