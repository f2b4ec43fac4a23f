"""A product with a weight, and what comes right before and right after it in a layer."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from kernels.reference.gelu_and_mul import gelu_and_mul
from kernels.reference.rms_norm import rms_norm
from kernels.reference.silu_and_mul import silu_and_mul


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 0.0,
    gate: str | None = None,
) -> Tensor:
    """``norm(x) weightᵀ + bias``, then the gate, then ``+ residual``; each only if asked for.

    Args:
        x: ``[tokens, in_features]``.
        weight: ``[out_features, in_features]``; with a ``gate`` twice the rows, gate first.
        bias: ``[out_features]``, or twice that.
        residual: ``[tokens, out_features]``, left as it is.
        norm_weight: ``[in_features]``: ``x`` is first normalised as by ``rms_norm``.
        eps: of the normalisation.
        gate: ``silu`` or ``gelu_tanh``; the result is ``gate(first half) · second half`` of the
            product.

    Returns:
        ``[tokens, out_features]``.
    """
    if norm_weight is not None:
        x = rms_norm(x, norm_weight, eps)
    y = F.linear(x, weight, bias)
    if gate is not None:
        y = silu_and_mul(y) if gate == "silu" else gelu_and_mul(y)
    return y if residual is None else residual + y
