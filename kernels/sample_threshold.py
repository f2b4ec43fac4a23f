"""Where top-k and top-p cut a row's scores, without sorting the vocabulary (Triton).

Scores are relative: at their temperature, the best one 0. A pivot is known to lie on one side of
the cut as soon as the number and the mass of the scores above it are known, so each round of
pivots narrows the interval in which the cut lies. What is left in it is sorted.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.sample_buffers import PIVOTS, ROUNDS, SampleBuffers
from kernels.score_list import append_scores, search_cut, select_cut
from kernels.score_pivots import (
    LOWEST,
    even_pivots,
    first_pivots,
    load_state,
    merged_sums,
    narrow,
    save_state,
    tile_sums,
)
from kernels.score_tile import chunk_tile

_PIVOTS = tl.constexpr(PIVOTS)
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
    pivots = first_pivots()
    low = tl.full([], LOWEST, tl.float32)
    high = tl.full([], _ABOVE_ALL, tl.float32)
    number_above = tl.full([], 0, tl.int32)
    mass_above = tl.full([], 0.0, tl.float32)
    whole = tl.full([], 0.0, tl.float32)
    if ROUND > 0:
        low, high, number_above, mass_above, whole = load_state(state_ptr, row)
        pivots = even_pivots(low, high)
    mine = tl.max(tl.where(tl.arange(0, CHUNKS_POW2) == chunk, bests, float("-inf")), 0)
    numbers = tl.zeros([_PIVOTS], tl.int32)
    masses = tl.zeros([_PIVOTS], tl.float32)
    if tl.div_rn(mine - best, temperature) >= tl.min(pivots, 0):
        relative = chunk_tile(
            logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk, vocab, best,
            temperature, CHUNK, PENALTIES,
        )  # fmt: skip
        numbers, masses = tile_sums(relative, pivots, CHUNK)
    out = (row * chunks + chunk) * _PIVOTS + tl.arange(0, _PIVOTS)
    tl.store(number_ptr + out, numbers)
    tl.store(mass_ptr + out, masses)
    # All threads' stores come before the count, and the count before the last one's loads.
    tl.debug_barrier()
    done = tl.atomic_add(cursor_ptr + row * 4 + 2, 1, sem="acq_rel")
    if done == (ROUND + 1) * chunks - 1:
        numbers, masses = merged_sums(number_ptr, mass_ptr, row, chunks, CHUNKS_POW2)
        if ROUND == 0:
            whole = tl.max(masses, 0)
        low, high, number_above, mass_above = narrow(
            pivots, numbers, masses, low, high, number_above, mass_above, whole, top_k, top_p,
            _SLACK,
        )  # fmt: skip
        save_state(state_ptr, row, low, high, number_above, mass_above, whole)


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
            floor = tl.where(log_min_p > float("-inf"), tl.maximum(log_min_p, LOWEST), log_min_p)
            tl.store(bound_ptr + row, floor)
        return
    low, high, number_above, mass_above, whole = load_state(state_ptr, row)
    scores = list_ptr + row * LIST
    cursor = cursor_ptr + row * 4
    mine = tl.max(tl.where(tl.arange(0, CHUNKS_POW2) == chunk, bests, float("-inf")), 0)
    if tl.div_rn(mine - best, temperature) >= low:
        relative = chunk_tile(
            logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, row, chunk, vocab, best,
            temperature, CHUNK, PENALTIES,
        )  # fmt: skip
        append_scores(relative, low, high, scores, cursor, LIST)
    # All threads' stores come before the count, and the count before the last one's loads.
    tl.debug_barrier()
    done = tl.atomic_add(cursor + 1, 1, sem="acq_rel")
    if done == chunks - 1:
        found = tl.load(cursor, cache_modifier=".cg")
        bound = low
        if found <= LIST:
            bound, _ = select_cut(
                scores, found, low, low, number_above, mass_above, whole, top_k, top_p, LIST
            )
        else:
            bound = search_cut(
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
