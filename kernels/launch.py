"""Every tuning choice of the kernels in one place: tiles, warps, split counts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

MIN_DOT_ROWS = 16
"""A tensor-core product has at least this many rows."""

_MIN_SPLIT_TOKENS = 256
_MAX_SPLITS = 32
_FALLBACK_MULTIPROCESSORS = 1


@dataclass(frozen=True, slots=True)
class DecodeLaunch:
    """``rows``: query heads of one KV head, padded. ``tile``: tokens a step of the loop."""

    rows: int
    tile: int
    splits: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class PrefillLaunch:
    """``rows``: (token, head) pairs of one program. ``tile``: keys a step of the loop."""

    rows: int
    tile: int
    num_warps: int
    num_stages: int


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a CUDA device; 1 elsewhere (the interpreter)."""
    if device.type != "cuda":
        return _FALLBACK_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def next_power_of_2(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def num_splits(batch: int, num_kv_heads: int, max_context: int, device: torch.device) -> int:
    """Into how many parts a context is cut, so that even a small batch fills the device.

    Two programs a multiprocessor, but no part shorter than 256 tokens. A power of two, from the
    batch and the longest context only, so that few variants are compiled.
    """
    wanted = 2 * multiprocessors(device) // max(batch * num_kv_heads, 1)
    most = -(-max_context // _MIN_SPLIT_TOKENS)
    return max(1, min(next_power_of_2(wanted), next_power_of_2(most), _MAX_SPLITS))


def decode_launch(
    batch: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    max_context: int,
    device: torch.device,
) -> DecodeLaunch:
    """How one decode step of this shape is cut up."""
    return DecodeLaunch(
        rows=max(MIN_DOT_ROWS, next_power_of_2(num_heads // num_kv_heads)),
        tile=32 if head_dim > 128 else 64,
        splits=num_splits(batch, num_kv_heads, max_context, device),
        num_warps=4,
        num_stages=3 if head_dim <= 128 else 2,
    )


def prefill_launch(num_tokens: int, group_size: int, head_dim: int) -> PrefillLaunch:
    """How a prefill chunk of this shape is cut up."""
    pairs = num_tokens * group_size
    rows = min(128 if head_dim <= 128 else 64, max(MIN_DOT_ROWS, next_power_of_2(pairs)))
    return PrefillLaunch(
        rows=rows,
        tile=64 if head_dim <= 128 else 32,
        num_warps=8 if rows >= 128 else 4,
        num_stages=2,
    )
