"""The cut of a row from a sorted list of the scores among which it lies; where they are more than
the list holds, they are narrowed further (Triton).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.sample_buffers import PIVOTS
from kernels.score_pivots import narrow, tile_sums
from kernels.score_tile import chunk_tile

_PIVOTS = tl.constexpr(PIVOTS)


@triton.jit
def append_scores(relative, low, high, list_ptr, cursor, LIST: tl.constexpr):
    """Adds the scores in [low, high) to a list, as far as it has room; in any order."""
    inside = (relative >= low) & (relative < high)
    ones = inside.to(tl.int32)
    place = tl.atomic_add(cursor + tl.zeros_like(ones), ones, mask=inside)
    tl.store(list_ptr + place, relative, mask=inside & (place < LIST))
    return inside


@triton.jit
def select_cut(
    list_ptr,  # [LIST], in any order
    found,  # scores in the list; more than LIST if all are equal
    smallest,
    low,
    number_above,
    mass_above,
    whole,
    top_k,
    top_p,
    LIST: tl.constexpr,
):
    """The lowest score that stays, and the mass that top-k leaves (all of it without top-k)."""
    bound = smallest
    total = whole
    if found <= LIST:
        index = tl.arange(0, LIST)
        scores = tl.load(
            list_ptr + index, mask=index < found, other=float("-inf"), cache_modifier=".cg"
        )
        scores = tl.sort(scores, descending=True)
        usable = found
        if top_k > 0:
            usable = tl.minimum(found, top_k - number_above)
        weight = tl.where(index < usable, tl.exp(scores), 0.0)
        if top_k > 0:
            total = mass_above + tl.sum(weight, 0)
        place = usable - 1
        if top_p < 1.0:
            mass = mass_above + tl.cumsum(weight, 0)
            short = (index < usable) & (mass < top_p * total)
            place = tl.minimum(tl.sum(short.to(tl.int32), 0), usable - 1)
        bound = tl.max(tl.where(index == place, scores, float("-inf")), 0)
        bound = tl.where(found > 0, bound, low)
    elif top_k > 0:
        total = mass_above + (top_k - number_above).to(tl.float32) * tl.exp(smallest)
    return bound, total


@triton.jit
def search_cut(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    chunk_best_ptr,
    row,
    chunks,
    vocab,
    best,
    temperature,
    low,
    high,
    number_above,
    mass_above,
    whole,
    top_k,
    top_p,
    list_ptr,
    cursor,
    CHUNK: tl.constexpr,
    PENALTIES: tl.constexpr,
    LIST: tl.constexpr,
):
    """The cut where the list does not hold what is left: one program narrows it further.

    Top-k first where both cut: then top-p, of a mass that is known.
    """
    k_now = top_k
    p_now = top_p
    high_p = high
    number_above_p = number_above
    mass_above_p = mass_above
    bound = low
    busy = True
    while busy:
        tl.debug_barrier()
        tl.store(cursor, 0)
        tl.debug_barrier()
        found = tl.full([], 0, tl.int32)
        smallest = tl.full([], float("inf"), tl.float32)
        largest = tl.full([], float("-inf"), tl.float32)
        for chunk in range(chunks):
            chunk_best = tl.load(chunk_best_ptr + row * chunks + chunk)
            if tl.div_rn(chunk_best - best, temperature) >= low:
                relative = chunk_tile(
                    logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk, vocab,
                    best, temperature, CHUNK, PENALTIES,
                )  # fmt: skip
                inside = append_scores(relative, low, high, list_ptr, cursor, LIST)
                found += tl.sum(tl.sum(inside.to(tl.int32), 1), 0)
                least = tl.where(inside, relative, float("inf"))
                most = tl.where(inside, relative, float("-inf"))
                smallest = tl.minimum(smallest, tl.min(tl.min(least, 1), 0))
                largest = tl.maximum(largest, tl.max(tl.max(most, 1), 0))
        tl.debug_barrier()
        if (found > LIST) & (smallest < largest):
            if k_now > 0:
                p_now = 1.0
            # The largest score is a pivot, so that each round leaves fewer.
            index = tl.arange(0, _PIVOTS)
            spread = (largest - smallest) * index.to(tl.float32) / _PIVOTS
            pivots = tl.where(index == _PIVOTS - 1, smallest, largest - spread)
            numbers = tl.zeros([_PIVOTS], tl.int32)
            masses = tl.zeros([_PIVOTS], tl.float32)
            for chunk in range(chunks):
                chunk_best = tl.load(chunk_best_ptr + row * chunks + chunk)
                if tl.div_rn(chunk_best - best, temperature) >= smallest:
                    relative = chunk_tile(
                        logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk,
                        vocab, best, temperature, CHUNK, PENALTIES,
                    )  # fmt: skip
                    tile_numbers, tile_masses = tile_sums(relative, pivots, CHUNK)
                    numbers += tile_numbers
                    masses += tile_masses
            low, high, number_above, mass_above = narrow(
                pivots, numbers, masses, low, high, number_above, mass_above, whole, k_now, p_now,
                0.0,
            )  # fmt: skip
        else:
            bound, total = select_cut(
                list_ptr, found, smallest, low, number_above, mass_above, whole, k_now, p_now, LIST
            )
            busy = (k_now > 0) & (p_now >= 1.0) & (top_p < 1.0)
            if busy:
                whole = total
                low = bound
                high = high_p
                number_above = number_above_p
                mass_above = mass_above_p
                k_now = tl.full([], 0, tl.int32)
                p_now = top_p
    return bound
