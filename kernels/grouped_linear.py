"""A product with a weight that is kept as small whole numbers, scaled by group (Triton).

For few rows the time of a product is that of reading the weight, and four bits are read in a
quarter of the time. For many rows the weight is expanded, some of it at a time, for the library.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.checks import as_rows, check_gapless
from kernels.dependent_launch import next_starts, pdl_option
from kernels.device_guard import on_device_of
from kernels.grouped_dot import grouped_dot_kernel
from kernels.grouped_expand import grouped_expand_kernel
from kernels.grouped_tensor import grouped_tensor_kernel
from kernels.grouped_vector import grouped_vector_kernel
from kernels.launch_grouped import (
    EXPANDED_ELEMENTS,
    GROUPED_ROWS,
    UNPAIRED_ROWS,
    GroupedLaunch,
    TensorLaunch,
    VectorLaunch,
    few_rows_launch,
    grouped_launch,
)

_RUN = 32
_EXPAND_TILE = 1024


def grouped_linear(
    x: Tensor,
    codes: Tensor,
    scale: Tensor,
    minimum: Tensor,
    bias: Tensor | None = None,
    *,
    bits: int,
    residual: Tensor | None = None,
    launch: GroupedLaunch | TensorLaunch | VectorLaunch | None = None,
    upcast: bool = False,
    pdl: bool = False,
) -> Tensor:
    """``x weightᵀ + bias``, then ``+ residual`` if that is given. Sums are kept in float32.

    The same operands give the same bits every time, and no row depends on what the others hold;
    with a given ``launch`` neither on how many there are.

    Args:
        x: ``[tokens, in_features]``, rows contiguous; ``in_features`` a multiple of 32.
        codes: uint8, contiguous: ``[out_features, in_features · bits / 8]``, in the order of
            ``kernels.reference.grouped_linear.unpack_codes``.
        scale: ``[out_features, groups]``, contiguous: a weight is ``code · scale + minimum``.
            Groups are of 32 elements, in 8 bits also of 16.
        minimum: likewise.
        bias: ``[out_features]``.
        bits: 4 or 8.
        residual: ``[tokens, out_features]``, rows contiguous, left as it is.
        launch: how to cut it up; if None it is chosen, and more than ``GROUPED_ROWS`` rows, or
            ``UNPAIRED_ROWS`` that cannot be read in pairs, are left to the library.
        upcast: multiply in float32 (the interpreter cannot multiply bfloat16).
        pdl: start before the kernel before has ended (programmatic dependent launch).

    Returns:
        ``[tokens, out_features]``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    outputs, inner, group = _check(x, codes, scale, minimum, bias, bits, residual)
    rows = len(x)
    if rows == 0:
        return x.new_empty((0, outputs))
    if launch is None and rows > (GROUPED_ROWS if in_pairs(x) else UNPAIRED_ROWS):
        y = _multiply_expanded(x, codes, scale, minimum, bias, bits)
        return y if residual is None else y.add_(residual)
    if launch is None:
        if in_pairs(x):
            launch = few_rows_launch(rows, outputs, inner, bits)
        else:
            launch = grouped_launch(outputs, bits)
    elif not (isinstance(launch, GroupedLaunch) or in_pairs(x)):
        raise ValueError(f"x {x.dtype} with a stride of {x.stride(0)} is not read in pairs")
    out = x.new_empty((rows, outputs))
    tensors = (
        scale,
        minimum,
        x if bias is None else bias,
        x if residual is None else residual,
        out,
        rows,
    )
    constants = {
        "N": outputs,
        "K": inner,
        "BITS": bits,
        "GROUP": group,
        "ROWS": launch.rows,
        "OUTPUTS": launch.outputs,
        "BIAS": bias is not None,
        "RESIDUAL": residual is not None,
        "PDL": next_starts(pdl, rows),
        "num_warps": launch.num_warps,
        **pdl_option(pdl),
    }
    residual_stride = 0 if residual is None else residual.stride(0)
    grid = (-(-rows // launch.rows), -(-outputs // launch.outputs))
    with on_device_of(out):
        if isinstance(launch, GroupedLaunch):
            grouped_dot_kernel[grid](
                x,
                codes,
                *tensors,
                x.stride(0),
                residual_stride,
                DEPTH=launch.depth,
                STAGES=launch.num_stages,
                UPCAST=upcast or x.dtype == torch.float32,
                **constants,
            )
        elif isinstance(launch, TensorLaunch):
            grouped_tensor_kernel[grid](
                x,
                codes.view(torch.int32),
                *tensors,
                x.stride(0),
                residual_stride,
                0,
                WARPS=launch.num_warps,
                AHEAD=launch.ahead,
                EVEN=launch.is_even(inner, bits),
                UPCAST=upcast,
                **constants,
            )
        else:
            grouped_vector_kernel[grid](
                x.view(torch.int32),
                codes.view(torch.int32),
                *tensors,
                x.stride(0) // 2,
                residual_stride,
                0,
                RUNS=launch.runs,
                EVEN=launch.is_even(rows, outputs, inner, bits),
                **constants,
            )
    return out


def in_pairs(x: Tensor) -> bool:
    """Whether ``x`` can be read by two elements in four bytes, every row of it."""
    is_small = x.dtype in (torch.float16, torch.bfloat16)
    return is_small and x.stride(0) % 2 == 0 and x.data_ptr() % 4 == 0


def expand_grouped(
    codes: Tensor, scale: Tensor, minimum: Tensor, bits: int, dtype: torch.dtype
) -> Tensor:
    """``code · scale + minimum``, computed in float32: ``[rows, columns]``; arguments as in
    ``grouped_linear``.
    """
    rows, inner = codes.shape[0], codes.shape[1] * 8 // bits
    out = codes.new_empty((rows, inner), dtype=dtype)
    words = codes.view(torch.int32)
    with on_device_of(out):
        grouped_expand_kernel[(-(-words.numel() // _EXPAND_TILE),)](
            words,
            scale,
            minimum,
            out,
            words.numel(),
            0,
            BITS=bits,
            GROUP=inner // scale.shape[1],
            TILE=_EXPAND_TILE,
        )
    return out


def _multiply_expanded(
    x: Tensor, codes: Tensor, scale: Tensor, minimum: Tensor, bias: Tensor | None, bits: int
) -> Tensor:
    step = max(EXPANDED_ELEMENTS // x.shape[1], 1)
    parts = []
    for start in range(0, len(codes), step):
        rows = slice(start, start + step)
        weight = expand_grouped(codes[rows], scale[rows], minimum[rows], bits, x.dtype)
        parts.append(F.linear(x, weight, None if bias is None else bias[rows]))
        # Before the next piece takes its memory.
        del weight
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _check(
    x: Tensor,
    codes: Tensor,
    scale: Tensor,
    minimum: Tensor,
    bias: Tensor | None,
    bits: int,
    residual: Tensor | None,
) -> tuple[int, int, int]:
    """Outputs, inner dimension and group."""
    if bits not in (4, 8):
        raise ValueError(f"codes of {bits} bits: 4 or 8 are known")
    outputs, inner = codes.shape[0], codes.shape[1] * 8 // bits
    fits = (
        x.dim() == 2
        and x.shape[1] == inner
        and inner % _RUN == 0
        and scale.shape == minimum.shape
        and scale.shape[0] == outputs
        and scale.shape[1] in ((inner // 32,) if bits == 4 else (inner // 16, inner // 32))
        and (bias is None or bias.shape == (outputs,))
        and (residual is None or residual.shape == (len(x), outputs))
    )
    if not fits:
        given = {"x": x, "codes": codes, "scale": scale, "minimum": minimum}
        given |= {} if bias is None else {"bias": bias}
        given |= {} if residual is None else {"residual": residual}
        found = ", ".join(f"{name} {tuple(part.shape)}" for name, part in given.items())
        raise ValueError(f"{found} do not fit in {bits} bits")
    if not (codes.is_contiguous() and scale.is_contiguous() and minimum.is_contiguous()):
        raise ValueError("codes, scale and minimum must be contiguous")
    check_gapless(bias=bias)
    as_rows(x, "x")
    if residual is not None:
        as_rows(residual, "residual")
    return outputs, inner, inner // scale.shape[1]
