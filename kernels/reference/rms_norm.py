"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x · weight / sqrt(mean(x²) + eps)`` over the last dimension (Zhang and Sennrich, 2019).

    Computed in float32 at least and rounded once.

    Args:
        x: ``[..., hidden]``.
        weight: ``[hidden]``.
        eps: added to the mean square.
    """
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
