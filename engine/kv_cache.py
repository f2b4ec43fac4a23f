"""The paged pool's memory: one K and one V tensor a layer."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.models.config import ModelConfig
from engine.triton_probe import triton_obstacle
from kernels.reference.copy_blocks import copy_blocks
from kernels.reference.store_kv import cache_rows

_LAZY_BYTES = 1 << 20
"""Below that, pages that are not written save nothing."""


class KVCache:
    """Keys and values of every slot: ``k[layer]`` and ``v[layer]``, each
    ``[num_blocks, block_size, kv_heads, head_dim]``.

    ``k_rows[layer]`` and ``v_rows[layer]`` are views of the same memory with one row a slot,
    ``[num_blocks · block_size, kv_heads · head_dim]``.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)
        layers = range(config.num_layers)
        self.k = [_zeros(shape, dtype, device) for _ in layers]
        self.v = [_zeros(shape, dtype, device) for _ in layers]
        self.k_rows = [cache_rows(cache) for cache in self.k]
        self.v_rows = [cache_rows(cache) for cache in self.v]
        self._copy = _block_copier(self.k, self.v)

    @property
    def block_bytes(self) -> int:
        """Bytes of K and V of one block over all layers."""
        return sum(2 * cache[0].numel() * cache.element_size() for cache in self.k)

    def store(self, layer: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Writes one layer's keys and values of a step.

        Args:
            layer: index of the layer.
            key: ``[tokens, kv_heads · head_dim]``; ``value`` likewise.
            slots: ``[tokens]`` int64, all of them valid: −1 was filtered when the step was laid
                out.
        """
        self.k_rows[layer].index_copy_(0, slots, key)
        self.v_rows[layer].index_copy_(0, slots, value)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole blocks, ``(source, destination)`` each, in every layer."""
        if not pairs:
            return
        device = self.k[0].device
        source, destination = torch.tensor(pairs, dtype=torch.int64, device=device).unbind(1)
        self._copy(source, destination)


def _block_copier(k: list[Tensor], v: list[Tensor]) -> Callable[[Tensor, Tensor], None]:
    """Copies block ``source[i]`` over block ``destination[i]`` in all layers; on a GPU at once."""
    if not triton_obstacle(k[0].device):
        # Triton is only there where it can be used.
        from kernels.copy_blocks import block_caches
        from kernels.copy_blocks import copy_blocks as copy_everywhere

        caches = block_caches(k, v)
        return lambda source, destination: copy_everywhere(caches, source, destination)

    def copy_layer_by_layer(source: Tensor, destination: Tensor) -> None:
        for k_cache, v_cache in zip(k, v, strict=True):
            copy_blocks(k_cache, v_cache, source, destination)

    return copy_layer_by_layer


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeroed memory that a large pool on the CPU takes only as it is written.

    It comes from the system, which zeroes page by page; torch writes all of it at once.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or num_bytes < _LAZY_BYTES:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.frombuffer(_fresh_pages(num_bytes), dtype=dtype).view(shape)


def _fresh_pages(num_bytes: int) -> mmap.mmap | npt.NDArray[np.uint8]:
    if sys.platform == "win32":
        return np.zeros(num_bytes, np.uint8)
    # Not from malloc: once a model has been freed, malloc has that memory at hand for the next
    # pool, and has to write all of it with zeros.
    try:
        pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{num_bytes:,} bytes for the pool: {error.strerror}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
