"""Rotary position embedding, half-split layout."""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(
    inv_freq: Tensor, num_positions: int, dtype: torch.dtype, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of positions ``0 … num_positions − 1``.

    Angles are computed in float64, so that late positions are as exact as the first.

    Args:
        inv_freq: ``[head_dim / 2]``, radians a position.
        num_positions: rows of the table.
        dtype: of the result.
        scale: factor on both (attention scaling of some long-context methods).

    Returns:
        ``cos``, ``sin``: ``[num_positions, head_dim]`` each. The first half of ``sin`` is negated,
        so that ``rope`` needs one multiply-add.
    """
    positions = torch.arange(num_positions, dtype=torch.float64, device=inv_freq.device)
    angles = torch.outer(positions, inv_freq.to(torch.float64))
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates each pair ``(x[i], x[i + head_dim/2])`` by its position's angle.

    Args:
        x: ``[tokens, heads, head_dim]``; queries and keys may be packed along ``heads``.
        cos: ``[tokens, 1, head_dim]``, rows of ``rope_table`` at the tokens' positions.
        sin: ``[tokens, 1, head_dim]``, signed as ``rope_table`` makes it.

    Returns:
        A new tensor of ``x``'s shape.
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
