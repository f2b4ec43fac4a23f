"""Paged attention through Triton kernels.

One launch for all decodes of a step, one for each chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.attention.paged import PagedBackend
from engine.batch import StepBatch
from engine.kv_cache import KVCache
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.store_kv import store_kv


class PagedTritonBackend(PagedBackend):
    """Attention over ``cache``, a paged pool on a CUDA device."""

    name = "paged_triton"

    def begin_step(self, batch: StepBatch) -> StepAttention:
        return _Step(self.cache, batch, self.scale, self.windows)


class _Step:
    def __init__(
        self,
        cache: KVCache,
        batch: StepBatch,
        scale: float,
        windows: tuple[int | None, ...],
    ) -> None:
        self._cache = cache
        self._batch = batch
        self._scale = scale
        self._windows = windows

    @property
    def slot_mapping(self) -> Tensor:
        return self._batch.slot_mapping

    def caches(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._cache.k[layer], self._cache.v[layer]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        k_cache, v_cache = self.caches(layer)
        heads = (-1, *k_cache.shape[2:])
        store_kv(key.view(heads), value.view(heads), k_cache, v_cache, self.slot_mapping)
        return self.attend_stored(layer, query)

    def attend_stored(self, layer: int, query: Tensor) -> Tensor:
        batch, scale, window = self._batch, self._scale, self._windows[layer]
        k_cache, v_cache = self.caches(layer)
        parts: list[Tensor] = []
        if batch.num_decodes:
            parts.append(
                paged_decode(
                    query[: batch.num_decodes],
                    k_cache,
                    v_cache,
                    batch.decode_block_tables,
                    batch.decode_lengths,
                    scale,
                    max_context=batch.max_decode_length,
                    window=window,
                )
            )
        for span in batch.prefills:
            rows = query[span.first_row : span.first_row + span.num_tokens]
            table, start = span.block_table, span.start
            parts.append(paged_prefill(rows, k_cache, v_cache, table, start, scale, window=window))
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.flatten(1)
