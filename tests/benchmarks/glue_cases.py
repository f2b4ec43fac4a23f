"""Products of the models that are measured, and their operands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.gate_and_mul import silu_and_mul
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.skinny_linear import linear_add_rms_norm, skinny_linear
from tests.benchmarks.graph_timing import rotations

EPS = 1e-6


@dataclass(frozen=True)
class Product:
    """One product of a layer and what comes with it: the norm before it, the gate, or the residual
    sum and the norm after it.
    """

    outputs: int
    inner: int
    norm: bool = False
    gated: bool = False
    joined: bool = False

    @property
    def weight_rows(self) -> int:
        return self.outputs * (2 if self.gated else 1)

    @property
    def weight_bytes(self) -> int:
        return self.weight_rows * self.inner * 2

    def plain(self) -> Product:
        """The product alone."""
        return Product(self.weight_rows, self.inner)


SHAPES = {
    # Qwen3-0.6B
    "qkv": Product(4096, 1024),
    "norm_qkv": Product(4096, 1024, norm=True),
    "o": Product(1024, 2048, joined=True),
    "gate_up": Product(3072, 1024, gated=True),
    "norm_gate_up": Product(3072, 1024, norm=True, gated=True),
    "down": Product(1024, 3072, joined=True),
    "lm_head": Product(151936, 1024),
    # SmolLM2-135M
    "smol_qkv": Product(960, 576),
    "smol_o": Product(576, 576, joined=True),
    "smol_gate_up": Product(1536, 576, gated=True),
    "smol_down": Product(576, 1536, joined=True),
    # Qwen3-8B
    "8b_qkv": Product(6144, 4096),
    "8b_o": Product(4096, 4096, joined=True),
    "8b_gate_up": Product(12288, 4096, gated=True),
}
LAYER = ("qkv", "o", "gate_up", "down")


@dataclass(frozen=True)
class Operands:
    """``weights``: ``[count, weight_rows, inner]``; the others are the same for all of them."""

    x: Tensor
    weights: Tensor
    norm_weight: Tensor
    next_norm_weight: Tensor
    residual: Tensor

    @property
    def count(self) -> int:
        return len(self.weights)

    def widened(self) -> Operands:
        """The first weight only, in float32."""
        return Operands(
            self.x.float(),
            self.weights[:1].float(),
            self.norm_weight.float(),
            self.next_norm_weight.float(),
            self.residual.float(),
        )

    def with_rows(self, x: Tensor, residual: Tensor) -> Operands:
        return replace(self, x=x, residual=residual)


def make_operands(
    product: Product, rows: int, count: int | None, dtype: torch.dtype, device: str = "cuda"
) -> Operands:
    """Random operands; enough weights that none stays in the level-2 cache if ``count`` is None."""
    wanted = count or rotations(product.weight_bytes)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype, device=device)

    return Operands(
        draw(rows, product.inner),
        draw(wanted, product.weight_rows, product.inner).mul_(product.inner**-0.5),
        draw(product.inner).abs_(),
        draw(product.outputs).abs_(),
        draw(rows, product.outputs),
    )


def run_ours(
    product: Product, operands: Operands, index: int, **options: Any
) -> tuple[Tensor, Tensor]:
    """The result, and where the product is joined what the norm makes of it (else the same)."""
    weight = operands.weights[index % operands.count]
    if product.joined:
        return linear_add_rms_norm(
            operands.x,
            weight,
            None,
            operands.residual,
            operands.next_norm_weight,
            EPS,
            **options,
        )
    out = skinny_linear(
        operands.x,
        weight,
        norm_weight=operands.norm_weight if product.norm else None,
        eps=EPS,
        gate="silu" if product.gated else None,
        **options,
    )
    return out, out


def run_library(
    product: Product, operands: Operands, index: int, pdl: bool = False
) -> tuple[Tensor, Tensor]:
    """cuBLAS with our glue kernels, one launch each."""
    x = operands.x
    if product.norm:
        x = rms_norm(x, operands.norm_weight, EPS, pdl=pdl)
    y = F.linear(x, operands.weights[index % operands.count])
    if product.gated:
        y = silu_and_mul(y, pdl=pdl)
    if product.joined:
        return add_rms_norm(y, operands.residual, operands.next_norm_weight, EPS, pdl=pdl)
    return y, y
