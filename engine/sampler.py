"""Drawing the next token of each request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.api.params import SamplingParams
from engine.scheduler_output import SampledTokens
from kernels.reference.gumbel import argmax
from kernels.reference.sample import RowParameters, draw, penalise


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

    @property
    def parameters(self) -> RowParameters:
        """As ``kernels.reference.sample`` takes them, without counts."""
        return row_parameters(self.params, self.seed, self.output_index)


def sample(logits: Tensor, rows: Sequence[SampleRow]) -> list[SampledTokens]:
    """Draws one token a row.

    Order: penalties → temperature → top-k → top-p on the renormalised rest → min-p; then a draw by
    softmax of what is left.

    Its noise depends on seed and output index alone, so a row's token does not depend on
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
        drawn = draw(scores[random], best[random], [rows[i].parameters for i in random])
        for index, token in zip(random, drawn, strict=True):
            tokens[index] = token
    return [
        _result(raw[i], row, tokens[i]) if healthy[i] else _failure(row, largest[i])
        for i, row in enumerate(rows)
    ]


def _result(raw: Tensor, row: SampleRow, token: int) -> SampledTokens:
    if row.params.logprobs is None:
        return SampledTokens(row.request_id, (token,))
    total = raw.logsumexp(-1)
    best = raw.topk(min(row.params.logprobs, len(raw)))
    top = tuple(zip(best.indices.tolist(), (best.values - total).tolist(), strict=True))
    return SampledTokens(row.request_id, (token,), (float(raw[token] - total),), (top,))


def _failure(row: SampleRow, best: float) -> SampledTokens:
    reason = f"The model's logits are not finite (the largest is {best})."
    return SampledTokens(row.request_id, (), error=reason)


def _penalised(raw: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    chosen = [i for i, row in enumerate(rows) if row.params.has_penalty]
    if not chosen:
        return raw
    scores = raw.clone()
    for i in chosen:
        _penalise(scores[i], rows[i])
    return scores


def _penalise(scores: Tensor, row: SampleRow) -> None:
    ids = torch.tensor(row.history, dtype=torch.int64, device=scores.device)
    said, counts = torch.unique(ids[row.num_prompt_tokens :], return_counts=True)
    penalise(scores, torch.unique(ids), said, counts, row.parameters)


def row_parameters(
    params: SamplingParams, seed: int, output_index: int, count_slot: int | None = None
) -> RowParameters:
    """What a token of a request is drawn with, as ``kernels.reference.sample`` takes it."""
    return RowParameters(
        seed=seed,
        output_index=output_index,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        count_slot=count_slot,
    )
