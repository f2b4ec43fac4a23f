"""Scores of some tokens as the sampling kernels see them (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl

LANES = tl.constexpr(16)
_OUTPUT_MASK = tl.constexpr((1 << 30) - 1)


@triton.jit
def score_tile(
    logits_ptr, floats_ptr, ints_ptr, count_ptr, row, token, vocab, PENALTIES: tl.constexpr
):
    """Raw logits and penalised scores in float32, -inf behind the vocabulary.

    ``logits_ptr``: the row's; ``floats_ptr``, ``ints_ptr``: all rows' parameters.
    """
    inside = token < vocab
    raw = tl.load(logits_ptr + token, mask=inside, other=float("-inf")).to(tl.float32)
    score = raw
    if PENALTIES:
        slot = tl.load(ints_ptr + row * 7 + 3)
        if slot >= 0:
            count = tl.load(count_ptr + slot * vocab + token, mask=inside, other=0)
            repetition = tl.load(floats_ptr + row * 14 + 11)
            presence = tl.load(floats_ptr + row * 14 + 12)
            frequency = tl.load(floats_ptr + row * 14 + 13)
            factor = repetition + tl.zeros_like(score)
            repeated = tl.where(score < 0.0, score * factor, tl.div_rn(score, factor))
            score = tl.where(count != 0, repeated, score)
            said = count & _OUTPUT_MASK
            lowered = score - (presence + frequency * said.to(tl.float32))
            score = tl.where(said > 0, lowered, score)
    return raw, score


@triton.jit
def relative_tile(
    logits_ptr,
    floats_ptr,
    ints_ptr,
    count_ptr,
    row,
    token,
    vocab,
    best,
    temperature,
    PENALTIES: tl.constexpr,
):
    """Scores at their temperature, the best one 0."""
    _, score = score_tile(logits_ptr, floats_ptr, ints_ptr, count_ptr, row, token, vocab, PENALTIES)
    return tl.div_rn(score - best, temperature + tl.zeros_like(score))


@triton.jit
def chunk_tile(
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
    """``relative_tile`` of one chunk of a row, as ``[CHUNK / 16, 16]``."""
    group = tl.arange(0, CHUNK // LANES)
    token = chunk * CHUNK + group[:, None] * LANES + tl.arange(0, LANES)[None, :]
    return relative_tile(
        logits_ptr + row * logits_stride, floats_ptr, ints_ptr, count_ptr, row, token, vocab, best,
        temperature, PENALTIES,
    )  # fmt: skip
