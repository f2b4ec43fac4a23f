"""The output layer in eight bits, against its values in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.linear import can_pack, make_linear
from engine.models.ops import ReferenceOps
from engine.quantized import int8_output
from engine.quantized.int4_linear import has_packed_product
from engine.quantized.int8_output import Int8Output, has_output_product, output_bytes
from tests.helpers.grouped_model import quantised

BF16 = torch.bfloat16
ROWS, COLUMNS = 320, 128
pytestmark = pytest.mark.skipif(
    not (has_output_product() and has_packed_product() and can_pack(torch.device("cpu"), BF16)),
    reason="whole numbers are not multiplied fast here",
)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def uneven(*shape: int, seed: int = 0) -> Tensor:
    """With some columns much larger than the others, as real models have them."""
    values = randn(*shape, seed=seed)
    values[:, 3::16] *= 12
    return values


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q5_1"])
def test_logits_are_within_what_bfloat16_costs(kind: str, tokens: int) -> None:
    weight = quantised(uneven(ROWS, COLUMNS), kind)
    output = Int8Output(weight)
    x = uneven(tokens, COLUMNS, seed=4).to(BF16)
    assert (output.in_features, output.out_features) == (COLUMNS, ROWS)
    found = output(x)
    assert found.dtype == torch.float32
    assert relative(found, x.double() @ weight.expand(torch.float64).T) <= 2**-8
    residual = randn(tokens, ROWS, seed=5).to(BF16)
    before = residual.clone()
    assert torch.equal(output.add(x, residual), (found + residual).to(BF16))
    assert torch.equal(residual, before)


def test_small_values_beside_large_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = quantised(uneven(ROWS, COLUMNS), "Q8_0")
    x = uneven(4, COLUMNS, seed=6)
    wanted = x.double() @ weight.expand(torch.float64).T
    error = relative(Int8Output(weight)(x), wanted)
    monkeypatch.setattr(int8_output, "_WIDE_SHARE", COLUMNS)
    assert 2 * error < relative(Int8Output(weight)(x), wanted)


def test_a_token_does_not_depend_on_those_beside_it() -> None:
    output = Int8Output(quantised(uneven(ROWS, COLUMNS), "Q8_0"))
    x = uneven(6, COLUMNS, seed=7).to(BF16)
    x[2] *= 1000
    alone = torch.cat([output(row) for row in x.split(1)])
    assert torch.equal(output(x), alone)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(bad: float) -> None:
    output = Int8Output(quantised(randn(ROWS, COLUMNS), "Q8_0"))
    x = randn(3, COLUMNS, seed=8).to(BF16)
    x[1, 5] = bad
    finite = output(x).isfinite()
    assert not finite[1].any()
    assert finite[0].all()
    assert finite[2].all()


def test_zeros() -> None:
    output = Int8Output(quantised(torch.zeros(ROWS, COLUMNS), "Q8_0"))
    assert torch.equal(output(randn(2, COLUMNS).to(BF16)), torch.zeros(2, ROWS))
    output = Int8Output(quantised(randn(ROWS, COLUMNS), "Q8_0"))
    assert torch.equal(output(torch.zeros(2, COLUMNS, dtype=BF16)), torch.zeros(2, ROWS))
    assert output(torch.zeros(0, COLUMNS, dtype=BF16)).shape == (0, ROWS)


def test_weights_are_read_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = quantised(uneven(ROWS, COLUMNS), "Q8_0")
    x = uneven(2, COLUMNS, seed=9).to(BF16)
    whole = Int8Output(weight)(x)
    breaths: list[int] = []
    monkeypatch.setattr(int8_output, "_PIECE_ELEMENTS", 50 * COLUMNS)
    assert torch.equal(Int8Output(weight, breathe=lambda: breaths.append(1))(x), whole)
    # Twice seven: the columns are chosen first.
    assert len(breaths) == 14


def test_many_tokens_are_multiplied_with_expanded_weights_where_they_are_kept() -> None:
    weight = quantised(randn(ROWS, COLUMNS), "Q8_0")
    output = Int8Output(weight, keep_expanded=True)
    x = randn(5, COLUMNS, seed=10).to(BF16)
    assert torch.equal(output(x), make_linear(weight.expand(BF16))(x).float())
    assert torch.equal(output(x[:4]), Int8Output(weight)(x[:4]))
    assert output.nbytes == output_bytes(ROWS, COLUMNS) + 2 * ROWS * COLUMNS


def test_an_eighth_is_all_that_it_takes_beside_a_byte_a_weight() -> None:
    assert Int8Output(quantised(randn(ROWS, COLUMNS), "Q8_0")).nbytes == (
        ROWS * COLUMNS * 9 // 8 + ROWS * 12 + COLUMNS * 9 // 8 * 12
    )


def test_a_product_whose_sums_overflow_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_16_bits(x: Tensor, scale: float, zero: int, weight: object) -> Tensor:
        # Of weights of 127, as a CPU without VNNI multiplies.
        pairs = ((x + zero) * 127).unflatten(-1, (-1, 2)).sum(-1).clamp(max=2**15 - 1)
        return pairs.sum(-1, keepdim=True) - zero * 127 * x.shape[1]

    assert has_output_product.__wrapped__()
    monkeypatch.setattr(int8_output, "_product", lambda: in_16_bits)
    assert not has_output_product.__wrapped__()


def test_without_the_product_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise AttributeError("'_OpNamespace' 'quantized' object has no attribute 'linear'")

    monkeypatch.setattr(int8_output, "_product", absent)
    assert not has_output_product.__wrapped__()


def test_which_output_layers_become_one() -> None:
    ops = ReferenceOps()
    eight, four = (quantised(randn(ROWS, COLUMNS), kind) for kind in ("Q8_0", "Q4_1"))
    assert isinstance(ops.grouped_output(eight, BF16), Int8Output)
    assert ops.grouped_output(eight, torch.float32) is None
    assert ops.grouped_output(four, BF16) is None
