"""A product with a weight that is kept as small whole numbers, scaled by group."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

HALF_RUN = 16
"""In four bits a byte holds elements ``j`` and ``j + 16`` of its run of 32."""


def unpack_codes(codes: Tensor, bits: int) -> Tensor:
    """The codes one a byte, ``[rows, columns]`` uint8.

    Args:
        codes: uint8, ``[rows, columns]`` in 8 bits; in 4 bits ``[rows, columns / 2]``, element
            ``j`` of a run of 32 in the low half of a byte, element ``j + 16`` in the high half.
        bits: 4 or 8.
    """
    if bits == 8:
        return codes
    pairs = torch.unflatten(codes, -1, (-1, HALF_RUN))
    return torch.cat((pairs & 15, pairs >> 4), -1).flatten(-2)


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
    wide = torch.promote_types(dtype, torch.float32)
    wide_codes = unpack_codes(codes, bits).to(wide)
    values = torch.unflatten(wide_codes, -1, (scale.shape[1], -1))
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
