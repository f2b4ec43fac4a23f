"""Normalisation, rotary embedding and gate against their formulas in float64."""

from __future__ import annotations

import cmath

import pytest
import torch

from kernels.reference.rms_norm import rms_norm
from kernels.reference.rope import rope, rope_table
from kernels.reference.silu_and_mul import silu_and_mul

# Relative to values of unit size; bfloat16 rounds once at the end.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2**-7}


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(1, 576), (8, 576), (3, 5, 48)])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_rms_norm(shape: tuple[int, ...], size: float, dtype: torch.dtype) -> None:
    x = randn(*shape, dtype=dtype) * size
    weight = randn(shape[-1], dtype=dtype)
    wide = x.double()
    expected = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * weight.double()
    error = (rms_norm(x, weight, 1e-5).double() - expected).abs()
    assert bool((error <= TOLERANCE[dtype] * expected.abs().clamp_min(1.0)).all())


@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
def test_rope_rotates_pairs_as_complex_numbers(head_dim: int) -> None:
    half = head_dim // 2
    inv_freq = 10000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    positions = torch.tensor([0, 1, 7, 500])
    cos, sin = rope_table(inv_freq, 512, torch.float64)
    x = randn(4, 3, head_dim, dtype=torch.float64)
    out = rope(x, cos[positions][:, None], sin[positions][:, None])
    for row, position in enumerate(positions.tolist()):
        for i in (0, 1, half - 1):
            turn = cmath.exp(1j * position * float(inv_freq[i]))
            pair = complex(x[row, 2, i], x[row, 2, i + half]) * turn
            assert abs(complex(out[row, 2, i], out[row, 2, i + half]) - pair) < 1e-12


def test_rope_table_is_exact_at_late_positions() -> None:
    cos, _ = rope_table(torch.tensor([1.0], dtype=torch.float64), 131072, torch.float32)
    expected = torch.tensor(131071.0, dtype=torch.float64).cos()
    assert abs(float(cos[131071, 0]) - float(expected)) < 1e-7


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_silu_and_mul(dtype: torch.dtype) -> None:
    gate_up = randn(5, 96, dtype=dtype)
    before = gate_up.clone()
    gate, up = gate_up.double().chunk(2, -1)
    expected = gate / (1 + (-gate).exp()) * up
    out = silu_and_mul(gate_up)
    assert out.shape == (5, 48)
    # Two roundings: of the activation and of the product.
    error = (out.double() - expected).abs()
    assert bool((error <= 2 * TOLERANCE[dtype] * expected.abs().clamp_min(1.0)).all())
    assert torch.equal(gate_up, before)
