"""The paged pool's memory: one K and one V tensor a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.models.config import ModelConfig
from engine.triton_probe import triton_obstacle
from kernels.reference.copy_blocks import copy_blocks
from kernels.reference.store_kv import cache_rows


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

    numpy leaves the zeroing to the system, page by page; torch writes all of it at once.
    """
    if device.type != "cpu":  # needs a GPU
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)
