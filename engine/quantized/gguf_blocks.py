"""GGUF's quantised blocks as ``GroupedWeight``, value for value.

A row is a run of blocks. What a block holds: https://github.com/ggml-org/ggml, ``ggml-common.h``;
the gguf package expands the same blocks to float32, and the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from engine.quantized.grouped import GroupedWeight, paired

_GROUP = 32
_SUPER_BLOCK = 256


def _half(blocks: Tensor, offset: int) -> Tensor:
    """The float16 at a byte of each block, ``[rows, blocks]`` float32."""
    return blocks[..., offset : offset + 2].contiguous().view(torch.float16).squeeze(-1).float()


def _fifth_bits(blocks: Tensor, offset: int) -> Tensor:
    """32 bits from a byte of each block on, ``[rows, blocks, 32]``, 16 where set."""
    places = torch.arange(8, dtype=torch.uint8)
    bits = (blocks[..., offset : offset + 4].unsqueeze(-1) >> places) & 1
    return bits.flatten(-2) << 4


def _nibbles(halves: Tensor) -> Tensor:
    """Low halves of the bytes, then high ones."""
    return torch.cat((halves & 15, halves >> 4), -1)


def _q4_0(blocks: Tensor) -> GroupedWeight:
    scale = _half(blocks, 0)
    return GroupedWeight(blocks[..., 2:].flatten(1), scale, -8 * scale, 4, _GROUP)


def _q4_1(blocks: Tensor) -> GroupedWeight:
    return GroupedWeight(blocks[..., 4:].flatten(1), _half(blocks, 0), _half(blocks, 2), 4, _GROUP)


def _q5_0(blocks: Tensor) -> GroupedWeight:
    scale = _half(blocks, 0)
    codes = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks, 2)
    return GroupedWeight(codes.flatten(1), scale, -16 * scale, 8, _GROUP)


def _q5_1(blocks: Tensor) -> GroupedWeight:
    codes = _nibbles(blocks[..., 8:]) | _fifth_bits(blocks, 4)
    return GroupedWeight(codes.flatten(1), _half(blocks, 0), _half(blocks, 2), 8, _GROUP)


def _q8_0(blocks: Tensor) -> GroupedWeight:
    scale = _half(blocks, 0)
    # From two's complement to an offset of 128.
    codes = blocks[..., 2:] ^ 128
    return GroupedWeight(codes.flatten(1), scale, -128 * scale, 8, _GROUP)


def _scales_of_eight(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and minimum of the eight groups of a super-block, ``[rows, groups]`` each.

    Six bits each in twelve bytes: the first four of each whole in bytes 0–3 and 4–7, of the last
    four the low halves in bytes 8–11 and the upper two bits above the first four's.
    """
    packed = blocks[..., 4:16]
    first, second, low = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = torch.cat((first & 63, (low & 15) | ((first >> 6) << 4)), -1)
    minima = torch.cat((second & 63, (low >> 4) | ((second >> 6) << 4)), -1)
    scale = _half(blocks, 0).unsqueeze(-1) * scales.float()
    minimum = -(_half(blocks, 2).unsqueeze(-1) * minima.float())
    return scale.flatten(1), minimum.flatten(1)


def _group_nibbles(halves: Tensor) -> Tensor:
    """``[rows, blocks, 128]`` bytes → ``[rows, blocks, 8, 32]``: each 32 bytes hold two groups."""
    runs = torch.unflatten(halves, -1, (4, _GROUP))
    return torch.stack((runs & 15, runs >> 4), -2).flatten(-3, -2)


def _q4_k(blocks: Tensor) -> GroupedWeight:
    codes = paired(_group_nibbles(blocks[..., 16:]).flatten(1))
    return GroupedWeight(codes, *_scales_of_eight(blocks), 4, _GROUP)


def _q5_k(blocks: Tensor) -> GroupedWeight:
    places = torch.arange(8, dtype=torch.uint8).unsqueeze(-1)
    fifth = ((blocks[..., 16:48].unsqueeze(-2) >> places) & 1) << 4
    codes = _group_nibbles(blocks[..., 48:]) | fifth
    return GroupedWeight(codes.flatten(1), *_scales_of_eight(blocks), 8, _GROUP)


def _q6_k(blocks: Tensor) -> GroupedWeight:
    """128 values take 64 bytes of low halves and 32 bytes of upper bits, two each."""
    low = torch.unflatten(blocks[..., :128], -1, (2, 2, 32))
    lower = torch.cat((low & 15, low >> 4), -2)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).unsqueeze(-1)
    upper = (torch.unflatten(blocks[..., 128:192], -1, (2, 1, 32)) >> shifts) & 3
    codes = lower | (upper << 4)
    scales = blocks[..., 192:208].contiguous().view(torch.int8).float()
    scale = (_half(blocks, 208).unsqueeze(-1) * scales).flatten(1)
    return GroupedWeight(codes.flatten(1), scale, -32 * scale, 8, 16)


BLOCK_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "Q4_0": 18,
        "Q4_1": 20,
        "Q5_0": 22,
        "Q5_1": 24,
        "Q8_0": 34,
        "Q4_K": 144,
        "Q5_K": 176,
        "Q6_K": 210,
    }
)
"""The kinds that can be kept, and the bytes of a block of each."""

_READERS: Mapping[str, Callable[[Tensor], GroupedWeight]] = MappingProxyType(
    {
        "Q4_0": _q4_0,
        "Q4_1": _q4_1,
        "Q5_0": _q5_0,
        "Q5_1": _q5_1,
        "Q8_0": _q8_0,
        "Q4_K": _q4_k,
        "Q5_K": _q5_k,
        "Q6_K": _q6_k,
    }
)


def read_blocks(kind: str, rows: Tensor) -> GroupedWeight:
    """A quantised matrix as it lies in the file.

    Args:
        kind: GGUF's name, one of ``BLOCK_BYTES``.
        rows: ``[rows, bytes of a row]`` uint8. Nothing of the result shares its memory.
    """
    weight = _READERS[kind](torch.unflatten(rows, -1, (-1, BLOCK_BYTES[kind])))
    if weight.codes.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr():
        return GroupedWeight(
            weight.codes.clone(), weight.scale, weight.minimum, weight.bits, weight.group
        )
    return weight
