"""Paged attention through Triton kernels.

One launch a layer for all decodes of a step (two where some share a long beginning), one for all
prefill chunks. How the contexts are cut is decided once a step, on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.base import StepAttention
from engine.attention.paged import PagedBackend
from engine.attention.prefill_tiles import PrefillTiles, TiledChunk
from engine.attention.prefix_groups import PrefixGroups
from engine.batch import PrefillSpan, StepBatch
from engine.kv_cache import KVCache
from engine.models.config import ModelConfig
from kernels.decode_plan import DecodePlan, plan_decode
from kernels.launch import PrefillLaunch, prefill_launch, uses_shared_prefix
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill, paged_prefill_batch
from kernels.prefill_tiles import ChunkPlace, most_tiles, tile_list
from kernels.shared_prefix_decode import shared_prefix_decode
from kernels.shared_prefix_plan import SharedPlan, plan_shared_prefix_decode
from kernels.store_kv import store_kv

_CHUNKS = 16


class PagedTritonBackend(PagedBackend):
    """Attention over ``cache``, a paged pool on a CUDA device.

    Args:
        cache: the pool.
        config: the model's shape.
        deterministic: a sequence's output does not depend, to the last bit, on the others of a
            step.
    """

    name = "paged_triton"

    def __init__(self, cache: KVCache, config: ModelConfig, deterministic: bool = False) -> None:
        super().__init__(cache, config)
        self._heads = (config.num_heads, config.num_kv_heads, config.head_dim)
        self._deterministic = deterministic
        # For as many tiles as steps of a few chunks have; others bring their own.
        most = 2 * self.launch(1).spread + _CHUNKS
        self._counters = torch.zeros(
            (most, self._heads[1]), dtype=torch.int32, device=cache.k[0].device
        )

    def launch(self, num_tokens: int) -> PrefillLaunch:
        """How steps with so many prompt tokens are cut; see ``prefill_tiles.Tiling``."""
        num_heads, num_kv_heads, head_dim = self._heads
        pool = self.cache.k[0]
        return prefill_launch(
            num_tokens,
            num_heads // num_kv_heads,
            head_dim,
            pool.element_size(),
            pool.device,
            # Into how many parts keys are cut follows from the other chunks of a step.
            None if self._deterministic else num_kv_heads,
        )

    def tiles(self, chunks: Sequence[TiledChunk], launch: PrefillLaunch) -> NDArray[np.int32]:
        """Tiles of some chunks."""
        places = [
            ChunkPlace(each.first_row, each.num_tokens, each.start, each.table_offset)
            for each in chunks
        ]
        tiles: NDArray[np.int32] = tile_list(places, self._heads[0] // self._heads[1], launch)
        return tiles

    def most_tiles(self, num_tokens: int, num_chunks: int, launch: PrefillLaunch) -> int:
        """Tiles of so many tokens in at most so many chunks."""
        return most_tiles(num_tokens, num_chunks, self._heads[0] // self._heads[1], launch)

    def shares(self, sequences: int, prefix_tokens: int, own_tokens: int) -> bool:
        """As ``prefix_groups.Pays``."""
        _, num_kv_heads, head_dim = self._heads
        token_bytes = 2 * num_kv_heads * head_dim * self.cache.k[0].element_size()
        pays = uses_shared_prefix(sequences, prefix_tokens, own_tokens, token_bytes)
        return pays and not self._deterministic and None in self.windows

    def begin_step(self, batch: StepBatch) -> StepAttention:
        """Lays out a step. The result is valid until the next call.

        Args:
            batch: the step, on the device.
        """
        groups = batch.prefix_groups
        windows = set(self.windows) if batch.num_decodes else set()
        shared = None
        if groups is not None and None in windows and not self._deterministic:
            # Whoever sees everything goes by this plan, and by no other.
            windows.remove(None)
            shared = plan_shared_prefix_decode(
                batch.decode_lengths,
                groups.members,
                groups.shared_blocks,
                self.cache.block_size,
                *self._heads,
                batch.max_decode_length,
            )
        plans = {window: self._plan(batch, window) for window in windows}
        prefills: _Prefills | _TiledPrefills | None = None
        if batch.prefill_tiles is not None:
            prefills = _TiledPrefills(batch.prefill_tiles, self._counters)
        elif batch.prefills:
            prefills = _Prefills(batch.prefills, self._heads, self.cache)
        return _Step(self, batch, plans, groups, shared, prefills)

    def _plan(self, batch: StepBatch, window: int | None) -> DecodePlan:
        return plan_decode(
            batch.decode_lengths,
            *self._heads,
            batch.max_decode_length,
            window=window,
            deterministic=self._deterministic,
        )


class _TiledPrefills:
    """Chunks whose tiles were made on the host along with the step."""

    def __init__(self, tiles: PrefillTiles, counters: Tensor) -> None:
        self._tiles = tiles
        self._counters = counters

    def attend(
        self,
        query: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        window: int | None,
        out: Tensor,
    ) -> None:
        """Fills the chunks' rows of ``out``."""
        tiles = self._tiles
        paged_prefill_batch(
            query,
            k_cache,
            v_cache,
            tiles.block_ids,
            tiles.tiles,
            scale,
            tiles.launch,
            window=window,
            out=out,
            counters=self._counters if len(tiles.tiles) <= len(self._counters) else None,
        )


