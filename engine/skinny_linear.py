"""Products of a model on a GPU: a kernel of our own for few rows, the library for many."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from engine.linear import GatedLinear
from kernels.gate_and_mul import gate_and_mul
from kernels.launch_linear import SKINNY_ROWS, LinearLaunch, fixed_launch
from kernels.rms_norm import add_rms_norm
from kernels.skinny_linear import linear_add_rms_norm, skinny_linear


class SkinnyLinear:
    """A ``Linear`` with what comes after it in the same launches.

    Args:
        weight: ``[out_features, in_features]``.
        bias: ``[out_features]``.
        pdl: launch each kernel before the one before it has ended.
        deterministic: a row's result does not depend, to the last bit, on how many rows there are.
    """

    keeps_tensor = True
    """The weights take no memory beside the tensor given."""

    def __init__(self, weight: Tensor, bias: Tensor | None, pdl: bool, deterministic: bool) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight = weight.contiguous()
        self._bias = bias
        self._pdl = pdl
        self._deterministic = deterministic

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        if self._is_for_library(x):
            return F.linear(x, self._weight, self._bias)
        return skinny_linear(x, self._weight, self._bias, launch=self._launch(), pdl=self._pdl)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        if self._is_for_library(x):
            return F.linear(x, self._weight, self._bias).add_(residual)
        launch = self._launch()
        return skinny_linear(
            x, self._weight, self._bias, residual=residual, launch=launch, pdl=self._pdl
        )

    def add_norm(
        self, x: Tensor, residual: Tensor, norm_weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """``residual + y`` and its normalisation; ``residual`` is left as it is."""
        if self._is_for_library(x):
            product = F.linear(x, self._weight, self._bias)
            return add_rms_norm(product, residual, norm_weight, eps, pdl=self._pdl)
        args = (x, self._weight, self._bias, residual, norm_weight, eps)
        return linear_add_rms_norm(*args, launch=self._launch(), pdl=self._pdl)

    def gated(self, x: Tensor, gate: str) -> Tensor:
        """``gate(first half) · second half`` of the product, ``[tokens, out_features / 2]``."""
        if self._is_for_library(x):
            return gate_and_mul(F.linear(x, self._weight, self._bias), gate, pdl=self._pdl)
        launch = self._launch()
        return skinny_linear(x, self._weight, self._bias, gate=gate, launch=launch, pdl=self._pdl)

    def _is_for_library(self, x: Tensor) -> bool:
        """Known before the kernel's checks, which a prompt's eager launches can do without."""
        return len(x) > SKINNY_ROWS and not self._deterministic

    def _launch(self) -> LinearLaunch | None:
        if not self._deterministic:
            return None
        return fixed_launch(self.in_features, self._weight.dtype)


class SkinnyGated(GatedLinear):
    """The gate of a ``SkinnyLinear``, in its launch where that multiplies by itself."""

    def __init__(self, gate_up: SkinnyLinear, activation: str) -> None:
        super().__init__(gate_up, activation)
        self._product = gate_up
        self._activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        return self._product.gated(x, self._activation)
