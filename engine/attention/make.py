"""Attention backends by name."""

from __future__ import annotations

import torch

from engine.attention.base import AttentionBackend
from engine.attention.contiguous import ContiguousBackend
from engine.attention.dense import DenseBackend
from engine.attention.paged_reference import PagedReferenceBackend
from engine.devices import CONTIGUOUS, DENSE, PAGED_TRITON
from engine.kv_cache import KVCache
from engine.models.config import ModelConfig


def make_backend(
    name: str,
    config: ModelConfig,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    cache: KVCache | None = None,
    deterministic: bool = False,
) -> AttentionBackend:
    """A backend over an empty storage: one of its own, or ``cache`` where it has a pool.

    Args:
        name: one of ``devices.BACKENDS``, as ``choose_backend`` returned it.
        config: the model's shape.
        num_blocks: size of the pool, where the backend has one.
        block_size: tokens a block.
        dtype: of keys and values.
        device: where they live.
        cache: the pool to use.
        deterministic: no result depends to the last bit on what else is in a step, where a backend
            can promise that.
    """
    if name == DENSE:
        return DenseBackend(config)
    if name == CONTIGUOUS:
        return ContiguousBackend(config)
    if cache is None:
        cache = KVCache(config, num_blocks, block_size, dtype, device)
    if name == PAGED_TRITON:
        # Triton is only there where it can be used.
        from engine.attention.paged_triton import PagedTritonBackend

        return PagedTritonBackend(cache, config, deterministic)
    return PagedReferenceBackend(cache, config)
