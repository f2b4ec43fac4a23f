"""Paged attention in plain torch: one call for all decodes of a step, one for each prefill
chunk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.attention.paged import PagedBackend
from engine.batch import StepBatch
from engine.kv_cache import KVCache
from kernels.reference.paged_decode import DecodeGather, decode_attend, decode_gather
from kernels.reference.paged_prefill import PrefillGather, prefill_attend, prefill_gather


class PagedReferenceBackend(PagedBackend):
    """Attention over ``cache``, a paged pool."""

    name = "paged_reference"

    def begin_step(self, batch: StepBatch) -> StepAttention:
        return _Step(self.cache, batch, self.scale, self.windows)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the context of a step lies for layers with one window. ``prefills``: first row and end
    of each chunk, and its gather."""

    decode: DecodeGather | None
    prefills: tuple[tuple[int, int, PrefillGather], ...]


class _Step:
    def __init__(
        self,
        cache: KVCache,
        batch: StepBatch,
        scale: float,
        windows: tuple[int | None, ...],
    ) -> None:
        self._cache = cache
        self._scale = scale
        self._windows = windows
        self._slots = batch.slot_mapping
        self._written: Tensor | None = None
        keep = batch.slot_mapping >= 0
        if not bool(keep.all()):
            self._written = keep.nonzero().flatten()
            self._slots = batch.slot_mapping[self._written]
        self._num_decodes = batch.num_decodes
        self._layouts = {window: _lay_out(cache, batch, window) for window in set(windows)}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self._written is not None:
            key, value = key[self._written], value[self._written]
        self._cache.store(layer, key, value, self._slots)
        k_rows, v_rows = self._cache.k_rows[layer], self._cache.v_rows[layer]
        layout = self._layouts[self._windows[layer]]
        if layout.decode is not None and not layout.prefills:
            return decode_attend(query, k_rows, v_rows, layout.decode, self._scale)
        parts: list[Tensor] = []
        if layout.decode is not None:
            rows = query[: self._num_decodes]
            parts.append(decode_attend(rows, k_rows, v_rows, layout.decode, self._scale))
        for first, end, gather in layout.prefills:
            parts.append(prefill_attend(query[first:end], k_rows, v_rows, gather, self._scale))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _lay_out(cache: KVCache, batch: StepBatch, window: int | None) -> _Layout:
    dtype, size = cache.k[0].dtype, cache.block_size
    decode: DecodeGather | None = None
    if batch.num_decodes:
        decode = decode_gather(batch.decode_block_tables, batch.decode_lengths, size, dtype, window)
    prefills = tuple(
        (
            span.first_row,
            span.first_row + span.num_tokens,
            prefill_gather(span.block_table, span.start, span.num_tokens, size, dtype, window),
        )
        for span in batch.prefills
    )
    return _Layout(decode, prefills)
