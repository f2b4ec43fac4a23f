"""Products with grouped weights on a GPU: the kernel for few rows, expanded pieces for many."""

from __future__ import annotations

from torch import Tensor

from engine.linear import GatedLinear, Linear
from engine.quantized.grouped import GroupedWeight
from kernels.gate_and_mul import gate_and_mul
from kernels.grouped_linear import grouped_linear
from kernels.launch_grouped import fixed_grouped_launch


class GroupedLinear:
    """A ``Linear`` whose weight stays quantised.

    Args:
        weight: see ``GroupedWeight``.
        bias: ``[out_features]``.
        pdl: launch each kernel before the one before it has ended.
        deterministic: a row's result does not depend, to the last bit, on how many rows there are.
    """

    keeps_tensor = True
    """The weights take no memory beside those given."""

    def __init__(
        self, weight: GroupedWeight, bias: Tensor | None, pdl: bool, deterministic: bool
    ) -> None:
        self.out_features, self.in_features = weight.shape
        # Woven already where it came to a GPU.
        self._weight = weight.weave()
        self._bias = bias
        self._pdl = pdl
        self._launch = fixed_grouped_launch(weight.bits) if deterministic else None

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, None)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self._product(x, residual)

    def _product(self, x: Tensor, residual: Tensor | None) -> Tensor:
        weight = self._weight
        return grouped_linear(
            x,
            weight.codes,
            weight.scale,
            weight.minimum,
            self._bias,
            bits=weight.bits,
            residual=residual,
            launch=self._launch,
            pdl=self._pdl,
        )


class GroupedGated(GatedLinear):
    """The gate as one kernel after a product whose launch does not bring it."""

    def __init__(self, gate_up: Linear, activation: str, pdl: bool) -> None:
        super().__init__(gate_up, activation)
        self._activation = activation
        self._pdl = pdl

    def __call__(self, x: Tensor) -> Tensor:
        return gate_and_mul(self._gate_up(x), self._activation, pdl=self._pdl)
