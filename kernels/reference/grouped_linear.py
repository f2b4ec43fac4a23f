"""A product with a weight that is kept as small whole numbers, scaled by group."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# A run is 16 bytes, which a thread of a GPU reads at once as four words of four bytes.
_WORDS, _WORD_BYTES = 4, 4


def unpack_codes(codes: Tensor, bits: int) -> Tensor:
    """The codes one a byte, ``[rows, columns]`` uint8.

    Args:
        codes: uint8, in runs of 16 bytes, four words each. In four bits
            ``[rows, columns / 2]``: byte ``j`` of word ``q`` of a run has element ``8 j + 2 q`` of
            32 in its low half, the one after it in its high half. In eight bits
            ``[rows, columns]``: byte ``2 j + c`` of word ``q`` has element ``8 j + 2 q + c`` of 16.
            So each word has two neighbours of every eight elements, and those are what a thread
            gets when it reads eight elements of a row at once.
        bits: 4 or 8.
    """
    words = torch.unflatten(codes, -1, (-1, _WORDS, _WORD_BYTES))
    if bits == 8:
        pairs = torch.unflatten(words, -1, (-1, 2))
    else:
        pairs = torch.stack((words & 15, words >> 4), -1)
    return pairs.transpose(-3, -2).flatten(-4)


def weave_codes(codes: Tensor, bits: int) -> Tensor:
    """The other way: ``[rows, columns]`` codes, one a byte, in the order of ``unpack_codes``."""
    pairs = torch.unflatten(codes, -1, (-1, 16 // bits, _WORDS, 2)).transpose(-3, -2)
    if bits == 4:
        return (pairs[..., 0] | (pairs[..., 1] << 4)).flatten(-3)
    return pairs.flatten(-4)


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
