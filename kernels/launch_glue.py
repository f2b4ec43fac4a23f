"""Tuning choices of the element-wise kernels: tiles and warps."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.launch import next_power_of_2

MAX_COPY_PAIRS = 256
_COPY_WORDS = 8192
_FEW_TOKENS = 32
"""Up to here a step has fewer tokens than would fill the device with one program each."""
_ROPE_HEADS = 4


@dataclass(frozen=True, slots=True)
class NormLaunch:
    """One program a row; ``size_pow2``: its elements, padded."""

    size_pow2: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class GateLaunch:
    """``tile``: elements of one token a program."""

    tile: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class RopeLaunch:
    """``heads``: of one token a program."""

    heads: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class CopyLaunch:
    """``pairs``: a power of two, all of a launch; ``tile``: words of a block a program."""

    pairs: int
    tile: int
    num_warps: int


def norm_launch(size: int) -> NormLaunch:
    """About eight elements a thread: the loads of a row are all under way at once."""
    padded = next_power_of_2(size)
    return NormLaunch(padded, max(1, min(16, padded // 256)))


def gate_launch(tokens: int, size: int) -> GateLaunch:
    """Small tiles for few tokens, so that several multiprocessors share a row."""
    if tokens <= _FEW_TOKENS:
        return GateLaunch(min(512, next_power_of_2(size)), 2)
    return GateLaunch(min(2048, next_power_of_2(size)), 4)


def rope_launch(num_heads: int, head_dim: int) -> RopeLaunch:
    """Four heads a program, whatever the number of tokens: more are no faster for many tokens, and
    slower for few.
    """
    heads = min(_ROPE_HEADS, next_power_of_2(num_heads))
    return RopeLaunch(heads, max(1, heads * next_power_of_2(head_dim) // 256))


def copy_launch(pairs: int, block_words: int) -> CopyLaunch:
    """All pairs of a launch and at most 32 KiB a program."""
    padded = next_power_of_2(pairs)
    tile = min(next_power_of_2(block_words), max(16, min(1024, _COPY_WORDS // padded)))
    return CopyLaunch(padded, tile, 4)
