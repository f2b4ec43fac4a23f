"""Attention over one flat buffer of keys and values a request: no paging, no sharing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.attention.dense import attend_causally
from engine.batch import PrefillSpan, StepBatch
from engine.models.config import ModelConfig

_LEAST_ROWS = 64


class ContiguousBackend:
    """A buffer for each request, grown as its sequence grows and dropped when it is forgotten.

    Nothing is shared: a fork begins without a buffer and has its tokens computed again, so that
    memory may exceed what the pool's block counts say.
    """

    name = "contiguous"
    cache = None

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._buffers: dict[str, _Buffer] = {}

    @property
    def num_requests(self) -> int:
        """Requests that have a buffer."""
        return len(self._buffers)

    def first_missing(self, request_id: str, start: int) -> int:
        buffer = self._buffers.get(request_id)
        return min(start, buffer.num_held) if buffer is not None else 0

    def begin_step(self, batch: StepBatch) -> StepAttention:
        assert batch.num_decodes == 0, "a decode does not say whose buffer it is"
        pairs: list[tuple[PrefillSpan, _Buffer]] = []
        for span in batch.prefills:
            buffer = self._buffers.setdefault(span.request_id, _Buffer(self._config.num_layers))
            # Should the step break off, rows from its start on are not to be trusted.
            buffer.num_held = min(buffer.num_held, span.start)
            pairs.append((span, buffer))
        return _Step(pairs, self._config)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Nothing: there are no blocks."""

    def forget(self, request_id: str) -> None:
        self._buffers.pop(request_id, None)


class _Buffer:
    """``keys[layer]``, ``values[layer]``: ``[capacity, kv_heads · head_dim]``.

    ``num_held``: leading tokens whose rows are there in every layer.
    """

    def __init__(self, num_layers: int) -> None:
        self.num_held = 0
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers

    def append(self, layer: int, start: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes rows from ``start`` on; returns all rows up to their end."""
        end = start + len(key)
        keys = self._keys[layer] = _grown(self._keys[layer], start, end, key)
        values = self._values[layer] = _grown(self._values[layer], start, end, value)
        keys[start:end] = key
        values[start:end] = value
        return keys[:end], values[:end]


class _Step:
    def __init__(self, pairs: Sequence[tuple[PrefillSpan, _Buffer]], config: ModelConfig) -> None:
        self._pairs = pairs
        self._last_layer = config.num_layers - 1
        self._scale = config.attention_scale
        self._windows = config.windows

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        window, scale = self._windows[layer], self._scale
        parts: list[Tensor] = []
        for span, buffer in self._pairs:
            rows = slice(span.first_row, span.first_row + span.num_tokens)
            keys, values = buffer.append(layer, span.start, key[rows], value[rows])
            parts.append(attend_causally(query[rows], keys, values, span.start, scale, window))
        if layer == self._last_layer:
            for span, buffer in self._pairs:
                buffer.num_held = span.start + span.num_tokens
        return torch.cat(parts).flatten(1)


def _grown(rows: Tensor | None, num_kept: int, end: int, like: Tensor) -> Tensor:
    """``rows`` with room for ``end`` of them, the first ``num_kept`` as they were."""
    if rows is not None and len(rows) >= end:
        return rows
    capacity = max(_LEAST_ROWS, end, 2 * len(rows) if rows is not None else 0)
    grown = torch.empty((capacity, like.shape[1]), dtype=like.dtype, device=like.device)
    if rows is not None:
        grown[:num_kept] = rows[:num_kept]
    return grown
