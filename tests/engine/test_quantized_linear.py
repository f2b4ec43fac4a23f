"""Products with quantised weights, against the weights expanded in float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from engine.linear import DenseLinear, Linear, can_pack
from engine.quantized import int4_linear
from engine.quantized.embedding import GroupedEmbedding
from engine.quantized.int4_linear import (
    ExpandingLinear,
    Int4Linear,
    StackedLinear,
    has_packed_product,
    packs,
)
from engine.quantized.make import keeps_grouped, make_grouped_linear
from tests.helpers.grouped_model import quantised

BF16 = torch.bfloat16
CPU = torch.device("cpu")
needs_product = pytest.mark.skipif(
    not has_packed_product(), reason="this torch packs four bits in another order"
)
needs_fast = pytest.mark.skipif(
    not (has_packed_product() and can_pack(CPU, BF16)), reason="bfloat16 is slow here"
)
KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
ROWS, COLUMNS = 192, 96


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


def check(linear: Linear, exact: Tensor, bias: Tensor | None, tokens: int, dtype: torch.dtype):
    x, residual = randn(tokens, COLUMNS, seed=7).to(dtype), randn(tokens, ROWS, seed=8).to(dtype)
    wanted = x.double() @ exact.double().T
    if bias is not None:
        wanted += bias.double()
    bound = 5e-3 if dtype == BF16 else 1e-6
    assert (linear.in_features, linear.out_features) == (COLUMNS, ROWS)
    out = linear(x)
    assert out.dtype == dtype
    assert relative(out, wanted) <= bound
    before = residual.clone()
    assert relative(linear.add(x, residual), wanted + residual.double()) <= bound
    assert torch.equal(residual, before)


@needs_product
@pytest.mark.parametrize("tokens", [1, 3, 70])
@pytest.mark.parametrize("keep_expanded", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_product(kind: str, bias: bool, keep_expanded: bool, tokens: int) -> None:
    weight = quantised(randn(ROWS, COLUMNS), kind)
    offset = randn(ROWS, seed=3).to(BF16) if bias else None
    linear = Int4Linear(weight, offset, keep_expanded)
    check(linear, weight.expand(torch.float64), offset, tokens, BF16)


@needs_product
@pytest.mark.parametrize("kind", KINDS)
def test_expanded_weights_are_those_of_the_packed_product(kind: str) -> None:
    linear = Int4Linear(quantised(randn(ROWS, COLUMNS), kind))
    unit = torch.eye(COLUMNS, dtype=BF16)
    products = torch.cat([linear(row) for row in unit.split(1)])
    torch.testing.assert_close(linear.expanded().T, products, rtol=2**-6, atol=2**-7)


@needs_product
@pytest.mark.parametrize(("kind", "most"), [("Q4_1", 2**-8), ("Q8_0", 2**-8), ("Q5_0", 2**-8)])
def test_packing_costs_about_what_bfloat16_costs(kind: str, most: float) -> None:
    weight = quantised(randn(ROWS, COLUMNS), kind)
    exact = weight.expand(torch.float64)
    x = randn(4, COLUMNS, seed=5).to(BF16)
    packed = Int4Linear(weight)(x)
    assert relative(packed, x.double() @ exact.T) <= most


@needs_product
@pytest.mark.parametrize(("kind", "bits"), [("Q4_0", 5), ("Q8_0", 10)])
def test_what_is_packed_stays_small(kind: str, bits: int) -> None:
    weight = quantised(randn(ROWS, COLUMNS), kind)
    assert Int4Linear(weight).nbytes == ROWS * COLUMNS * bits // 8
    assert Int4Linear(weight, keep_expanded=True).nbytes == ROWS * COLUMNS * (bits + 16) // 8


@needs_product
def test_scales_of_zero_are_weights_of_zero() -> None:
    linear = Int4Linear(quantised(torch.zeros(ROWS, COLUMNS), "Q8_0"))
    assert torch.equal(linear(randn(2, COLUMNS).to(BF16)), torch.zeros(2, ROWS, dtype=BF16))


@needs_product
def test_large_weights_are_packed_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = quantised(randn(ROWS, COLUMNS), "Q4_1")
    whole = Int4Linear(weight)
    monkeypatch.setattr(int4_linear, "_PIECE_ELEMENTS", 64 * COLUMNS)
    x = randn(2, COLUMNS).to(BF16)
    assert torch.equal(Int4Linear(weight)(x), whole(x))


def test_odd_numbers_of_rows_and_groups_of_sixteen_are_not_packed() -> None:
    assert packs(quantised(randn(128, 32), "Q4_0"))
    assert not packs(quantised(randn(100, 32), "Q4_0"))
    assert not int4_linear.packs_shape(128, 16)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_packed_product_the_values_are_the_files_own(kind: str, bias: bool) -> None:
    weight = quantised(randn(ROWS, COLUMNS), kind)
    offset = randn(ROWS, seed=3) if bias else None
    linear = make_grouped_linear(weight, offset, torch.float32, False)
    assert isinstance(linear, ExpandingLinear)
    check(linear, weight.expand(torch.float64), offset, 3, torch.float32)
    assert linear.nbytes == weight.nbytes + (4 * ROWS if bias else 0)


@needs_fast
def test_the_packed_product_is_taken_where_it_is_fast() -> None:
    weight = quantised(randn(ROWS, COLUMNS), "Q4_1")
    assert keeps_grouped(weight, BF16)
    assert isinstance(make_grouped_linear(weight, None, BF16, False), Int4Linear)
    assert not keeps_grouped(quantised(randn(100, COLUMNS), "Q4_1"), BF16)


def test_products_of_different_kinds_side_by_side() -> None:
    parts = [randn(64, COLUMNS), randn(128, COLUMNS, seed=1)]
    linear = StackedLinear([DenseLinear(part) for part in parts])
    check(linear, torch.cat(parts), None, 3, torch.float32)
    assert linear.nbytes == ROWS * COLUMNS * 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_embedding_expands_the_rows_that_are_asked_for(kind: str) -> None:
    weight = quantised(randn(ROWS, COLUMNS), kind)
    embedding = GroupedEmbedding(weight, BF16)
    ids = torch.tensor([5, 0, 191, 5])
    assert torch.equal(embedding(ids), weight.expand(BF16)[ids])
    assert embedding.nbytes == weight.nbytes


@needs_product
def test_threads_expand_into_memory_of_their_own() -> None:
    linears = [Int4Linear(quantised(randn(ROWS, COLUMNS, seed=seed), "Q4_1")) for seed in range(2)]
    wanted = [linear.expanded().clone() for linear in linears]

    def expand(number: int) -> bool:
        return all(torch.equal(linears[number].expanded(), wanted[number]) for _ in range(50))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(expand, range(2))) == [True, True]
