"""Attention without a cache: every step computes the whole sequence again.

Nothing is kept between two steps, so that nothing can be stale. The other backends are compared
with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.batch import PrefillSpan, StepBatch
from engine.models.config import ModelConfig

_TILE_ROWS = 256


def attend_causally(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: int,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """``softmax(scale · q kᵀ) v`` written out, each token over itself and what lies before it.

    In float32 at least, by tiles of rows, so that memory grows with the context and not with its
    square.

    Args:
        query: ``[tokens, heads, head_dim]``, at positions from ``start`` on.
        key: ``[start + tokens, kv_heads · head_dim]``; ``value`` likewise.
        start: position of the first query.
        scale: factor on the scores.
        window: a query sees the last so many tokens, its own included; None for all.

    Returns:
        ``[tokens, heads, head_dim]`` in the query's dtype.
    """
    num_tokens, num_heads, head_dim = query.shape
    kind = torch.promote_types(query.dtype, torch.float32)
    keys = key.view(len(key), -1, head_dim).to(kind)
    values = value.view(len(value), -1, head_dim).to(kind)
    num_kv_heads = keys.shape[1]
    grouped = query.reshape(num_tokens, num_kv_heads, num_heads // num_kv_heads, head_dim)
    place = torch.arange(start + num_tokens, device=query.device)
    out = torch.empty_like(grouped)
    for first in range(0, num_tokens, _TILE_ROWS):
        rows = slice(first, min(first + _TILE_ROWS, num_tokens))
        own = place[start + first : start + rows.stop, None]
        seen = slice(0, start + rows.stop)
        if window is not None:
            seen = slice(max(start + first + 1 - window, 0), seen.stop)
        scores = torch.einsum("qkgd,ckd->kgqc", grouped[rows].to(kind), keys[seen]) * scale
        unseen = place[seen] > own
        if window is not None:
            unseen |= place[seen] <= own - window
        weights = scores.masked_fill_(unseen, float("-inf")).softmax(-1)
        out[rows] = torch.einsum("kgqc,ckd->qkgd", weights, values[seen]).to(query.dtype)
    return out.view(num_tokens, num_heads, head_dim)


class DenseBackend:
    """No storage: the runner gives it every sequence from its first token on."""

    name = "dense"
    cache = None

    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    def first_missing(self, request_id: str, start: int) -> int:
        return 0

    def begin_step(self, batch: StepBatch) -> StepAttention:
        assert batch.num_decodes == 0, "a decode without the tokens before it"
        assert all(span.start == 0 for span in batch.prefills), "a chunk without its beginning"
        return _Step(batch.prefills, self._config)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Nothing: there are no blocks."""

    def forget(self, request_id: str) -> None:
        """Nothing: nothing is kept."""


class _Step:
    def __init__(self, spans: Sequence[PrefillSpan], config: ModelConfig) -> None:
        self._spans = spans
        self._scale = config.attention_scale
        self._windows = config.windows

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        window = self._windows[layer]
        parts: list[Tensor] = []
        for span in self._spans:
            rows = slice(span.first_row, span.first_row + span.num_tokens)
            parts.append(
                attend_causally(query[rows], key[rows], value[rows], 0, self._scale, window)
            )
        return torch.cat(parts).flatten(1)
