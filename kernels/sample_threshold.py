"""Where top-k and top-p cut a row's scores, without sorting the vocabulary (Triton).

Scores are relative: at their temperature, the best one 0. A pivot is known to lie on one side of
the cut as soon as the number and the mass of the scores above it are known, so each round of
pivots narrows the interval in which the cut lies. What is left in it is sorted.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.sample_buffers import PIVOTS, ROUNDS, STATE_WORDS, SampleBuffers
from kernels.score_tile import relative_tile

_PIVOTS = tl.constexpr(PIVOTS)
_LANES = tl.constexpr(16)
_STATE_WORDS = tl.constexpr(STATE_WORDS)
_LOWEST = tl.constexpr(-25.0)
_ABOVE_ALL = tl.constexpr(1.0)
# Sums of float32 in another order differ by less.
_SLACK = tl.constexpr(1e-5)


@triton.jit
def _row_best(chunk_best_ptr, row, chunks, CHUNKS_POW2: tl.constexpr):
    chunk = tl.arange(0, CHUNKS_POW2)
    return tl.load(chunk_best_ptr + row * chunks + chunk, mask=chunk < chunks, other=float("-inf"))


@triton.jit
def _is_cut(best, temperature, top_k, top_p):
    finite = (best > float("-inf")) & (best < float("inf"))
    return finite & (temperature > 0.0) & ((top_k > 0) | (top_p < 1.0))


@triton.jit
def _first_pivots():
    """From the best score down to the lowest that matters, dense at the top; then all scores."""
    index = tl.arange(0, _PIVOTS)
    step = (index + 1).to(tl.float32) / (_PIVOTS - 1)
    return tl.where(index == _PIVOTS - 1, float("-inf"), _LOWEST * step * step)


@triton.jit
def _even_pivots(low, high):
    """From just below ``high`` down to ``low``."""
    index = tl.arange(0, _PIVOTS)
    pivot = high - (high - low) * (index + 1).to(tl.float32) / _PIVOTS
    return tl.where(index == _PIVOTS - 1, low, pivot)


@triton.jit
def _tile_sums(relative, pivots, CHUNK: tl.constexpr):
    """Number and mass of the scores at or above each pivot, of a tile ``[CHUNK / 16, 16]``."""
    index = tl.arange(0, _PIVOTS)
    numbers = tl.zeros([CHUNK // _LANES, _PIVOTS], tl.int32)
    masses = tl.zeros([CHUNK // _LANES, _PIVOTS], tl.float32)
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
def _merged(number_ptr, mass_ptr, row, chunks, CHUNKS_POW2: tl.constexpr):
    """Sums of ``_tile_sums`` over a row's chunks."""
    chunk = tl.arange(0, CHUNKS_POW2)
    cell = (row * chunks + chunk)[:, None] * _PIVOTS + tl.arange(0, _PIVOTS)[None, :]
    inside = (chunk < chunks)[:, None]
    numbers = tl.load(number_ptr + cell, mask=inside, other=0, cache_modifier=".cg")
    masses = tl.load(mass_ptr + cell, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(numbers, 0), tl.sum(masses, 0)


@triton.jit
def _narrow(
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
def _load_state(state_ptr, row):
    """What the rounds so far have found; see ``_save_state``."""
    word = state_ptr + row * _STATE_WORDS
    return (
        tl.load(word),
        tl.load(word + 1),
        tl.load(word + 2).to(tl.int32),
        tl.load(word + 3),
        tl.load(word + 4),
    )


@triton.jit
def _save_state(state_ptr, row, low, high, number_above, mass_above, whole):
    word = state_ptr + row * _STATE_WORDS
    tl.store(word, low)
    tl.store(word + 1, high)
    # A vocabulary is smaller than 2**24: exact in float32.
    tl.store(word + 2, number_above.to(tl.float32))
    tl.store(word + 3, mass_above)
    tl.store(word + 4, whole)


@triton.jit
def _tile_of(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    row,
    chunk,
    vocab,
    best,
    temperature,
    CHUNK: tl.constexpr,
    PENALTIES: tl.constexpr,
):
    group = tl.arange(0, CHUNK // _LANES)
    token = chunk * CHUNK + group[:, None] * _LANES + tl.arange(0, _LANES)[None, :]
    return relative_tile(
        logits_ptr + row * logits_stride, floats_ptr, ints_ptr, count_ptr, row, token, vocab, best,
        temperature, PENALTIES,
    )  # fmt: skip


@triton.jit
def _append(relative, low, high, list_ptr, cursor, LIST: tl.constexpr):
    """Adds the scores in [low, high) to a list, as far as it has room; in any order."""
    inside = (relative >= low) & (relative < high)
    ones = inside.to(tl.int32)
    place = tl.atomic_add(cursor + tl.zeros_like(ones), ones, mask=inside)
    tl.store(list_ptr + place, relative, mask=inside & (place < LIST))
    return inside


@triton.jit
def _count_kernel(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    chunk_best_ptr,
    number_ptr,  # [rows, chunks, PIVOTS] int32
    mass_ptr,  # [rows, chunks, PIVOTS] float32
    cursor_ptr,  # [rows, 4] int32: scores in the list, chunks done with it, done with counting
    state_ptr,  # [rows, STATE_WORDS] float32
    vocab,
    CHUNK: tl.constexpr,
    CHUNKS_POW2: tl.constexpr,
    PENALTIES: tl.constexpr,
    ROUND: tl.constexpr,
):
    """Program = (chunk, row): one round of pivots."""
    chunk = tl.program_id(0)
    chunks = tl.num_programs(0)
    row = tl.program_id(1).to(tl.int64)
    bests = _row_best(chunk_best_ptr, row, chunks, CHUNKS_POW2)
    best = tl.max(bests, 0)
    temperature = tl.load(floats_ptr + row * 14 + 8)
    top_p = tl.load(floats_ptr + row * 14 + 9)
    top_k = tl.load(ints_ptr + row * 7 + 2).to(tl.int32)
    if not _is_cut(best, temperature, top_k, top_p):
        return
    pivots = _first_pivots()
    low = tl.full([], _LOWEST, tl.float32)
    high = tl.full([], _ABOVE_ALL, tl.float32)
    number_above = tl.full([], 0, tl.int32)
    mass_above = tl.full([], 0.0, tl.float32)
    whole = tl.full([], 0.0, tl.float32)
    if ROUND > 0:
        low, high, number_above, mass_above, whole = _load_state(state_ptr, row)
        pivots = _even_pivots(low, high)
    mine = tl.max(tl.where(tl.arange(0, CHUNKS_POW2) == chunk, bests, float("-inf")), 0)
    numbers = tl.zeros([_PIVOTS], tl.int32)
    masses = tl.zeros([_PIVOTS], tl.float32)
    if tl.div_rn(mine - best, temperature) >= tl.min(pivots, 0):
        relative = _tile_of(
            logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk, vocab, best,
            temperature, CHUNK, PENALTIES,
        )  # fmt: skip
        numbers, masses = _tile_sums(relative, pivots, CHUNK)
    out = (row * chunks + chunk) * _PIVOTS + tl.arange(0, _PIVOTS)
    tl.store(number_ptr + out, numbers)
    tl.store(mass_ptr + out, masses)
    # All threads' stores come before the count, and the count before the last one's loads.
    tl.debug_barrier()
    done = tl.atomic_add(cursor_ptr + row * 4 + 2, 1, sem="acq_rel")
    if done == (ROUND + 1) * chunks - 1:
        numbers, masses = _merged(number_ptr, mass_ptr, row, chunks, CHUNKS_POW2)
        if ROUND == 0:
            whole = tl.max(masses, 0)
        low, high, number_above, mass_above = _narrow(
            pivots, numbers, masses, low, high, number_above, mass_above, whole, top_k, top_p,
            _SLACK,
        )  # fmt: skip
        _save_state(state_ptr, row, low, high, number_above, mass_above, whole)


@triton.jit
def _select(
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
def _search(
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
                relative = _tile_of(
                    logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk, vocab,
                    best, temperature, CHUNK, PENALTIES,
                )  # fmt: skip
                inside = _append(relative, low, high, list_ptr, cursor, LIST)
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
                    relative = _tile_of(
                        logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk,
                        vocab, best, temperature, CHUNK, PENALTIES,
                    )  # fmt: skip
                    tile_numbers, tile_masses = _tile_sums(relative, pivots, CHUNK)
                    numbers += tile_numbers
                    masses += tile_masses
            low, high, number_above, mass_above = _narrow(
                pivots, numbers, masses, low, high, number_above, mass_above, whole, k_now, p_now,
                0.0,
            )  # fmt: skip
        else:
            bound, total = _select(
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


@triton.jit
def _bound_kernel(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    chunk_best_ptr,
    number_ptr,
    mass_ptr,
    cursor_ptr,
    state_ptr,
    list_ptr,  # [rows, LIST] float32
    bound_ptr,  # [rows] float32
    vocab,
    CHUNK: tl.constexpr,
    CHUNKS_POW2: tl.constexpr,
    PENALTIES: tl.constexpr,
    LIST: tl.constexpr,
):
    """Program = (chunk, row): collects what is left; a row's last one sorts it."""
    chunk = tl.program_id(0)
    chunks = tl.num_programs(0)
    row = tl.program_id(1).to(tl.int64)
    bests = _row_best(chunk_best_ptr, row, chunks, CHUNKS_POW2)
    best = tl.max(bests, 0)
    temperature = tl.load(floats_ptr + row * 14 + 8)
    top_p = tl.load(floats_ptr + row * 14 + 9)
    log_min_p = tl.load(floats_ptr + row * 14 + 10)
    top_k = tl.load(ints_ptr + row * 7 + 2).to(tl.int32)
    if not _is_cut(best, temperature, top_k, top_p):
        if chunk == 0:
            floor = tl.where(log_min_p > float("-inf"), tl.maximum(log_min_p, _LOWEST), log_min_p)
            tl.store(bound_ptr + row, floor)
        return
    low, high, number_above, mass_above, whole = _load_state(state_ptr, row)
    scores = list_ptr + row * LIST
    cursor = cursor_ptr + row * 4
    mine = tl.max(tl.where(tl.arange(0, CHUNKS_POW2) == chunk, bests, float("-inf")), 0)
    if tl.div_rn(mine - best, temperature) >= low:
        relative = _tile_of(
            logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk, vocab, best,
            temperature, CHUNK, PENALTIES,
        )  # fmt: skip
        _append(relative, low, high, scores, cursor, LIST)
    # All threads' stores come before the count, and the count before the last one's loads.
    tl.debug_barrier()
    done = tl.atomic_add(cursor + 1, 1, sem="acq_rel")
    if done == chunks - 1:
        found = tl.load(cursor, cache_modifier=".cg")
        bound = low
        if found <= LIST:
            bound, _ = _select(
                scores, found, low, low, number_above, mass_above, whole, top_k, top_p, LIST
            )
        else:
            bound = _search(
                logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, chunk_best_ptr, row,
                chunks, vocab, best, temperature, low, high, number_above, mass_above, whole, top_k,
                top_p, scores, cursor, CHUNK, PENALTIES, LIST,
            )  # fmt: skip
        tl.store(bound_ptr + row, tl.maximum(bound, log_min_p))


def find_bounds(
    shared: tuple[Any, ...], buffers: SampleBuffers, vocab: int, penalties: bool
) -> None:
    """Fills ``buffers.bounds``: ``ROUNDS`` + 1 launches.

    Args:
        shared: the first arguments of every kernel: logits, their stride, parameters as float32 and
            as int64, counts.
        buffers: with the chunks' best scores.
        vocab: tokens of a row.
        penalties: some row may have a slot of the counts.
    """
    launch, grid = buffers.launch, (buffers.chunks, len(buffers.bounds))
    choices = {
        "CHUNK": launch.chunk,
        "CHUNKS_POW2": triton.next_power_of_2(buffers.chunks),
        "PENALTIES": penalties,
        "enable_fp_fusion": False,
    }
    state = (buffers.chunk_best, buffers.numbers, buffers.masses, buffers.cursors, buffers.state)
    for done in range(ROUNDS):
        _count_kernel[grid](
            *shared, *state, vocab, ROUND=done, num_warps=launch.num_warps, **choices
        )
    _bound_kernel[grid](
        *shared,
        *state,
        buffers.list,
        buffers.bounds,
        vocab,
        LIST=launch.list_size,
        num_warps=launch.sort_warps,
        **choices,
    )
