"""Drawing the next token of each row of logits, without sorting the vocabulary (Triton).

Two launches: the first reads all scores once (penalties applied) and leaves the largest score and
the sum of exponentials of each group of tokens; the second draws the row's group, and in it the
token. Rows with top-k or top-p need five more in between: four count the scores above eight pivots
each, and one sorts the few scores that are left between two pivots; the last then sums up what the
cut leaves of the groups before it draws. What is drawn is what ``kernels.reference.sample`` draws
of the same float32 logits.

The first must keep up with memory: 12 instructions an element of bfloat16 and 32 registers, as
compiled for compute capability 9.0. A group's sum is relative to its own largest score: the row's
is not known yet, and a chunk's would make its rounding depend on the chunk.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.device_guard import on_device_of
from kernels.launch import SampleLaunch, sample_launch
from kernels.reference.gumbel import GROUP
from kernels.reference.sample import Parameter, Sampled
from kernels.sample_buffers import SampleBuffers
from kernels.sample_threshold import find_bounds
from kernels.score_groups import (
    draw_row,
    exponent_scale,
    finite_or_zero,
    group_sums,
    group_tokens,
    sums_of_what_is_left,
)
from kernels.score_tile import score_tile


@triton.jit
def _scan_kernel(
    logits_ptr,  # [rows, vocab]
    logits_stride,
    floats_ptr,  # [rows, 14] float32, see Parameter
    ints_ptr,  # [rows, 7] int64
    count_ptr,  # [slots, vocab] int32
    group_best_ptr,  # [rows, groups] float32
    group_sum_ptr,  # [rows, groups] float32
    raw_best_ptr,  # [rows, groups] float32: as the two above, of raw logits at temperature 1
    raw_sum_ptr,  # [rows, groups] float32
    chunk_best_ptr,  # [rows, chunks] float32
    cursor_ptr,  # [rows, 4] int32
    vocab,
    groups,
    CHUNK: tl.constexpr,
    PENALTIES: tl.constexpr,
    FILTERED: tl.constexpr,
    LOGPROBS: tl.constexpr,
):
    """Program = (chunk, row)."""
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    group, token = group_tokens(chunk, CHUNK)
    raw, score = score_tile(
        logits_ptr + row * logits_stride,
        floats_ptr,
        ints_ptr,
        count_ptr,
        row,
        token,
        vocab,
        PENALTIES,
    )
    scale = exponent_scale(tl.load(floats_ptr + row * 14 + 8))
    largest = tl.max(score, 1)
    sums = group_sums(score, largest, scale)
    # NaN counts as the largest, as in argmax; the maximum leaves it out, the sum does not.
    largest = tl.where(sums != sums, float("inf"), largest)
    place = row * groups + group
    inside = group < groups
    tl.store(group_best_ptr + place, largest, mask=inside)
    tl.store(group_sum_ptr + place, sums, mask=inside)
    if LOGPROBS:
        raw_best = tl.max(raw, 1)
        weights = tl.exp(raw - finite_or_zero(raw_best)[:, None])
        tl.store(raw_best_ptr + place, raw_best, mask=inside)
        tl.store(raw_sum_ptr + place, tl.sum(weights, 1), mask=inside)
    if FILTERED:
        tl.store(chunk_best_ptr + row * tl.num_programs(0) + chunk, tl.max(largest, 0))
        if chunk == 0:
            tl.store(cursor_ptr + row * 4 + tl.arange(0, 4), tl.zeros([4], tl.int32))


@triton.jit
def _draw_kernel(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    group_best_ptr,
    group_sum_ptr,
    raw_best_ptr,
    raw_sum_ptr,
    token_ptr,  # [rows] int64
    best_ptr,  # [rows] float32
    logprob_ptr,  # [rows] float32
    vocab,
    groups,
    GROUPS_POW2: tl.constexpr,
    PENALTIES: tl.constexpr,
    LOGPROBS: tl.constexpr,
):
    """Program = row."""
    draw_row(
        logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, group_best_ptr, group_sum_ptr,
        raw_best_ptr, raw_sum_ptr, token_ptr, best_ptr, logprob_ptr,
        tl.program_id(0).to(tl.int64), float("-inf"), vocab, groups, GROUPS_POW2, PENALTIES, False,
        LOGPROBS,
    )  # fmt: skip


@triton.jit
def _cut_draw_kernel(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    group_best_ptr,
    group_sum_ptr,
    raw_best_ptr,
    raw_sum_ptr,
    token_ptr,
    best_ptr,
    logprob_ptr,
    vocab,
    groups,
    chunk_best_ptr,
    bound_ptr,  # [rows] float32, relative scores below are out
    cursor_ptr,  # [rows, 4] int32, the last: chunks done with this
    GROUPS_POW2: tl.constexpr,
    PENALTIES: tl.constexpr,
    LOGPROBS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS_POW2: tl.constexpr,
):
    """Program = (chunk, row): sums up what is left of its groups; a row's last one draws."""
    chunk = tl.program_id(0)
    chunks = tl.num_programs(0)
    row = tl.program_id(1).to(tl.int64)
    other = tl.arange(0, CHUNKS_POW2)
    place = chunk_best_ptr + row * chunks + other
    bests = tl.load(place, mask=other < chunks, other=float("-inf"))
    best = tl.max(bests, 0)
    temperature = tl.load(floats_ptr + row * 14 + 8)
    bound = tl.load(bound_ptr + row)
    finite = (best > float("-inf")) & (best < float("inf"))
    if finite & (temperature > 0.0) & (bound > float("-inf")):
        sums_of_what_is_left(
            logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, group_best_ptr,
            group_sum_ptr, row, chunk, tl.max(tl.where(other == chunk, bests, float("-inf")), 0),
            best, temperature, bound, vocab, groups, CHUNK, PENALTIES,
        )  # fmt: skip
    # All threads' stores come before the count, and the count before the last one's loads.
    tl.debug_barrier()
    if tl.atomic_add(cursor_ptr + row * 4 + 3, 1, sem="acq_rel") == chunks - 1:
        draw_row(
            logits_ptr, logits_stride, floats_ptr, ints_ptr, count_ptr, group_best_ptr,
            group_sum_ptr, raw_best_ptr, raw_sum_ptr, token_ptr, best_ptr, logprob_ptr, row, bound,
            vocab, groups, GROUPS_POW2, PENALTIES, True, LOGPROBS,
        )  # fmt: skip


