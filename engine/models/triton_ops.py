"""The operations of a decoder layer as Triton kernels: four launches besides attention where few
tokens are decoded, and two norms.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.base import StepAttention, StoringStep
from engine.linear import GatedLinear, Linear
from engine.loading.progress import Breathe, no_breath
from engine.models.ops import Heads, ReferenceOps, Rotation
from engine.quantized.grouped import GroupedWeight
from engine.quantized.triton_linear import GroupedGated, GroupedLinear
from engine.skinny_linear import SkinnyGated, SkinnyLinear
from kernels.dependent_launch import can_pdl
from kernels.qkv_rope_store import qkv_rope_store
from kernels.rms_norm import add_rms_norm, rms_norm


class TritonOps(ReferenceOps):
    """Fused operations on a CUDA device.

    Args:
        device: where the model lies.
        deterministic: a token's result does not depend, to the last bit, on the tokens beside it.
    """

    def __init__(self, device: torch.device, deterministic: bool = False) -> None:
        super().__init__()
        self._pdl = can_pdl(device)
        self._deterministic = deterministic

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        return SkinnyLinear(weight, bias, self._pdl, self._deterministic)

    def keeps(self, weight: GroupedWeight, dtype: torch.dtype) -> bool:
        return weight.shape[1] % 32 == 0

    def grouped(
        self,
        weight: GroupedWeight,
        bias: Tensor | None,
        dtype: torch.dtype,
        breathe: Breathe = no_breath,
    ) -> Linear:
        return GroupedLinear(weight, bias, self._pdl, self._deterministic)

    def grouped_output(
        self, weight: GroupedWeight, dtype: torch.dtype, breathe: Breathe = no_breath
    ) -> Linear | None:
        return None

    def gated(self, gate_up: Linear, activation: str) -> GatedLinear:
        if isinstance(gate_up, SkinnyLinear):
            return SkinnyGated(gate_up, activation)
        return GroupedGated(gate_up, activation, self._pdl)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return rms_norm(x, weight, eps, pdl=self._pdl)

    def add_norm(
        self, linear: Linear, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        if isinstance(linear, SkinnyLinear):
            return linear.add_norm(x, residual, weight, eps)
        return add_rms_norm(linear(x), residual, weight, eps, pdl=self._pdl)

    def rotation(self, cos: Tensor, sin: Tensor, positions: Tensor) -> Rotation:
        return Rotation(cos, sin, positions)

    def attend(
        self, layer: int, qkv: Tensor, heads: Heads, rotation: Rotation, step: StepAttention
    ) -> Tensor:
        if not isinstance(step, StoringStep):
            gathered = super().rotation(rotation.cos, rotation.sin, rotation.positions)
            return super().attend(layer, qkv, heads, gathered, step)
        k_cache, v_cache = step.caches(layer)
        query = qkv_rope_store(
            qkv,
            rotation.cos.squeeze(1),
            rotation.sin.squeeze(1),
            rotation.positions,
            k_cache,
            v_cache,
            step.slot_mapping,
            norm=heads.norm,
            eps=heads.eps,
            pdl=self._pdl,
        )
        return step.attend_stored(layer, query)
