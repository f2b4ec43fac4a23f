"""Attention over the last so many tokens only, against float64."""

from __future__ import annotations

import pytest
import torch

from kernels.reference.paged_decode import decode_gather, paged_decode
from kernels.reference.paged_prefill import paged_prefill, prefill_gather
from tests.helpers.paged import PagedPool, dense_attention, paged_pool

SCALE = 0.25
BLOCK_SIZE = 8
LENGTHS = [1, 5, 8, 9, 40, 100]
WINDOWS = [1, 2, 7, 8, 9, 39, 99, 100, 101]
BOUND = {torch.float32: 2e-6, torch.float64: 1e-12}


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def without_what_no_query_sees(pool: PagedPool, index: int, end: int) -> PagedPool:
    """The same pool, NaN in the slots of one sequence before ``end``: nothing may read them."""
    place = torch.arange(max(end, 0))
    block = pool.block_tables[index, place // BLOCK_SIZE]
    pool.k_cache[block, place % BLOCK_SIZE] = float("nan")
    pool.v_cache[block, place % BLOCK_SIZE] = float("nan")
    return pool


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("window", WINDOWS)
def test_decode_reference(window: int, dtype: torch.dtype) -> None:
    pool = paged_pool(LENGTHS, block_size=BLOCK_SIZE, dtype=dtype)
    for index, length in enumerate(LENGTHS):
        without_what_no_query_sees(pool, index, length - window)
    query = randn(len(LENGTHS), 6, 16, dtype=dtype)
    tables, lengths = pool.block_tables, torch.tensor(LENGTHS)
    out = paged_decode(query, pool.k_cache, pool.v_cache, tables, lengths, SCALE, window=window)
    for i, length in enumerate(LENGTHS):
        want = dense_attention(
            query[i : i + 1], pool.key[i], pool.value[i], length - 1, SCALE, window
        )
        assert (out[i].double() - want[0]).abs().max() <= BOUND[dtype], f"length {length}"


def test_decode_of_very_uneven_lengths_keeps_each_window() -> None:
    lengths = [3, 3000, 700, 20, 1]
    pool = paged_pool(lengths, block_size=BLOCK_SIZE)
    query = randn(len(lengths), 4, 16, dtype=torch.float64)
    args = (pool.k_cache, pool.v_cache, pool.block_tables, torch.tensor(lengths), SCALE)
    assert len(decode_gather(args[2], args[3], BLOCK_SIZE, torch.float64, 2000)) > 1
    out = paged_decode(query, *args, window=2000)
    for i, length in enumerate(lengths):
        want = dense_attention(
            query[i : i + 1], pool.key[i], pool.value[i], length - 1, SCALE, 2000
        )
        assert (out[i] - want[0]).abs().max() <= 1e-12


def test_decode_gathers_no_more_than_the_window() -> None:
    pool = paged_pool([3000, 2900], block_size=BLOCK_SIZE)
    lengths = torch.tensor([3000, 2900])
    gather = decode_gather(pool.block_tables, lengths, BLOCK_SIZE, torch.float32, 64)
    assert sum(len(group.slots) for group in gather) == 128


CHUNKS = [(0, 1), (0, 30), (5, 1), (8, 16), (11, 29), (90, 10)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("start", "tokens"), CHUNKS)
def test_prefill_reference(start: int, tokens: int, window: int, dtype: torch.dtype) -> None:
    pool = paged_pool([start + tokens], block_size=BLOCK_SIZE, dtype=dtype)
    without_what_no_query_sees(pool, 0, start + 1 - window)
    query = randn(tokens, 6, 16, dtype=dtype)
    table = pool.block_tables[0]
    out = paged_prefill(query, pool.k_cache, pool.v_cache, table, start, SCALE, window=window)
    want = dense_attention(query, pool.key[0], pool.value[0], start, SCALE, window)
    assert (out.double() - want).abs().max() <= BOUND[dtype]


def test_first_chunk_within_its_window_needs_no_mask() -> None:
    table = torch.arange(4)
    assert prefill_gather(table, 0, 20, BLOCK_SIZE, torch.float32, 20).mask is None
    assert prefill_gather(table, 0, 21, BLOCK_SIZE, torch.float32, 20).mask is not None
