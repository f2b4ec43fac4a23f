"""The operations of a decoder layer in 16 bits on the CPU, with few calls of torch.

Where a step has few tokens a call costs more than what it computes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.linear import Linear
from engine.models.ops import ReferenceOps
from kernels.reference.rms_norm import mirrored, mirrored_rms_norm, mirrors


class NarrowCpuOps(ReferenceOps):
    """``ReferenceOps`` whose residual of few tokens is carried beside its negative,
    ``[tokens, 2, hidden]``, as the norm wants it: the sum makes both at once.

    Args:
        dtype: of the model.
        keep_expanded: see ``ReferenceOps``.
    """

    def __init__(self, dtype: torch.dtype, keep_expanded: bool = False) -> None:
        super().__init__(keep_expanded)
        self._signs = torch.tensor([[1.0], [-1.0]], dtype=dtype)

    def add_norm(
        self, linear: Linear, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        if residual.dim() == 2:
            if not mirrors(residual):
                return super().add_norm(linear, x, residual, weight, eps)
            residual = mirrored(residual)
        y = linear(x)
        if y.shape[0] != 1:
            # One row goes with both signs as it is.
            y = y.unsqueeze(1)
        hidden = torch.addcmul(residual, y, self._signs)
        return hidden, mirrored_rms_norm(hidden, weight, eps)
