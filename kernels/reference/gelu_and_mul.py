"""The gate of a GeGLU feed-forward layer."""

from __future__ import annotations

import torch
from torch import Tensor


def gelu_and_mul(gate_up: Tensor) -> Tensor:
    """``gelu(gate) · up`` with the tanh form of gelu (Hendrycks and Gimpel, 2016; Shazeer, 2020).

    Args:
        gate_up: ``[tokens, 2 · intermediate]``, gate in the first half.

    Returns:
        ``[tokens, intermediate]``.
    """
    half = gate_up.shape[-1] // 2
    gate, up = torch.split_with_sizes(gate_up, (half, half), -1)
    return torch.nn.functional.gelu(gate, approximate="tanh").mul_(up)
