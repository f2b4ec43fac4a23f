"""Drawing the next token of each row of logits, without sorting the vocabulary (Triton).

Two launches: the first finds each chunk's best score (penalties applied), the second takes the
largest of score + Gumbel noise, whose bits are those of ``kernels.reference.gumbel``. Rows with
top-k or top-p need three more in between: two count the scores above sixteen pivots each, and one
sorts the few scores that are left between two pivots. What is drawn is what
``kernels.reference.sample`` draws of the same float32 logits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.device_guard import on_device_of
from kernels.gumbel_contest import best_with_noise, gumbel_of_token
from kernels.launch import SampleLaunch, sample_launch
from kernels.reference.sample import Parameter, Sampled
from kernels.sample_buffers import SampleBuffers
from kernels.sample_threshold import find_bounds
from kernels.score_tile import score_tile

_GROUP = tl.constexpr(16)
_MAX_NOISE = tl.constexpr(28.5)
_MARGIN = tl.constexpr(1e-3)


@triton.jit
def _scan_kernel(
    logits_ptr,  # [rows, vocab]
    logits_stride,
    floats_ptr,  # [rows, 14] float32, see Parameter
    ints_ptr,  # [rows, 7] int64
    count_ptr,  # [slots, vocab] int32
    chunk_best_ptr,  # [rows, chunks] float32
    chunk_token_ptr,  # [rows, chunks] int32
    chunk_lse_ptr,  # [rows, chunks, 2] float32: largest raw logit, sum of exp relative to it
    done_ptr,  # [rows] int32
    cursor_ptr,  # [rows, 4] int32
    vocab,
    CHUNK: tl.constexpr,
    PENALTIES: tl.constexpr,
    LOGPROBS: tl.constexpr,
):
    """Program = (chunk, row)."""
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
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
    # NaN counts as the largest, as in argmax.
    score = tl.where(score != score, float("inf"), score)
    best = tl.max(score, 0)
    place = row * tl.num_programs(0) + chunk
    tl.store(chunk_best_ptr + place, best)
    tl.store(chunk_token_ptr + place, tl.min(tl.where(score == best, token, 0x7FFFFFFF), 0))
    if LOGPROBS:
        largest = tl.max(raw, 0)
        # Infinity minus infinity would be NaN.
        base = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
        tl.store(chunk_lse_ptr + 2 * place, largest)
        tl.store(chunk_lse_ptr + 2 * place + 1, tl.sum(tl.exp(raw - base), 0))
    if chunk == 0:
        tl.store(done_ptr + row, 0)
        tl.store(cursor_ptr + row * 4 + tl.arange(0, 4), tl.zeros([4], tl.int32))


@triton.jit
def _finish_row(
    token,
    logits_ptr,
    logits_stride,
    ints_ptr,
    count_ptr,
    chunk_lse_ptr,
    token_ptr,
    logprob_ptr,
    row,
    vocab,
    chunks,
    CHUNKS_POW2: tl.constexpr,
    PENALTIES: tl.constexpr,
    LOGPROBS: tl.constexpr,
):
    tl.store(token_ptr + row, token.to(tl.int64))
    if LOGPROBS:
        chunk = tl.arange(0, CHUNKS_POW2)
        word = chunk_lse_ptr + 2 * (row * chunks + chunk)
        largest = tl.load(word, mask=chunk < chunks, other=float("-inf"))
        total = tl.load(word + 1, mask=chunk < chunks, other=0.0)
        best = tl.max(largest, 0)
        total = tl.sum(tl.where(total > 0.0, total * tl.exp(largest - best), 0.0), 0)
        raw = tl.load(logits_ptr + row * logits_stride + token).to(tl.float32)
        tl.store(logprob_ptr + row, raw - best - tl.log(total))
    if PENALTIES:
        slot = tl.load(ints_ptr + row * 7 + 3)
        if slot >= 0:
            # The token just drawn counts from the next draw on.
            cell = count_ptr + slot * vocab + token
            tl.store(cell, tl.load(cell) + 1)


@triton.jit
def _draw_kernel(
    logits_ptr,
    logits_stride,
    floats_ptr,
    ints_ptr,
    count_ptr,
    chunk_best_ptr,
    chunk_token_ptr,
    chunk_lse_ptr,
    bound_ptr,  # [rows] float32, relative scores below are out; not read if not FILTERED
    winner_ptr,  # [rows, chunks] float64: score + noise of each part's winner
    winner_token_ptr,  # [rows, chunks] int32
    done_ptr,
    token_ptr,  # [rows] int64
    best_ptr,  # [rows] float32
    logprob_ptr,  # [rows] float32
    vocab,
    chunks,
    CHUNK: tl.constexpr,
    PENALTIES: tl.constexpr,
    CHUNKS_POW2: tl.constexpr,
    FILTERED: tl.constexpr,
    LOGPROBS: tl.constexpr,
):
    """Program = (some chunks, row); a row's last one takes the best of all winners."""
    part = tl.program_id(0)
    parts = tl.num_programs(0)
    row = tl.program_id(1).to(tl.int64)
    other = tl.arange(0, CHUNKS_POW2)
    inside = other < chunks
    place = row * chunks + other
    bests = tl.load(chunk_best_ptr + place, mask=inside, other=float("-inf"))
    tokens = tl.load(chunk_token_ptr + place, mask=inside, other=0x7FFFFFFF)
    best = tl.max(bests, 0)
    best_token = tl.min(tl.where(bests == best, tokens, 0x7FFFFFFF), 0)
    temperature = tl.load(floats_ptr + row * 14 + 8)
    finite = (best > float("-inf")) & (best < float("inf"))
    if part == 0:
        tl.store(best_ptr + row, best)
    if not finite:
        if part == 0:
            tl.store(token_ptr + row, tl.full([], -1, tl.int64))
            tl.store(logprob_ptr + row, float("nan"))
        return
    if temperature <= 0.0:
        if part == 0:
            _finish_row(
                best_token, logits_ptr, logits_stride, ints_ptr, count_ptr, chunk_lse_ptr,
                token_ptr, logprob_ptr, row, vocab, chunks, CHUNKS_POW2, PENALTIES,
                LOGPROBS,
            )  # fmt: skip
        return

    seed = tl.load(ints_ptr + row * 7)
    index = tl.load(ints_ptr + row * 7 + 1)
    bound = float("-inf")
    if FILTERED:
        bound = tl.load(bound_ptr + row)
    # What the best token reaches is a floor for all chunks.
    floor = gumbel_of_token(seed, index, best_token).to(tl.float32) - _MARGIN
    winner = tl.full([], float("-inf"), tl.float64)
    winner_token = tl.full([], 0x7FFFFFFF, tl.int32)
    per_part = tl.cdiv(chunks, parts)
    first = part * per_part
    for chunk in range(first, tl.minimum(first + per_part, chunks)):
        mine = tl.load(chunk_best_ptr + row * chunks + chunk)
        reach = (mine - best) / temperature
        if (reach + _MAX_NOISE >= floor) & (reach >= bound - _MARGIN):
            start = tl.zeros([], tl.int32) + chunk * CHUNK
            group = tl.arange(0, CHUNK // _GROUP)
            token = start + group[:, None] * _GROUP + tl.arange(0, _GROUP)[None, :]
            _, score = score_tile(
                logits_ptr + row * logits_stride, floats_ptr, ints_ptr, count_ptr, row, token,
                vocab, PENALTIES,
            )  # fmt: skip
            total, total_token = best_with_noise(
                score, best, temperature, bound, start, seed, index, floor, CHUNK // _GROUP,
                FILTERED,
            )  # fmt: skip
            winner_token = tl.where(total > winner, total_token, winner_token)
            winner = tl.maximum(winner, total)
            floor = tl.maximum(floor, winner.to(tl.float32) - _MARGIN)
    tl.store(winner_ptr + row * chunks + part, winner)
    tl.store(winner_token_ptr + row * chunks + part, winner_token)
    # All threads' stores come before the count, and the count before the last one's loads.
    tl.debug_barrier()
    done = tl.atomic_add(done_ptr + row, 1, sem="acq_rel")
    if done == parts - 1:
        ran = other < parts
        totals = tl.load(winner_ptr + place, mask=ran, other=float("-inf"), cache_modifier=".cg")
        winners = tl.load(
            winner_token_ptr + place, mask=ran, other=0x7FFFFFFF, cache_modifier=".cg"
        )
        most = tl.max(totals, 0)
        chosen = tl.min(tl.where(totals == most, winners, 0x7FFFFFFF), 0)
        _finish_row(
            chosen, logits_ptr, logits_stride, ints_ptr, count_ptr, chunk_lse_ptr,
            token_ptr, logprob_ptr, row, vocab, chunks, CHUNKS_POW2, PENALTIES,
                LOGPROBS,
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
    launch = launch or sample_launch(logits.device)
    chunks = triton.cdiv(vocab, launch.chunk)
    buffers = SampleBuffers(rows, chunks, launch, logits.device, filtered)
    if rows == 0:
        return buffers.result()
    shared = (
        logits,
        logits.stride(0),
        parameters.view(torch.float32),
        parameters,
        parameters if counts is None else counts,
    )
    with on_device_of(logits):
        _scan_kernel[(chunks, rows)](
            *shared,
            buffers.chunk_best,
            buffers.chunk_token,
            buffers.chunk_lse,
            buffers.done,
            buffers.cursors,
            vocab,
            CHUNK=launch.chunk,
            PENALTIES=counts is not None,
            LOGPROBS=logprobs,
            num_warps=launch.num_warps,
            enable_fp_fusion=False,
        )
        if filtered:
            find_bounds(shared, buffers, vocab, counts is not None)
        _draw_kernel[(min(chunks, max(1, launch.programs // rows)), rows)](
            *shared,
            buffers.chunk_best,
            buffers.chunk_token,
            buffers.chunk_lse,
            buffers.bounds,
            buffers.winner,
            buffers.winner_token,
            buffers.done,
            buffers.tokens,
            buffers.best,
            buffers.logprobs,
            vocab,
            chunks,
            CHUNK=launch.chunk,
            PENALTIES=counts is not None,
            CHUNKS_POW2=triton.next_power_of_2(chunks),
            FILTERED=filtered,
            LOGPROBS=logprobs,
            num_warps=launch.num_warps,
            enable_fp_fusion=False,
        )
    return buffers.result()
