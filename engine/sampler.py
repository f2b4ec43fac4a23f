"""Drawing the next token of each request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.api.params import SamplingParams
from engine.scheduler_output import SampledTokens
from kernels.reference.gumbel import argmax, gumbel_argmax, indices

_NEGLIGIBLE_NATS = 25.0
_FIRST_LOOK_NATS = 8.0


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What one row of logits is drawn with.

    ``history``: prompt and output so far; the output begins at ``num_prompt_tokens``, and the drawn
    token becomes output number ``len(history) − num_prompt_tokens``.
    """

    request_id: str
    params: SamplingParams
    seed: int
    history: Sequence[int]
    num_prompt_tokens: int

    @property
    def output_index(self) -> int:
        return len(self.history) - self.num_prompt_tokens


def sample(logits: Tensor, rows: Sequence[SampleRow]) -> list[SampledTokens]:
    """Draws one token a row.

    Order: penalties → temperature → top-k → top-p on the renormalised rest → min-p; then the
    largest of score + Gumbel noise.

    The noise depends on (seed, output index, token id) alone, so a row's token does not depend on
    its neighbours, on the cache or on what was drawn before. Temperature 0 takes the best score. A
    row whose logits are not finite at their largest gets ``SampledTokens.error``; the others are
    unaffected.

    Args:
        logits: ``[rows, vocab_size]``.
        rows: one for each row of ``logits``.
    """
    # float32 at least: bfloat16 has 8 bits for what temperature and noise add up.
    raw = logits if logits.dtype == torch.float64 else logits.float()
    scores = _penalised(raw, rows)
    places = argmax(scores)
    best = scores.gather(1, places[:, None])[:, 0]
    tokens, largest = places.tolist(), best.tolist()
    healthy = [math.isfinite(value) for value in largest]
    random = [i for i, row in enumerate(rows) if healthy[i] and row.params.temperature > 0.0]
    if random:
        drawn = _draw(scores[random], best[random], [rows[i] for i in random])
        for index, token in zip(random, drawn, strict=True):
            tokens[index] = token
    return [
        _result(raw[i], row, tokens[i]) if healthy[i] else _failure(row, largest[i])
        for i, row in enumerate(rows)
    ]


def _result(raw: Tensor, row: SampleRow, token: int) -> SampledTokens:
    if row.params.logprobs is None:
        return SampledTokens(row.request_id, (token,))
    logprob = float(raw[token] - raw.logsumexp(-1))
    return SampledTokens(row.request_id, (token,), (logprob,))


def _failure(row: SampleRow, best: float) -> SampledTokens:
    reason = f"The model's logits are not finite (the largest is {best})."
    return SampledTokens(row.request_id, (), error=reason)


def _penalised(raw: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    chosen = [i for i, row in enumerate(rows) if _has_penalty(row.params)]
    if not chosen:
        return raw
    scores = raw.clone()
    for i in chosen:
        _penalise(scores[i], rows[i])
    return scores


def _has_penalty(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def _penalise(scores: Tensor, row: SampleRow) -> None:
    params = row.params
    ids = torch.tensor(row.history, dtype=torch.int64, device=scores.device)
    if params.repetition_penalty != 1.0:
        seen = torch.unique(ids)
        values = scores[seen]
        factor = params.repetition_penalty
        scores[seen] = torch.where(values < 0, values * factor, values / factor)
    if params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
        said, counts = torch.unique(ids[row.num_prompt_tokens :], return_counts=True)
        scores[said] -= params.presence_penalty + params.frequency_penalty * counts


def _draw(scores: Tensor, best: Tensor, rows: Sequence[SampleRow]) -> list[int]:
    """One random token a row. ``best``: ``[rows]``, the largest score of each."""
    temperatures = [row.params.temperature for row in rows]
    relative = (scores - best[:, None]) / torch.tensor(temperatures, device=scores.device)[:, None]
    for i, row in enumerate(rows):
        if _has_filter(row.params):
            _filter(relative[i], row.params)
    seeds = torch.tensor([_signed(row.seed) for row in rows], device=scores.device)
    places = torch.tensor([row.output_index for row in rows], device=scores.device)
    return gumbel_argmax(relative, seeds, places)


def _has_filter(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _filter(relative: Tensor, params: SamplingParams) -> None:
    """Sets what may not be drawn to −inf. ``relative``: scores at their temperature, the best 0.

    Equal scores stay or go together, so that the result does not depend on the order of a sort.
    """
    for nats in (_FIRST_LOOK_NATS, _NEGLIGIBLE_NATS):
        # Most of the probability lies in few tokens; sorting all of them is the rare case.
        ids = indices(relative >= -nats)
        values = relative[ids].sort(descending=True).values
        complete = 0 < params.top_k <= len(values)
        if complete:
            values = values[: params.top_k]
        if params.top_p < 1.0:
            mass = values.exp().cumsum(0)
            total = mass[-1] if complete or params.top_k else relative.exp().sum()
            complete = complete or bool(mass[-1] >= params.top_p * total)
            place = int((mass < params.top_p * total).sum())
            values = values[: place + 1]
        if complete:
            break
    bound = float(values[-1])
    if params.min_p > 0.0:
        bound = max(bound, math.log(params.min_p))
    relative.masked_fill_(relative < bound, -torch.inf)


def _signed(seed: int) -> int:
    """An unsigned 64-bit seed as the int64 with the same bits."""
    return seed - 2**64 if seed >= 2**63 else seed
