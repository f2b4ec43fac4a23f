"""The gate of a SwiGLU feed-forward layer."""

from __future__ import annotations

import torch
from torch import Tensor


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """``silu(gate) · up`` (Shazeer, 2020).

    Args:
        gate_up: ``[tokens, 2 · intermediate]``, gate in the first half.

    Returns:
        ``[tokens, intermediate]``.
    """
    half = gate_up.shape[-1] // 2
    gate, up = torch.split_with_sizes(gate_up, (half, half), -1)
    return torch.nn.functional.silu(gate).mul_(up)
