"""A product with a weight for few rows, and what comes right before and after it (Triton).

At decode the time of a product is that of reading its weight, and each further launch costs
microseconds: the norm before it, the gate and the residual sum after it come with the product where
they can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.checks import as_rows, check_gapless
from kernels.dependent_launch import next_starts, pdl_option
from kernels.device_guard import on_device_of
from kernels.gate_and_mul import check_gate, gate_and_mul
from kernels.launch import next_power_of_2
from kernels.launch_linear import (
    DotLaunch,
    HeldLaunch,
    LinearLaunch,
    VectorLaunch,
    linear_launch,
)
from kernels.rms_norm import add_rms_norm, join_add_rms_norm, rms_norm
from kernels.skinny_dot import skinny_dot_kernel
from kernels.skinny_held import skinny_held_kernel
from kernels.skinny_vector import skinny_vector_kernel


@dataclass(frozen=True, slots=True)
class _Problem:
    """One call's operands; see ``skinny_linear``."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    residual: Tensor | None
    norm_weight: Tensor | None
    eps: float
    gate: str | None
    upcast: bool
    pdl: bool

    @property
    def outputs(self) -> int:
        return self.weight.shape[0] // (2 if self.gate is not None else 1)

    def check(self) -> None:
        """Raises ValueError where the operands do not fit."""
        if self.gate is not None:
            check_gate(self.gate)
        total, inner = self.weight.shape
        fits = (
            self.x.dim() == 2
            and self.x.shape[1] == inner
            and not (self.gate is not None and total % 2)
            and (self.bias is None or self.bias.shape == (total,))
            and (self.residual is None or self.residual.shape == (len(self.x), self.outputs))
            and (self.norm_weight is None or self.norm_weight.shape == (inner,))
        )
        if not fits:
            names = ("x", "weight", "bias", "residual", "norm_weight")
            parts = ((name, getattr(self, name)) for name in names)
            found = ", ".join(f"{name} {tuple(t.shape)}" for name, t in parts if t is not None)
            raise ValueError(f"{found} do not fit; gate: {self.gate}")
        if not self.weight.is_contiguous():
            raise ValueError(f"the weight must be contiguous: strides {self.weight.stride()}")
        check_gapless(bias=self.bias, norm_weight=self.norm_weight)
        as_rows(self.x, "x")
        if self.residual is not None:
            as_rows(self.residual, "residual")

    def launch(self, joined: bool) -> LinearLaunch | None:
        rows, inner = self.x.shape
        gated = self.gate is not None
        kind, device = self.x.dtype, self.x.device
        return linear_launch(rows, self.outputs, inner, gated, joined, kind, device)

    def pointers(self) -> tuple[Tensor, ...]:
        """x, weight, bias, residual. What is absent is never read."""
        parts = (self.x, self.weight, self.bias, self.residual)
        return tuple(self.x if part is None else part for part in parts)

    def strides(self) -> tuple[int, int]:
        return self.x.stride(0), 0 if self.residual is None else self.residual.stride(0)

    def constants(self) -> dict[str, int | str | bool]:
        return {
            "N": self.outputs,
            "K": self.x.shape[1],
            "GATE": self.gate or "",
            "BIAS": self.bias is not None,
            "RESIDUAL": self.residual is not None,
            "PDL": next_starts(self.pdl, len(self.x)),
        }

    def normed(self) -> _Problem:
        """The same with the norm already made."""
        if self.norm_weight is None:
            return self
        x = rms_norm(self.x, self.norm_weight, self.eps, pdl=self.pdl)
        return replace(self, x=x, norm_weight=None)


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 0.0,
    gate: str | None = None,
    launch: LinearLaunch | None = None,
    upcast: bool = False,
    pdl: bool = False,
) -> Tensor:
    """``norm(x) weightᵀ + bias``, then the gate, then ``+ residual``; each only if asked for.

    Sums are kept in float32. The same operands give the same bits every time, and no row depends on
    what the others hold; but how sums are cut up follows from the number of rows, so that a row's
    last bits may change with it. With a given ``launch`` they do not.

    Args:
        x: ``[tokens, in_features]``, rows contiguous.
        weight: ``[out_features, in_features]``, contiguous; with a ``gate`` twice the rows, gate
            first.
        bias: ``[out_features]``, or twice that.
        residual: ``[tokens, out_features]``, rows contiguous, left as it is.
        norm_weight: ``[in_features]``: ``x`` is first normalised as by ``rms_norm``.
        eps: of the normalisation.
        gate: ``silu`` or ``gelu_tanh``; the result is ``gate(first half) · second half`` of the
            product.
        launch: how to cut it up; chosen by ``linear_launch`` if None, which may leave the product
            to the library.
        upcast: multiply in float32 (the interpreter cannot multiply bfloat16).
        pdl: start before the kernel before has ended (programmatic dependent launch): weights, and
            nothing else, are read before that.

    Returns:
        ``[tokens, out_features]``.

    Raises:
        ValueError: shapes or layouts do not fit, or ``launch`` is one with splits.
    """
    problem = _Problem(x, weight, bias, residual, norm_weight, eps, gate, upcast, pdl)
    problem.check()
    if len(x) == 0:
        return x.new_empty((0, problem.outputs))
    launch = launch or problem.launch(joined=False)
    if isinstance(launch, VectorLaunch):
        return _multiply_vector(problem, launch)
    problem = problem.normed()
    if launch is None:
        return _multiply_by_library(problem)
    if launch.splits > 1:
        raise ValueError(f"{launch.splits} splits, whose sums nobody adds")
    out = x.new_empty((len(x), problem.outputs))
    _multiply_tiles(problem, launch, out)
    return out