class _Prefills:
    """The chunks of a step: their tiles and block ids, where there is more than one of them."""

    def __init__(
        self, spans: Sequence[PrefillSpan], heads: tuple[int, int, int], cache: KVCache
    ) -> None:
        num_heads, num_kv_heads, head_dim = heads
        group = num_heads // num_kv_heads
        self._spans = spans
        if len(spans) == 1:
            return
        num_tokens = sum(span.num_tokens for span in spans)
        self._launch = prefill_launch(
            num_tokens, group, head_dim, cache.k[0].element_size(), cache.k[0].device
        )
        self._block_ids = torch.cat([span.block_table for span in spans])
        places, offset = [], 0
        for span in spans:
            places.append(ChunkPlace(span.first_row, span.num_tokens, span.start, offset))
            offset += len(span.block_table)
        tiles = torch.from_numpy(tile_list(places, group, self._launch))
        if self._block_ids.is_cuda:  # needs a GPU
            tiles = tiles.pin_memory().to(self._block_ids.device, non_blocking=True)
        self._tiles = tiles

    def attend(
        self,
        query: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        scale: float,
        window: int | None,
        out: Tensor,
    ) -> None:
        """Fills the chunks' rows of ``out``."""
        if len(self._spans) == 1:
            span = self._spans[0]
            rows = slice(span.first_row, span.first_row + span.num_tokens)
            paged_prefill(
                query[rows],
                k_cache,
                v_cache,
                span.block_table,
                span.start,
                scale,
                window=window,
                out=out[rows],
            )
            return
        paged_prefill_batch(
            query,
            k_cache,
            v_cache,
            self._block_ids,
            self._tiles,
            scale,
            self._launch,
            window=window,
            out=out,
        )


class _Step:
    def __init__(
        self,
        backend: PagedTritonBackend,
        batch: StepBatch,
        plans: dict[int | None, DecodePlan],
        groups: PrefixGroups | None,
        shared: SharedPlan | None,
        prefills: _Prefills | _TiledPrefills | None,
    ) -> None:
        self._cache = backend.cache
        self._scale = backend.scale
        self._windows = backend.windows
        self._batch = batch
        self._plans = plans
        self._groups = groups
        self._shared = shared
        self._prefills = prefills

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
        batch, window = self._batch, self._windows[layer]
        k_cache, v_cache = self.caches(layer)
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if batch.num_decodes:
            rows = slice(0, batch.num_decodes)
            self._decode(query[rows], k_cache, v_cache, window, out[rows])
        if self._prefills is not None:
            self._prefills.attend(query, k_cache, v_cache, self._scale, window, out)
        return out.flatten(1)

    def _decode(
        self, query: Tensor, k_cache: Tensor, v_cache: Tensor, window: int | None, out: Tensor
    ) -> None:
        tables, lengths = self._batch.decode_block_tables, self._batch.decode_lengths
        if self._shared is not None and self._groups is not None and window is None:
            shared_prefix_decode(
                query,
                k_cache,
                v_cache,
                tables,
                lengths,
                self._groups.members,
                self._groups.shared_blocks,
                self._scale,
                plan=self._shared,
                out=out,
            )
            return
        plan = self._plans[window]
        paged_decode(query, k_cache, v_cache, tables, lengths, self._scale, plan=plan, out=out)
