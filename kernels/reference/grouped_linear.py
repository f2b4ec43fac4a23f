"""A product with a weight that is kept as small whole numbers, scaled by group."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# A word of four bytes.
_HALVES, _HALF_BYTES = 2, 2


def unpack_codes(codes: Tensor, bits: int) -> Tensor:
    """The codes one a byte, ``[rows, columns]`` uint8.

    Args:
        codes: uint8, ``[rows, columns · bits / 8]``, in words of four bytes, of as many neighbours
            as go into one: 8 in four bits, 4 in eight. Those with an even place are in the first
            two bytes, from the lowest bits on, those with an odd one likewise in the other two. So
            one shift and one mask give a GPU two neighbours, each in its half of a register.
        bits: 4 or 8.
    """
    halves = torch.unflatten(codes, -1, (-1, _HALVES, _HALF_BYTES))
    if bits == 4:
        halves = torch.stack((halves & 15, halves >> 4), -1).flatten(-2)
    return halves.transpose(-2, -1).flatten(-3)


def weave_codes(codes: Tensor, bits: int) -> Tensor:
    """The other way: ``[rows, columns]`` codes, one a byte, in the order of ``unpack_codes``."""
    halves = torch.unflatten(codes, -1, (-1, 16 // bits, _HALVES)).transpose(-2, -1)
    if bits == 4:
        halves = halves[..., ::2] | (halves[..., 1::2] << 4)
    return halves.flatten(-3)


def expand_grouped(
    codes: Tensor, scale: Tensor, minimum: Tensor, bits: int, dtype: torch.dtype
) -> Tensor:
    """``code · scale + minimum``, computed in float32 at least: ``[rows, columns]``.

    Args:
        codes: see ``unpack_codes``.
        scale: ``[rows, groups]``, each for as many neighbouring elements of its row.
        minimum: likewise.
        bits: 4 or 8.
        dtype: of the result.
    """
    return scaled(unpack_codes(codes, bits), scale, minimum, dtype)


def scaled(codes: Tensor, scale: Tensor, minimum: Tensor, dtype: torch.dtype) -> Tensor:
    """``expand_grouped`` of codes one a byte, ``[rows, columns]``."""
    wide = torch.promote_types(dtype, torch.float32)
    values = torch.unflatten(codes.to(wide), -1, (scale.shape[1], -1))
    values *= scale.to(wide).unsqueeze(-1)
    values += minimum.to(wide).unsqueeze(-1)
    return values.flatten(-2).to(dtype)


def grouped_linear(
    x: Tensor,
    codes: Tensor,
    scale: Tensor,
    minimum: Tensor,
    bias: Tensor | None = None,
    *,
    bits: int,
    residual: Tensor | None = None,
) -> Tensor:
    """``x weightᵀ + bias``, then ``+ residual`` if that is given.

    Args:
        x: ``[tokens, in_features]``.
        codes: of the weight, see ``unpack_codes``; ``scale`` and ``minimum``: see
            ``expand_grouped``.
        scale: ``[out_features, groups]``.
        minimum: ``[out_features, groups]``.
        bias: ``[out_features]``.
        bits: 4 or 8.
        residual: ``[tokens, out_features]``, left as it is.

    Returns:
        ``[tokens, out_features]``.
    """
    y = F.linear(x, expand_grouped(codes, scale, minimum, bits, x.dtype), bias)
    return y if residual is None else residual + y