def sample(
    logits: Tensor,
    parameters: Tensor,
    counts: Tensor | None = None,
    *,
    filtered: bool = True,
    logprobs: bool = False,
    launch: SampleLaunch | None = None,
) -> Sampled:
    """Draws one token a row; see ``kernels.reference.sample.sample`` for the order of things.

    Args:
        logits: ``[rows, vocab_size]``, float32, float16 or bfloat16, a row contiguous.
        parameters: ``[rows, 7]`` int64, contiguous; ``kernels.reference.sample.pack``.
        counts: ``[slots, vocab_size]`` int32, contiguous: how often a slot's request has each token
            in its output, plus ``PROMPT_COUNT`` where the prompt has it; the drawn tokens are
            added. None: no row has a slot.
        filtered: some row may have top-k, top-p or min-p. False saves the launches for them.
        logprobs: fill ``Sampled.logprobs``.
        launch: how rows are cut; chosen by ``launch.sample_launch`` if None.

    Returns:
        Tensors on the logits' device; nothing waits for them.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    rows, vocab = logits.shape
    if parameters.shape != (rows, len(Parameter)) or not parameters.is_contiguous():
        raise ValueError(f"{tuple(parameters.shape)} parameters for {rows} rows")
    if logits.stride(1) != 1 or (counts is not None and not counts.is_contiguous()):
        raise ValueError("rows of logits and of counts must be contiguous")
    if counts is not None and counts.shape[1] != vocab:
        raise ValueError(f"counts of {counts.shape[1]} tokens for logits of {vocab}")
    launch = launch or sample_launch(rows, filtered, logits.device)
    if launch.chunk % GROUP:
        raise ValueError(f"chunks of {launch.chunk} tokens: no whole number of groups of {GROUP}")
    buffers = SampleBuffers(rows, vocab, launch, logits.device, filtered, logprobs)
    if rows == 0:
        return buffers.result()
    shared = (
        logits,
        logits.stride(0),
        parameters.view(torch.float32),
        parameters,
        parameters if counts is None else counts,
    )
    sums = (buffers.group_best, buffers.group_sum, buffers.raw_best, buffers.raw_sum)
    results = (buffers.tokens, buffers.best, buffers.logprobs)
    choices = {"PENALTIES": counts is not None, "LOGPROBS": logprobs, "enable_fp_fusion": False}
    grid = (buffers.chunks, rows)
    groups_pow2 = triton.next_power_of_2(buffers.groups)
    with on_device_of(logits):
        _scan_kernel[grid](
            *shared,
            *sums,
            buffers.chunk_best,
            buffers.cursors,
            vocab,
            buffers.groups,
            CHUNK=launch.chunk,
            FILTERED=filtered,
            num_warps=launch.num_warps,
            **choices,
        )
        if not filtered:
            _draw_kernel[(rows,)](
                *shared,
                *sums,
                *results,
                vocab,
                buffers.groups,
                GROUPS_POW2=groups_pow2,
                num_warps=launch.draw_warps,
                **choices,
            )
            return buffers.result()
        find_bounds(shared, buffers, vocab, counts is not None)
        _cut_draw_kernel[grid](
            *shared,
            *sums,
            *results,
            vocab,
            buffers.groups,
            buffers.chunk_best,
            buffers.bounds,
            buffers.cursors,
            GROUPS_POW2=groups_pow2,
            CHUNK=launch.chunk,
            CHUNKS_POW2=triton.next_power_of_2(buffers.chunks),
            num_warps=launch.sort_warps,
            **choices,
        )
    return buffers.result()
