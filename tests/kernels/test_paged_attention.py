"""Paged attention against dense attention written out in float64."""

from __future__ import annotations

import pytest
import torch

from kernels.reference.paged_decode import decode_gather, paged_decode
from kernels.reference.paged_prefill import paged_prefill
from tests.helpers.paged import PagedPool, dense_attention, paged_pool

SCALE = 0.25
# Absolute error on data of unit variance.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 1e-2,
}


def randn(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def decode_error(pool: PagedPool, query: torch.Tensor) -> float:
    lengths = torch.tensor(pool.lengths)
    out = paged_decode(query, pool.k_cache, pool.v_cache, pool.block_tables, lengths, SCALE)
    assert out.shape == query.shape
    assert out.dtype == query.dtype
    expected = torch.cat(
        [
            dense_attention(query[i : i + 1], key, value, len(key) - 1, SCALE)
            for i, (key, value) in enumerate(zip(pool.key, pool.value, strict=True))
        ]
    )
    return float((out.double() - expected).abs().max())


def prefill_error(pool: PagedPool, query: torch.Tensor, start: int) -> float:
    out = paged_prefill(query, pool.k_cache, pool.v_cache, pool.block_tables[0], start, SCALE)
    assert out.shape == query.shape
    assert out.dtype == query.dtype
    end = start + len(query)
    expected = dense_attention(query, pool.key[0][:end], pool.value[0][:end], start, SCALE)
    return float((out.double() - expected).abs().max())


def test_decode_follows_a_table_that_is_not_in_order() -> None:
    pool = paged_pool([7], block_size=4, blocks=[3, 1])
    assert pool.block_tables[0, :2].tolist() == [3, 1]
    assert decode_error(pool, randn(1, 4, 16, dtype=torch.float64)) < 1e-12


def test_prefill_follows_a_table_that_is_not_in_order() -> None:
    pool = paged_pool([7], block_size=4, blocks=[3, 1])
    assert prefill_error(pool, randn(7, 4, 16, dtype=torch.float64), 0) < 1e-12


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("block_size", [1, 8, 16, 48])
def test_decode_batch_of_uneven_lengths(block_size: int, dtype: torch.dtype) -> None:
    lengths = [1, 300, block_size, block_size + 1, max(1, block_size - 1), 64]
    pool = paged_pool(lengths, block_size=block_size, dtype=dtype, seed=block_size)
    assert decode_error(pool, randn(len(lengths), 6, 16, dtype=dtype)) <= TOLERANCE[dtype]


def test_one_long_sequence_does_not_pad_the_short_ones() -> None:
    lengths = [3, 2000, 700, 20, 1500, 5, 1]
    pool = paged_pool(lengths, block_size=16, dtype=torch.float32)
    gather = decode_gather(pool.block_tables, torch.tensor(lengths), 16, torch.float32)
    places = sum(len(group.slots) for group in gather)
    assert sum(lengths) <= places < 1.5 * sum(lengths)
    assert decode_error(pool, randn(len(lengths), 6, 16, dtype=torch.float32)) <= 2e-6


def test_equal_lengths_need_no_mask() -> None:
    pool = paged_pool([20, 20], block_size=8)
    (group,) = decode_gather(pool.block_tables, torch.tensor([20, 20]), 8, torch.float64)
    assert group.mask is None
    place = torch.arange(20)
    slots = pool.block_tables[:, place // 8] * 8 + place % 8
    assert torch.equal(group.slots, slots.flatten())
    (cut,) = decode_gather(pool.block_tables, torch.tensor([20, 20]), 8, torch.float64, window=11)
    assert cut.mask is None
    assert torch.equal(cut.slots, slots[:, 9:].flatten())
    assert decode_error(pool, randn(2, 6, 16, dtype=torch.float64)) < 1e-12


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"),
    [(9, 3, 64), (14, 2, 64), (7, 1, 80), (16, 8, 96), (32, 8, 128), (24, 1, 64), (8, 8, 256)],
)
def test_head_counts(num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    pool = paged_pool(
        [37, 5], block_size=16, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=torch.float32
    )
    assert decode_error(pool, randn(2, num_heads, head_dim, dtype=torch.float32)) <= 1e-5
    assert prefill_error(pool, randn(20, num_heads, head_dim, dtype=torch.float32), 17) <= 1e-5


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("start", [0, 1, 16, 19])
@pytest.mark.parametrize("num_tokens", [1, 2, 7, 64, 65, 300])
def test_prefill_chunk_after_cached_tokens(num_tokens: int, start: int, dtype: torch.dtype) -> None:
    pool = paged_pool([start + num_tokens], block_size=16, dtype=dtype)
    error = prefill_error(pool, randn(num_tokens, 6, 16, dtype=dtype), start)
    assert error <= TOLERANCE[dtype]


def test_prefill_does_not_read_past_the_chunk() -> None:
    pool = paged_pool([40], block_size=8)
    place = torch.arange(24, 40)
    table = pool.block_tables[0]
    pool.k_cache[table[place // 8], place % 8] = float("nan")
    pool.v_cache[table[place // 8], place % 8] = float("nan")
    assert prefill_error(pool, randn(14, 4, 16, dtype=torch.float64), 10) < 1e-12


def test_infinities_in_unowned_slots_do_not_leak() -> None:
    pool = paged_pool([5, 30], block_size=8)
    pool.k_cache.nan_to_num_(nan=float("inf"))
    pool.v_cache.nan_to_num_(nan=float("inf"))
    assert decode_error(pool, randn(2, 4, 16, dtype=torch.float64)) < 1e-12


def test_one_sequence_with_nan_does_not_reach_its_neighbour() -> None:
    pool = paged_pool([12, 30], block_size=8)
    query = randn(2, 4, 16, dtype=torch.float64)
    lengths = torch.tensor(pool.lengths)
    args = (pool.block_tables, lengths, SCALE)
    clean = paged_decode(query, pool.k_cache, pool.v_cache, *args)
    pool.k_cache[pool.block_tables[0, 0]] = float("nan")
    poisoned = paged_decode(query, pool.k_cache, pool.v_cache, *args)
    assert bool(poisoned[0].isnan().all())
    assert torch.equal(poisoned[1], clean[1])


def test_shared_blocks_give_equal_output() -> None:
    pool = paged_pool([20], block_size=8)
    tables = pool.block_tables.repeat(3, 1)
    query = randn(1, 4, 16, dtype=torch.float64).repeat(3, 1, 1)
    lengths = torch.tensor([20, 20, 20])
    out = paged_decode(query, pool.k_cache, pool.v_cache, tables, lengths, SCALE)
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])


@pytest.mark.parametrize("peak", [40.0, 0.0])
def test_extreme_scores(peak: float) -> None:
    """One key far above the rest, and all keys equal."""
    pool = paged_pool([33], block_size=16, dtype=torch.float32)
    query = torch.ones(1, 2, 16)
    pool.key[0][:] = 0.0
    pool.key[0][5] = peak / (16 * SCALE)
    place = torch.arange(33)
    pool.k_cache[pool.block_tables[0][place // 16], place % 16] = pool.key[0]
    assert decode_error(pool, query) <= 2e-6
    assert prefill_error(pool, query, 32) <= 2e-6
