"""The operations of a decoder layer behind one object, so that a device can bring fused ones.

The decoder says what is computed; a ``DecoderOps`` says with how many kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.linear import GatedLinear, Linear, make_linear
from engine.loading.progress import Breathe, no_breath
from engine.quantized.grouped import GroupedWeight
from engine.quantized.int8_output import Int8Output
from engine.quantized.make import is_eight_bit_output, keeps_grouped, make_grouped_linear
from kernels.reference.rms_norm import head_rms_norm, rms_norm
from kernels.reference.rope import rope


@dataclass(frozen=True, slots=True)
class Heads:
    """How a row of a packed QKV product is read: queries first, then keys, then values.

    ``norm``: ``[num_heads + num_kv_heads, head_dim]``, weights of the norm of each query's and
    key's head, before rotation; None: there is none.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm: Tensor | None = None
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary embedding of one step. ``cos``, ``sin``: ``[max_positions, 1, rotary_dim]`` tables as
    ``rope_table`` makes them. ``positions``: ``[tokens]`` int64. ``rows``: the tables' rows at the
    positions, ``[tokens, 1, rotary_dim]`` each, where the operations want them gathered.
    """

    cos: Tensor
    sin: Tensor
    positions: Tensor
    rows: tuple[Tensor, Tensor] | None = None


class DecoderOps(Protocol):
    """What the decoder asks for. Rows are tokens; nothing given is written to."""

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """A product with these weights, ``[out_features, in_features]``."""

    def keeps(self, weight: GroupedWeight, dtype: torch.dtype) -> bool:
        """Whether ``grouped`` multiplies with it as it is, ``x`` being of this dtype."""

    def grouped(
        self,
        weight: GroupedWeight,
        bias: Tensor | None,
        dtype: torch.dtype,
        breathe: Breathe = no_breath,
    ) -> Linear:
        """A product with quantised weights that ``keeps`` has agreed to. ``breathe`` is called now
        and then where that takes long.
        """

    def grouped_output(
        self, weight: GroupedWeight, dtype: torch.dtype, breathe: Breathe = no_breath
    ) -> Linear | None:
        """The output layer with quantised weights, where it has a product of its own."""

    def gated(self, gate_up: Linear, activation: str) -> GatedLinear:
        """``activation(gate) · up`` of a product whose first half is the gate."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """``[tokens, hidden]`` normalised."""

    def add_norm(
        self, linear: Linear, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """``residual + linear(x)``, and that normalised; ``[tokens, hidden]`` both."""

    def rotation(self, cos: Tensor, sin: Tensor, positions: Tensor) -> Rotation:
        """Once a step, for all layers with these tables."""

    def attend(
        self, layer: int, qkv: Tensor, heads: Heads, rotation: Rotation, step: StepAttention
    ) -> Tensor:
        """Norm of queries and keys by head, rotation, store and attention.

        Args:
            layer: its index.
            qkv: ``[tokens, (num_heads + 2 · num_kv_heads) · head_dim]``.
            heads: how ``qkv`` is read.
            rotation: of this step and layer.
            step: stores keys and values and attends.

        Returns:
            ``[tokens, num_heads · head_dim]``.
        """


class ReferenceOps:
    """One torch operation after the other, on any device.

    Args:
        keep_expanded: quantised weights are kept in the model's dtype too, where that makes
            products with many tokens faster.
    """

    def __init__(self, keep_expanded: bool = False) -> None:
        self._keep_expanded = keep_expanded

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        return make_linear(weight, bias)

    def keeps(self, weight: GroupedWeight, dtype: torch.dtype) -> bool:
        return keeps_grouped(weight, dtype)

    def grouped(
        self,
        weight: GroupedWeight,
        bias: Tensor | None,
        dtype: torch.dtype,
        breathe: Breathe = no_breath,
    ) -> Linear:
        return make_grouped_linear(weight, bias, dtype, self._keep_expanded, breathe)

    def grouped_output(
        self, weight: GroupedWeight, dtype: torch.dtype, breathe: Breathe = no_breath
    ) -> Linear | None:
        if is_eight_bit_output(weight.bits, weight.codes.device, dtype):
            return Int8Output(weight, self._keep_expanded, breathe)
        return None

    def gated(self, gate_up: Linear, activation: str) -> GatedLinear:
        return GatedLinear(gate_up, activation)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return rms_norm(x, weight, eps)

    def add_norm(
        self, linear: Linear, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        hidden = linear.add(x, residual)
        return hidden, rms_norm(hidden, weight, eps)

    def rotation(self, cos: Tensor, sin: Tensor, positions: Tensor) -> Rotation:
        rows = (cos.index_select(0, positions), sin.index_select(0, positions))
        return Rotation(cos, sin, positions, rows)

    def attend(
        self, layer: int, qkv: Tensor, heads: Heads, rotation: Rotation, step: StepAttention
    ) -> Tensor:
        num_rotated = heads.num_heads + heads.num_kv_heads
        sizes = (num_rotated * heads.head_dim, heads.num_kv_heads * heads.head_dim)
        packed, value = torch.split_with_sizes(qkv, sizes, 1)
        packed = packed.view(-1, num_rotated, heads.head_dim)
        if heads.norm is not None:
            packed = head_rms_norm(packed, heads.norm, heads.eps)
        assert rotation.rows is not None, "rotations come from the same operations"
        rotary_dim = rotation.cos.shape[-1]
        if rotary_dim == heads.head_dim:
            rotated = rope(packed, *rotation.rows)
        else:
            turned = rope(packed[..., :rotary_dim], *rotation.rows)
            rotated = torch.cat((turned, packed[..., rotary_dim:]), -1)
        query, key = torch.split_with_sizes(rotated, (heads.num_heads, heads.num_kv_heads), 1)
        return step(layer, query, key.flatten(1), value)


class NormedLinear:
    """A product whose result is normalised before it is added to the residual.

    Args:
        inner: the product.
        weight: ``[out_features]`` of the norm.
        eps: of the norm.
        ops: what normalises.
    """

    def __init__(self, inner: Linear, weight: Tensor, eps: float, ops: DecoderOps) -> None:
        self.in_features, self.out_features = inner.in_features, inner.out_features
        self._inner = inner
        self._weight = weight
        self._eps = eps
        self._ops = ops

    @property
    def nbytes(self) -> int:
        return self._inner.nbytes + self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(self._inner(x), self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.add(self(x), residual)
