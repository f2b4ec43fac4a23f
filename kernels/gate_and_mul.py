"""The gates of feed-forward layers (Triton): SwiGLU and GeGLU."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import pdl_option
from kernels.device_guard import on_device_of
from kernels.launch_glue import gate_launch

_GELU_SCALE = tl.constexpr(2 * (2 / 3.141592653589793) ** 0.5)
_GELU_CUBIC = tl.constexpr(0.044715)


@triton.jit
def activated(x, GATE: tl.constexpr):
    """``silu(x)``, or ``gelu(x)`` in its tanh form, of float32 values.

    Both are ``x · sigmoid(u)``; with the sign taken out no exponential overflows.
    """
    u = x if GATE == "silu" else _GELU_SCALE * (x + _GELU_CUBIC * x * x * x)
    small = tl.exp(-tl.abs(u))
    return x * tl.where(u >= 0.0, 1.0, small) / (1.0 + small)


@triton.jit
def _gate_and_mul_kernel(
    gate_up_ptr,  # [tokens, 2 * SIZE], rows stride apart
    out_ptr,  # [tokens, SIZE], contiguous
    stride,
    GATE: tl.constexpr,
    SIZE: tl.constexpr,
    TILE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Program = (token, tile of its elements)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < SIZE
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    place = gate_up_ptr + token * stride + column
    gate = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(place + SIZE, mask=inside, other=0.0).to(tl.float32)
    y = activated(gate, GATE) * up
    tl.store(out_ptr + token * SIZE + column, y.to(out_ptr.dtype.element_ty), mask=inside)


def silu_and_mul(gate_up: Tensor, *, pdl: bool = False) -> Tensor:
    """``silu(gate) · up``; see ``gate_and_mul``."""
    return gate_and_mul(gate_up, "silu", pdl=pdl)


def gelu_and_mul(gate_up: Tensor, *, pdl: bool = False) -> Tensor:
    """``gelu(gate) · up`` with the tanh form of gelu; see ``gate_and_mul``."""
    return gate_and_mul(gate_up, "gelu_tanh", pdl=pdl)


def gate_and_mul(gate_up: Tensor, gate: str, *, pdl: bool = False) -> Tensor:
    """``gate(x) · up``, computed in float32.

    Args:
        gate_up: ``[tokens, 2 · intermediate]``, gate in the first half, rows contiguous.
        gate: ``silu`` or ``gelu_tanh``.
        pdl: start before the kernel before has ended (programmatic dependent launch).

    Returns:
        ``[tokens, intermediate]``.

    Raises:
        ValueError: shape or layout does not fit, or the gate is unknown.
    """
    check_gate(gate)
    tokens, width = gate_up.shape
    if width % 2 or gate_up.stride(1) != 1:
        raise ValueError(
            f"gate_up {tuple(gate_up.shape)} with strides {gate_up.stride()}: two contiguous "
            "halves are expected"
        )
    size = width // 2
    out = gate_up.new_empty((tokens, size))
    if tokens == 0:
        return out
    launch = gate_launch(tokens, size)
    with on_device_of(gate_up):
        _gate_and_mul_kernel[(tokens, -(-size // launch.tile))](
            gate_up,
            out,
            gate_up.stride(0),
            GATE=gate,
            SIZE=size,
            TILE=launch.tile,
            PDL=pdl,
            num_warps=launch.num_warps,
            **pdl_option(pdl),
        )
    return out


def check_gate(gate: str) -> None:
    """Refuses a name that no kernel knows.

    Raises:
        ValueError: it is neither ``silu`` nor ``gelu_tanh``.
    """
    if gate not in ("silu", "gelu_tanh"):
        raise ValueError(f"the gate {gate!r} is unknown: silu or gelu_tanh")
