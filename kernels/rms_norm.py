"""Root-mean-square normalisation, alone or after the residual sum (Triton)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.checks import as_rows, check_gapless, check_rows
from kernels.dependent_launch import next_starts, pdl_option
from kernels.device_guard import on_device_of
from kernels.launch_glue import norm_launch


@triton.jit
def _rms_norm_kernel(
    x_ptr,  # [PARTS, rows, SIZE], rows x_stride apart, parts part_stride
    bias_ptr,  # [SIZE]
    residual_ptr,  # [rows, SIZE], rows residual_stride apart
    weight_ptr,  # [SIZE]
    sum_ptr,  # [rows, SIZE], rows sum_stride apart
    out_ptr,  # [rows, SIZE], contiguous
    eps,
    x_stride,
    part_stride,
    residual_stride,
    sum_stride,
    PARTS: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_POW2: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """One program a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, SIZE_POW2)
    inside = column < SIZE
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    place = x_ptr + row * x_stride + column
    x = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        x += tl.load(place + part * part_stride, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        x += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        residual = tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0)
        # Rounded as it is stored: what is normalised is what the next layer adds to.
        stored = (x + residual.to(tl.float32)).to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + row * sum_stride + column, stored, mask=inside)
        x = stored.to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / SIZE + eps) * weight
    tl.store(out_ptr + row * SIZE + column, y.to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, pdl: bool = False) -> Tensor:
    """``x · weight / sqrt(mean(x²) + eps)`` over the last dimension.

    Computed in float32; each row by itself, whatever the others are.

    Args:
        x: ``[..., hidden]``, the last dimension contiguous, the others evenly apart.
        weight: ``[hidden]``.
        eps: added to the mean square.
        pdl: start before the kernel before has ended (programmatic dependent launch).

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    rows = check_rows(x, weight, "x")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(rows[None], None, None, weight, rows, out, eps, pdl)
    return out


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    inplace: bool = False,
    pdl: bool = False,
) -> tuple[Tensor, Tensor]:
    """``residual + x`` and its normalisation.

    Args:
        x: ``[..., hidden]``, the last dimension contiguous, the others evenly apart.
        residual: likewise.
        weight: ``[hidden]``.
        eps: added to the mean square.
        inplace: the sum is written over ``residual``.
        pdl: start before the kernel before has ended.

    Returns:
        The sum and what ``rms_norm`` makes of it.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    if x.shape != residual.shape:
        raise ValueError(f"x {tuple(x.shape)} and residual {tuple(residual.shape)} do not fit")
    rows, residual_rows = check_rows(x, weight, "x"), as_rows(residual, "residual")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = residual if inplace else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total_rows = residual_rows if inplace else total.view(-1, x.shape[-1])
    _launch(rows[None], None, residual_rows, weight, total_rows, out, eps, pdl)
    return total, out


def join_add_rms_norm(
    partial: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    pdl: bool = False,
) -> tuple[Tensor, Tensor]:
    """``add_rms_norm`` of a product that comes as the sums of its parts, always added in order.

    Args:
        partial: ``[parts, rows, hidden]`` float32, contiguous.
        bias: ``[hidden]``, added to the product.
        residual: ``[rows, hidden]``, rows contiguous; left as it is.
        weight: ``[hidden]``.
        eps: added to the mean square.
        pdl: start before the kernel before has ended.

    Returns:
        The sum and its normalisation in the residual's dtype.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    if partial.shape[1:] != residual.shape or not partial.is_contiguous():
        raise ValueError(
            f"parts {tuple(partial.shape)} and residual {tuple(residual.shape)} do not fit"
        )
    check_rows(residual, weight, "residual")
    if bias is not None and bias.shape != weight.shape:
        raise ValueError(f"bias {tuple(bias.shape)} and weight {tuple(weight.shape)} do not fit")
    check_gapless(bias=bias)
    total = torch.empty(residual.shape, dtype=residual.dtype, device=residual.device)
    out = torch.empty_like(total)
    _launch(partial, bias, residual, weight, total, out, eps, pdl)
    return total, out


def _launch(
    parts: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    weight: Tensor,
    total: Tensor,
    out: Tensor,
    eps: float,
    pdl: bool,
) -> None:
    count, rows, size = parts.shape
    if rows == 0:
        return
    launch = norm_launch(size)
    with on_device_of(parts):
        _rms_norm_kernel[(rows,)](
            parts,
            weight if bias is None else bias,
            parts if residual is None else residual,
            weight,
            total,
            out,
            eps,
            parts.stride(1),
            parts.stride(0),
            0 if residual is None else residual.stride(0),
            total.stride(0),
            PARTS=count,
            SIZE=size,
            SIZE_POW2=launch.size_pow2,
            BIAS=bias is not None,
            ADD=residual is not None,
            PDL=next_starts(pdl, rows),
            num_warps=launch.num_warps,
            **pdl_option(pdl),
        )
