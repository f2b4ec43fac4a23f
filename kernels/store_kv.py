"""Writes keys and values into the paged pool through the slot mapping (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.checks import check_gapless
from kernels.device_guard import on_device_of
from kernels.launch import next_power_of_2


@triton.jit
def _store_kv_kernel(
    key_ptr,  # [tokens, width], rows key_stride apart
    value_ptr,  # [tokens, width], rows value_stride apart
    k_cache_ptr,  # [num_blocks * block_size, width], contiguous
    v_cache_ptr,
    slot_ptr,  # [tokens]
    key_stride,
    value_stride,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
):
    """One program a token: the heads of a token are one contiguous row in the pool."""
    token = tl.program_id(0).to(tl.int64)
    # 64 bits before the multiplication: a large pool has more than 2**31 elements.
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if slot >= 0:
        column = tl.arange(0, WIDTH_POW2)
        inside = column < WIDTH
        key = tl.load(key_ptr + token * key_stride + column, mask=inside)
        value = tl.load(value_ptr + token * value_stride + column, mask=inside)
        tl.store(k_cache_ptr + slot * WIDTH + column, key, mask=inside)
        tl.store(v_cache_ptr + slot * WIDTH + column, value, mask=inside)


def store_kv(
    key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor
) -> None:
    """Writes each token's key and value to its slot; nothing else in the pool changes.

    Args:
        key: ``[tokens, kv_heads, head_dim]``, each token's heads contiguous; ``value`` likewise.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.
        slot_mapping: ``[tokens]`` integers, ``block_id * block_size + offset``; -1 skips the token.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    tokens, num_kv_heads, head_dim = key.shape
    width = num_kv_heads * head_dim
    if value.shape != key.shape or k_cache.shape[2:] != key.shape[1:]:
        raise ValueError(
            f"key {tuple(key.shape)}, value {tuple(value.shape)} and "
            f"cache {tuple(k_cache.shape)} do not fit"
        )
    if k_cache.shape != v_cache.shape or slot_mapping.shape != (tokens,):
        raise ValueError(f"{tuple(slot_mapping.shape)} slots for {tokens} tokens")
    if not (k_cache.is_contiguous() and v_cache.is_contiguous()):
        raise ValueError("the caches must be contiguous")
    if key.stride()[1:] != (head_dim, 1) or value.stride()[1:] != (head_dim, 1):
        raise ValueError("the heads of a token must be contiguous")
    check_gapless(slot_mapping=slot_mapping)
    if tokens == 0:
        return
    with on_device_of(key):
        _store_kv_kernel[(tokens,)](
            key,
            value,
            k_cache,
            v_cache,
            slot_mapping,
            key.stride(0),
            value.stride(0),
            WIDTH=width,
            WIDTH_POW2=next_power_of_2(width),
            num_warps=4 if width > 512 else 1,
        )
