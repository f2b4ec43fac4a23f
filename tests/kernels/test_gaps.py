"""What a kernel reads element after element is refused where it has gaps: it would be read past
them, and slots would be written that nobody named.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from kernels.grouped_linear import grouped_linear
from kernels.launch import PrefillLaunch
from kernels.paged_prefill import paged_prefill, paged_prefill_batch
from kernels.prefill_tiles import ChunkPlace, tile_list
from kernels.rms_norm import join_add_rms_norm
from kernels.skinny_linear import linear_add_rms_norm, skinny_linear
from kernels.store_kv import store_kv


@pytest.fixture
def calls(device: torch.device) -> dict[str, tuple[Callable[[Tensor], object], Tensor]]:
    """By name: a call, and what it takes, contiguous."""
    x, weight = torch.randn(2, 64, device=device), torch.randn(32, 64, device=device)
    codes = torch.zeros((32, 32), dtype=torch.uint8, device=device)
    bias, norm = torch.randn(32, device=device), torch.randn(64, device=device)
    scale, residual = torch.rand((32, 2), device=device), torch.randn((2, 32), device=device)
    pool, parts = torch.randn((4, 8, 2, 64), device=device), torch.randn((2, 2, 32), device=device)
    query, heads = torch.randn((3, 4, 64), device=device), torch.randn((3, 2, 64), device=device)
    launch = PrefillLaunch(16, 16, 4, 2)
    tiles = torch.from_numpy(tile_list([ChunkPlace(0, 3, 9, 0)], 2, launch)).to(device)
    blocks, slots = torch.tensor([1, 3], device=device), torch.tensor([3, 5, 7], device=device)

    def joined(bias: Tensor) -> object:
        return linear_add_rms_norm(x, weight, bias, residual, scale.flatten()[:32], 1e-5)

    return {
        "bias of a product": (lambda part: skinny_linear(x, weight, part), bias),
        "norm before a product": (lambda part: skinny_linear(x, weight, norm_weight=part), norm),
        "bias before a norm": (joined, bias),
        "bias of parts": (
            lambda part: join_add_rms_norm(parts, part, residual, bias, 1e-5),
            bias,
        ),
        "bias of a grouped product": (
            lambda part: grouped_linear(x, codes, scale, scale, part, bits=4),
            bias,
        ),
        "slots": (lambda part: store_kv(heads, heads, pool, pool, part), slots),
        "block table": (lambda part: paged_prefill(query, pool, pool, part, 9, 0.1), blocks),
        "block ids": (
            lambda part: paged_prefill_batch(query, pool, pool, part, tiles, 0.1, launch),
            blocks,
        ),
        "tiles": (
            lambda part: paged_prefill_batch(query, pool, pool, blocks, part, 0.1, launch),
            tiles,
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        "bias of a product",
        "norm before a product",
        "bias before a norm",
        "bias of parts",
        "bias of a grouped product",
        "slots",
        "block table",
        "block ids",
        "tiles",
    ],
)
def test_gaps_are_refused(
    calls: dict[str, tuple[Callable[[Tensor], object], Tensor]], name: str
) -> None:
    call, whole = calls[name]
    call(whole)
    gaps = torch.stack((whole, whole), -1)[..., 0]
    with pytest.raises(ValueError, match="must be contiguous"):
        call(gaps)


def test_a_bias_of_parts_has_the_width_of_the_rows(device: torch.device) -> None:
    parts, residual = torch.randn((2, 3, 32), device=device), torch.randn((3, 32), device=device)
    with pytest.raises(ValueError, match=r"bias \(1,\) and weight \(32,\) do not fit"):
        join_add_rms_norm(parts, residual[0, :1], residual, residual[0], 1e-5)
