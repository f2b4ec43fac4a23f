"""Drawing the next token of each row of logits.

Order: penalties → temperature → top-k → top-p on the renormalised rest → min-p; then a draw by
softmax of what is left (``gumbel.py``).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.reference.gumbel import argmax, draw_tokens, indices

_NEGLIGIBLE_NATS = 25.0
_FIRST_LOOK_NATS = 8.0
_MOST_TOP_K = 2**31 - 1
_LEAST_TOP_P = 1e-30
_LEAST_TEMPERATURE = 1.2e-38
"""float32's smallest with all its digits: a divisor that is rounded to 0 makes the best score NaN.
"""
PROMPT_COUNT = 1 << 30
"""What a token's count has on top of its number in the output where the prompt has the token."""


class Parameter(enum.IntEnum):
    """Words of a row's parameters, int64; the last three hold two float32 each."""

    SEED = 0
    OUTPUT_INDEX = 1
    TOP_K = 2
    COUNT_SLOT = 3
    TEMPERATURE_TOP_P = 4
    LOG_MIN_P_REPETITION = 5
    PRESENCE_FREQUENCY = 6


@dataclass(frozen=True, slots=True)
class RowParameters:
    """What a row is drawn with.

    ``seed``: unsigned, 64 bits. ``output_index``: place of the drawn token in its answer.
    ``count_slot``: row of the counts, None for a row without penalties.
    """

    seed: int
    output_index: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    count_slot: int | None = None

    @property
    def filtered(self) -> bool:
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Sampled:
    """``tokens``: ``[rows]`` int64, −1 for a row whose best score is not finite. ``best``:
    ``[rows]`` float32, that score. ``logprobs``: ``[rows]`` float32, of the raw logits; junk if
    they were not asked for.
    """

    tokens: Tensor
    best: Tensor
    logprobs: Tensor


def pack(rows: Sequence[RowParameters]) -> Any:
    """Parameters as a NumPy array ``[rows, 7]`` of int64, see ``Parameter``.

    Kernels take a top-k in 32 bits and a top-p above 0, where more and less leave the same tokens:
    if no mass were asked for, a threshold above all scores would have it.
    """
    whole = [
        (
            signed(row.seed),
            row.output_index,
            min(row.top_k, _MOST_TOP_K),
            -1 if row.count_slot is None else row.count_slot,
        )
        for row in rows
    ]
    broken = [
        (
            row.temperature,
            max(row.top_p, _LEAST_TOP_P),
            math.log(row.min_p) if row.min_p > 0.0 else -math.inf,
            row.repetition_penalty,
            row.presence_penalty,
            row.frequency_penalty,
        )
        for row in rows
    ]
    words = torch.tensor(whole, dtype=torch.int64).view(-1, 4)
    floats = torch.tensor(broken, dtype=torch.float32).view(-1, 6).view(torch.int64)
    return torch.cat((words, floats), 1).numpy()


def penalise(
    scores: Tensor, seen: Tensor, said: Tensor, counts: Tensor, row: RowParameters
) -> None:
    """Lowers the scores of tokens that came up before, in place.

    Args:
        scores: ``[vocab_size]``.
        seen: ids of prompt and output, each once.
        said: ids of the output, each once; ``counts``: how often.
        row: the penalties.
    """
    if row.repetition_penalty != 1.0:
        values = scores[seen]
        factor = row.repetition_penalty
        scores[seen] = torch.where(values < 0, values * factor, values / factor)
    if row.presence_penalty != 0.0 or row.frequency_penalty != 0.0:
        scores[said] -= row.presence_penalty + row.frequency_penalty * counts


def cut(relative: Tensor, row: RowParameters) -> None:
    """Sets what top-k, top-p and min-p rule out to −inf, in place.

    Equal scores stay or go together, so that the result does not depend on the order of a sort.

    Args:
        relative: ``[vocab_size]``, scores at their temperature, the best 0.
        row: what to keep.
    """
    for nats in (_FIRST_LOOK_NATS, _NEGLIGIBLE_NATS):
        # Most of the probability lies in few tokens; sorting all of them is the rare case.
        ids = indices(relative >= -nats)
        values = relative[ids].sort(descending=True).values
        complete = 0 < row.top_k <= len(values)
        if complete:
            values = values[: row.top_k]
        elif row.top_k > 0 and nats < _NEGLIGIBLE_NATS:
            # Top-p is of the mass that top-k leaves, which reaches further down.
            continue
        if row.top_p < 1.0:
            mass = values.exp().cumsum(0)
            total = mass[-1] if complete or row.top_k else relative.exp().sum()
            complete = complete or bool(mass[-1] >= row.top_p * total)
            place = int((mass < row.top_p * total).sum())
            values = values[: place + 1]
        if complete:
            break
    bound = float(values[-1])
    if row.min_p > 0.0:
        bound = max(bound, math.log(row.min_p))
    relative.masked_fill_(relative < bound, -torch.inf)


