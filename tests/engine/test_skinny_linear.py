"""A GPU's products beside plain ones, for few rows and for many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton")

from engine.skinny_linear import SkinnyGated, SkinnyLinear
from kernels.launch_linear import SKINNY_ROWS
from kernels.reference.silu_and_mul import silu_and_mul

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INNER, OUTER = 24, 40
EPS = 1e-5
few_and_many = pytest.mark.parametrize("rows", [1, 3, SKINNY_ROWS + 1])
each_kind = pytest.mark.parametrize("deterministic", [False, True])
with_bias = pytest.mark.parametrize("bias", [False, True])


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def close(found: Tensor, expected: Tensor) -> None:
    """A wrong operand is far off; how exactly the kernels round is tested with them."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


class Case:
    """A product and what it is multiplied from."""

    def __init__(self, rows: int, bias: bool, deterministic: bool) -> None:
        self.weight = randn(OUTER, INNER, seed=1)
        self.bias = randn(OUTER, seed=2) if bias else None
        self.x = randn(rows, INNER, seed=3)
        self.residual = randn(rows, OUTER, seed=4)
        self.linear = SkinnyLinear(self.weight, self.bias, False, deterministic)
        self.product = F.linear(self.x, self.weight, self.bias)


@few_and_many
@with_bias
@each_kind
def test_products(rows: int, bias: bool, deterministic: bool) -> None:
    case = Case(rows, bias, deterministic)
    before = case.residual.clone()
    close(case.linear(case.x), case.product)
    added = case.linear.add(case.x, case.residual)
    close(added, case.product + before)
    norm_weight = randn(OUTER, seed=5)
    total, normed = case.linear.add_norm(case.x, case.residual, norm_weight, EPS)
    close(total, case.product + before)
    expected = F.rms_norm(case.product + before, (OUTER,), norm_weight, EPS)
    close(normed, expected)
    assert torch.equal(case.residual, before), "the residual is read only"


@few_and_many
@each_kind
def test_gates(rows: int, deterministic: bool) -> None:
    case = Case(rows, False, deterministic)
    gated = SkinnyGated(case.linear, "silu")
    close(gated(case.x), silu_and_mul(case.product))


def test_a_row_is_the_same_whatever_stands_beside_it() -> None:
    case = Case(SKINNY_ROWS + 1, True, True)
    together = case.linear(case.x)
    assert torch.equal(together[:1], case.linear(case.x[:1]))
    assert torch.equal(together[-2:], case.linear(case.x[-2:]))


@with_bias
def test_bytes(bias: bool) -> None:
    case = Case(1, bias, False)
    assert case.linear.nbytes == 4 * (OUTER * INNER + OUTER * bias)
    assert (case.linear.in_features, case.linear.out_features) == (INNER, OUTER)
