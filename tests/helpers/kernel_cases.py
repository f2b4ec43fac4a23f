"""What tests of single kernels have in common."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

# Relative to values of unit size; the last bit of a 16-bit value is 2⁻¹¹ or 2⁻⁸ of it.
BOUND = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
DTYPES = [
    torch.float32,
    torch.float16,
    # The interpreter multiplies the bit patterns of bfloat16.
    pytest.param(torch.bfloat16, marks=pytest.mark.gpu),
]


def randn(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normal numbers, the same on every device."""
    return torch.randn(size).to(dtype).to(device)


def spaced(size: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normal numbers in rows with 16 NaN after each."""
    rows = torch.full((size[0], size[1] + 16), float("nan"), dtype=dtype, device=device)
    rows[:, : size[1]] = randn(size, dtype, device)
    return rows[:, : size[1]]


def excess(out: Tensor, oracle: Tensor) -> float:
    """Largest error, relative where the value is above 1; NaN if there is one."""
    assert out.shape == oracle.shape
    error = (out.cpu().double() - oracle).abs() / oracle.abs().clamp(min=1.0)
    return float(error.max())


def names(value: object) -> str:
    """Short ids of parametrised cases."""
    return str(value).replace("torch.", "").replace(" ", "")
