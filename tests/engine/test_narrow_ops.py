"""The CPU's operations in 16 bits against the plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.linear import make_linear
from engine.model_runner import operations_for
from engine.models.decoder import Decoder
from engine.models.narrow_ops import NarrowCpuOps
from engine.models.ops import DecoderOps, ReferenceOps
from engine.triton_probe import triton_obstacle
from tests.helpers.tiny_model import TinyModel, tiny_llama

BF16 = torch.bfloat16
CPU = torch.device("cpu")
EPS = 1e-5


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def only_values(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """In place of attention: each token sees itself."""
    return value.view(len(value), 2, 1, -1).expand(-1, -1, 3, -1).flatten(1)


def logits(model: TinyModel, ops: DecoderOps, tokens: int, rows: list[int]) -> Tensor:
    decoder = Decoder(model.config, model.weights(), BF16, CPU, 512, ops)
    ids = torch.arange(tokens) % model.config.vocab_size
    return decoder.forward(
        ids, torch.arange(tokens) % 512, only_values, torch.tensor(rows, dtype=torch.int64)
    )


@pytest.mark.parametrize("tokens", [1, 5, 900])
def test_logits_are_those_of_the_plain_operations(tokens: int) -> None:
    model, rows = tiny_llama(dtype=BF16), [0, tokens - 1]
    wanted = logits(model, ReferenceOps(), tokens, rows)
    found = logits(model, NarrowCpuOps(BF16), tokens, rows)
    assert (found - wanted).float().norm() <= 2**-5 * wanted.float().norm()


def test_no_rows_wanted() -> None:
    model = tiny_llama(dtype=BF16)
    assert logits(model, NarrowCpuOps(BF16), 4, []).shape == (0, model.config.vocab_size)


def test_the_residual_is_summed_and_left_as_it_is() -> None:
    ops, linear = NarrowCpuOps(BF16), make_linear(randn(48, 32))
    x, residual, weight = randn(3, 32, seed=1), randn(3, 48, seed=2), randn(48, seed=3)
    first, normed = ops.add_norm(linear, x, residual, weight, EPS)
    before = first.clone()
    second, _ = ops.add_norm(linear, x, first, weight, EPS)
    assert torch.equal(first, before)
    assert torch.equal(first[:, 0], residual + linear(x))
    assert torch.equal(second[:, 0], first[:, 0] + linear(x))
    assert torch.equal(second[:, 1], -second[:, 0])
    torch.testing.assert_close(normed, ops.rms_norm(first[:, 0], weight, EPS), rtol=0, atol=0)


@pytest.mark.skipif(not triton_obstacle(CPU), reason="Triton interprets here")
def test_where_they_are_used() -> None:
    assert isinstance(operations_for(CPU, BF16, False, False), NarrowCpuOps)
    assert not isinstance(operations_for(CPU, torch.float32, False, False), NarrowCpuOps)
