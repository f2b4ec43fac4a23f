"""Packed and dense products give the same values."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from engine.linear import DenseLinear, GatedLinear, PackedLinear, can_pack, make_linear

BF16 = torch.bfloat16
needs_packing = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), BF16), reason="this CPU does not multiply bfloat16"
)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("num_tokens", [1, 2, 8, 30, 100])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [DenseLinear, pytest.param(PackedLinear, marks=needs_packing)])
def test_bfloat16_product_rounds_once(
    kind: type[DenseLinear] | type[PackedLinear], bias: bool, num_tokens: int
) -> None:
    x, weight = randn(num_tokens, 96).to(BF16), (randn(160, 96, seed=1) / 10).to(BF16)
    offset = randn(160, seed=2).to(BF16) if bias else None
    residual = randn(num_tokens, 160, seed=3).to(BF16)
    linear = kind(weight, offset)
    assert (linear.in_features, linear.out_features) == (96, 160)
    assert linear.nbytes == 2 * (96 * 160 + (160 if bias else 0))
    exact = x.double() @ weight.double().T
    if offset is not None:
        exact += offset.double()
    out = linear(x)
    assert out.dtype == BF16
    torch.testing.assert_close(out.double(), exact, rtol=2**-8, atol=1e-3)
    before = residual.clone()
    total = linear.add(x, residual)
    # The sum may round twice: the product's size decides the error, not the sum's.
    torch.testing.assert_close(total.double(), exact + residual.double(), rtol=2**-7, atol=2e-2)
    assert torch.equal(residual, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wider_types_stay_as_they_are(dtype: torch.dtype) -> None:
    x, weight = randn(3, 24).to(dtype), randn(40, 24, seed=1).to(dtype)
    linear = make_linear(weight)
    assert isinstance(linear, DenseLinear)
    assert torch.equal(linear(x), F.linear(x, weight))


@needs_packing
def test_bfloat16_is_packed_where_it_pays() -> None:
    assert isinstance(make_linear(randn(40, 24).to(BF16)), PackedLinear)


@needs_packing
def test_packing_works_for_a_slice_of_a_larger_weight() -> None:
    weight = randn(64, 48).to(BF16)
    part = weight[16:32, :32]
    x = randn(4, 32, seed=1).to(BF16)
    torch.testing.assert_close(PackedLinear(part)(x), F.linear(x, part), rtol=2**-7, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float64, BF16])
def test_gated(dtype: torch.dtype) -> None:
    x, weight = randn(5, 48).to(dtype), (randn(64, 48, seed=1) / 7).to(dtype)
    gate, up = (x.double() @ weight.double().T).chunk(2, -1)
    out = GatedLinear(make_linear(weight))(x)
    tolerance = 1e-12 if dtype == torch.float64 else 3e-2
    torch.testing.assert_close(out.double(), F.silu(gate) * up, rtol=tolerance, atol=tolerance)