def draw(scores: Tensor, best: Tensor, rows: list[RowParameters]) -> list[int]:
    """One random token a row.

    Args:
        scores: ``[rows, vocab_size]``, penalised; ``best``: ``[rows]``, the largest of each,
            finite.
        rows: one for each; temperatures above 0.
    """
    device = scores.device
    temperatures = [max(row.temperature, _LEAST_TEMPERATURE) for row in rows]
    relative = (scores - best[:, None]) / torch.tensor(temperatures, device=device)[:, None]
    for i, row in enumerate(rows):
        if row.filtered:
            cut(relative[i], row)
    seeds = torch.tensor([signed(row.seed) for row in rows], device=device)
    places = torch.tensor([row.output_index for row in rows], device=device)
    return draw_tokens(relative, seeds, places)


def sample(
    logits: Tensor,
    parameters: Tensor,
    counts: Tensor | None = None,
    *,
    filtered: bool = True,
    logprobs: bool = False,
) -> Sampled:
    """Draws one token a row. Temperature 0 takes the best score.

    Args:
        logits: ``[rows, vocab_size]``.
        parameters: ``[rows, 7]`` int64, from ``pack``.
        counts: ``[slots, vocab_size]`` int32: how often a slot's request has each token in its
            output, plus ``PROMPT_COUNT`` where the prompt has it; the drawn tokens are added.
        filtered: some row may have top-k, top-p or min-p.
        logprobs: fill ``Sampled.logprobs``.
    """
    rows = unpack(parameters)
    raw = logits.float()
    scores = raw.clone()
    for i, row in enumerate(rows):
        if row.count_slot is not None and counts is not None:
            count = counts[row.count_slot]
            output = count % PROMPT_COUNT
            said = indices(output > 0)
            penalise(scores[i], indices(count != 0), said, output[said].long(), row)
    tokens = argmax(scores)
    best = scores.gather(1, tokens[:, None])[:, 0]
    healthy = best.isfinite()
    tokens = torch.where(healthy, tokens, -1)
    random = [i for i, row in enumerate(rows) if row.temperature > 0.0 and bool(healthy[i])]
    if random:
        drawn = draw(scores[random], best[random], [rows[i] for i in random])
        tokens[random] = torch.tensor(drawn, device=tokens.device)
    chosen = tokens.clamp(min=0)
    for i, row in enumerate(rows):
        if row.count_slot is not None and counts is not None and bool(healthy[i]):
            counts[row.count_slot, chosen[i]] += 1
    values = best
    if logprobs:
        values = raw.gather(1, chosen[:, None])[:, 0] - raw.logsumexp(-1)
    return Sampled(tokens, best, values)


def unpack(parameters: Tensor) -> list[RowParameters]:
    """What ``pack`` packed, as far as float32 holds it."""
    words = parameters.cpu()
    rows = []
    for word, number in zip(words.tolist(), words.view(torch.float32).tolist(), strict=True):
        temperature, top_p, log_min_p, repetition, presence, frequency = number[8:]
        rows.append(
            RowParameters(
                seed=word[Parameter.SEED] % 2**64,
                output_index=word[Parameter.OUTPUT_INDEX],
                temperature=temperature,
                top_k=word[Parameter.TOP_K],
                top_p=top_p,
                min_p=math.exp(log_min_p),
                repetition_penalty=repetition,
                presence_penalty=presence,
                frequency_penalty=frequency,
                count_slot=None if word[Parameter.COUNT_SLOT] < 0 else word[Parameter.COUNT_SLOT],
            )
        )
    return rows


def signed(seed: int) -> int:
    """An unsigned 64-bit seed as the int64 with the same bits."""
    return seed - 2**64 if seed >= 2**63 else seed
