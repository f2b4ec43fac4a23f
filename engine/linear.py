"""Matrix products of the model, behind objects that may keep their weights packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.reference.gelu_and_mul import gelu_and_mul
from kernels.reference.silu_and_mul import silu_and_mul

_GATES: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"silu": silu_and_mul, "gelu_tanh": gelu_and_mul}
)


class Linear(Protocol):
    """``y = x wᵀ + b`` over the last dimension of ``x`` ``[tokens, in_features]``."""

    in_features: int
    out_features: int

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take."""

    def __call__(self, x: Tensor) -> Tensor:
        """``[tokens, out_features]``."""

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """``residual + y``; ``residual`` ``[tokens, out_features]`` is left as it is."""


class DenseLinear:
    """Weights as they are. ``keeps_tensor``: they take no memory beside the tensor given."""

    keeps_tensor = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight = weight
        self._bias = bias

    @property
    def nbytes(self) -> int:
        return _nbytes(self._weight, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias).add_(residual)


class PackedLinear:
    """bfloat16 weights in oneDNN's own blocked order, which it otherwise makes anew for every
    product.

    On two Zen 4 cores (AVX-512 BF16) and this model's shapes: 1.3–2.5 times as fast as ``F.linear``
    up to 8 tokens, 1.4 times at 30, equal from 512 on. The order does not depend on the number of
    tokens.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise.default
        self._product_add = torch.ops.mkldnn._linear_pointwise.binary

    @property
    def nbytes(self) -> int:
        return self.out_features * self.in_features * 2 + _nbytes(self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = self._product(x, self._weight, self._bias, "none", [], "")
        return out

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        out: Tensor = self._product_add(x, residual, self._weight, self._bias, "add")
        return out


class GatedLinear:
    """``activation(x w_gateᵀ) · (x w_upᵀ)`` with both weights in one product.

    Args:
        gate_up: ``Linear`` of the two weights stacked, gate first.
        activation: ``silu`` or ``gelu_tanh``.
    """

    def __init__(self, gate_up: Linear, activation: str = "silu") -> None:
        self._gate_up = gate_up
        self._gate = _GATES[activation]

    @property
    def nbytes(self) -> int:
        return self._gate_up.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """``[tokens, intermediate]``."""
        return self._gate(self._gate_up(x))


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether ``PackedLinear`` is there and pays."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and has_fast_bfloat16()
    )


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    checks = (getattr(torch.cpu, name, None) for name in names)
    return any(check is not None and check() for check in checks)


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest ``Linear`` for these weights, ``[out_features, in_features]``."""
    if can_pack(weight.device, weight.dtype):
        return PackedLinear(weight, bias)
    return DenseLinear(weight.contiguous(), bias)


def _nbytes(*tensors: Tensor | None) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)