def linear_add_rms_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    norm_weight: Tensor,
    eps: float,
    *,
    launch: LinearLaunch | None = None,
    upcast: bool = False,
    pdl: bool = False,
) -> tuple[Tensor, Tensor]:
    """``residual + x weightᵀ + bias``, and its normalisation: two launches.

    The product may be split over the inner dimension, so that more multiprocessors share it; the
    kernel that normalises adds the parts, always in the same order.

    Args:
        x: ``[tokens, in_features]``, rows contiguous.
        weight: ``[out_features, in_features]``, contiguous.
        bias: ``[out_features]``.
        residual: ``[tokens, out_features]``, rows contiguous, left as it is.
        norm_weight: ``[out_features]``.
        eps: added to the mean square.
        launch: as in ``skinny_linear``; may have splits.
        upcast: likewise.
        pdl: likewise.

    Returns:
        The sum, and what ``rms_norm`` makes of it.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    problem = _Problem(x, weight, bias, residual, None, 0.0, None, upcast, pdl)
    problem.check()
    if len(x) == 0:
        return residual, residual.clone()
    launch = launch or problem.launch(joined=True)
    if isinstance(launch, VectorLaunch):
        total = _multiply_vector(problem, launch)
        return total, rms_norm(total, norm_weight, eps, pdl=pdl)
    if launch is None:
        product = F.linear(x, weight, bias)
        return add_rms_norm(product, residual, norm_weight, eps, pdl=pdl)
    partial = x.new_empty((launch.splits, *residual.shape), dtype=torch.float32)
    _multiply_tiles(replace(problem, bias=None, residual=None), launch, partial)
    return join_add_rms_norm(partial, bias, residual, norm_weight, eps, pdl=pdl)


def _multiply_by_library(problem: _Problem) -> Tensor:
    y = F.linear(problem.x, problem.weight, problem.bias)
    if problem.gate is not None:
        y = gate_and_mul(y, problem.gate, pdl=problem.pdl)
    return y if problem.residual is None else y.add_(problem.residual)


def _multiply_vector(problem: _Problem, launch: VectorLaunch) -> Tensor:
    rows, inner = problem.x.shape
    out = problem.x.new_empty((rows, problem.outputs))
    norm = problem.norm_weight
    with on_device_of(out):
        skinny_vector_kernel[(-(-problem.outputs // launch.outputs),)](
            *problem.pointers(),
            problem.x if norm is None else norm,
            out,
            rows,
            problem.eps,
            *problem.strides(),
            **problem.constants(),
            NORM=norm is not None,
            ROWS=next_power_of_2(rows),
            OUTPUTS=launch.outputs,
            DEPTH=next_power_of_2(inner),
            num_warps=launch.num_warps,
            **pdl_option(problem.pdl),
        )
    return out


def _multiply_tiles(problem: _Problem, launch: DotLaunch | HeldLaunch, out: Tensor) -> None:
    """Into ``out``, ``[tokens, outputs]`` or the parts' sums with a dimension of splits before."""
    rows, inner = problem.x.shape
    if isinstance(launch, HeldLaunch) and launch.depth * launch.splits < inner:
        raise ValueError(f"{launch} does not reach {inner} inner elements")
    grid = (-(-rows // launch.rows), -(-problem.outputs // launch.outputs), launch.splits)
    constants = {
        **problem.constants(),
        "ROWS": launch.rows,
        "OUTPUTS": launch.outputs,
        "DEPTH": launch.depth,
        "SPLITS": launch.splits,
        "UPCAST": problem.upcast or problem.x.dtype == torch.float32,
        "PRECISION": "ieee",
        "num_warps": launch.num_warps,
        **pdl_option(problem.pdl),
    }
    arguments = (*problem.pointers(), out, rows, *problem.strides())
    with on_device_of(out):
        if isinstance(launch, HeldLaunch):
            skinny_held_kernel[grid](*arguments, **constants, WARPS=launch.num_warps)
            return
        skinny_dot_kernel[grid](
            *arguments,
            **constants,
            STAGES=launch.num_stages,
            WEIGHT_FIRST=launch.weight_first,
        )
