"""Attention over the last so many tokens only: the Triton kernels against float64."""

from __future__ import annotations

import pytest
import torch

from tests.helpers.paged import dense_attention, paged_pool

triton = pytest.importorskip("triton")

from kernels.paged_decode import paged_decode  # noqa: E402 - only where Triton is
from kernels.paged_prefill import paged_prefill  # noqa: E402

SCALE = 0.125
BOUND = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [(4, 2), (6, 1)], ids=str)
@pytest.mark.parametrize("window", [1, 16, 63, 65, 130, 400])
def test_prefill_kernel(
    window: int, heads: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Rows of one program whose windows begin in different tiles, and programs of padded rows."""
    for start, tokens in ((0, 150), (70, 90), (200, 3)):
        pool = paged_pool(
            [start + tokens], block_size=16, num_kv_heads=heads[1], head_dim=64, dtype=dtype
        )
        query = torch.randn((tokens, heads[0], 64)).to(dtype)
        out = paged_prefill(
            query.to(device),
            pool.k_cache.to(device),
            pool.v_cache.to(device),
            pool.block_tables[0].to(device),
            start,
            SCALE,
            window=window,
        )
        want = dense_attention(query, pool.key[0], pool.value[0], start, SCALE, window)
        error = (out.cpu().double() - want).abs() / want.abs().clamp(min=1.0)
        assert error.max() <= BOUND[dtype], f"start {start}, {tokens} tokens"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("splits", [None, 1, 4])
@pytest.mark.parametrize("window", [1, 16, 63, 64, 65, 300])
def test_decode_kernel(
    window: int, splits: int | None, dtype: torch.dtype, device: torch.device
) -> None:
    lengths = [1, 15, 64, 65, 130, 200]
    pool = paged_pool(lengths, block_size=16, num_kv_heads=2, head_dim=64, dtype=dtype)
    query = torch.randn((len(lengths), 6, 64)).to(dtype)
    out = paged_decode(
        query.to(device),
        pool.k_cache.to(device),
        pool.v_cache.to(device),
        pool.block_tables.to(device),
        torch.tensor(lengths, device=device),
        SCALE,
        window=window,
        splits=splits,
    )
    for i, length in enumerate(lengths):
        want = dense_attention(
            query[i : i + 1], pool.key[i], pool.value[i], length - 1, SCALE, window
        )
        error = (out[i].cpu().double() - want[0]).abs() / want[0].abs().clamp(min=1.0)
        assert error.max() <= BOUND[dtype], f"length {length}"
