"""Several prefill chunks in one launch."""

import pytest
import torch

triton = pytest.importorskip("triton")

from kernels.launch import PrefillLaunch, prefill_launch  # noqa: E402 - only where Triton is
from kernels.paged_prefill import paged_prefill, paged_prefill_batch  # noqa: E402
from kernels.prefill_tiles import ChunkPlace, tile_list  # noqa: E402
from kernels.reference.paged_prefill import paged_prefill as reference  # noqa: E402
from tests.helpers.paged import NEVER_READ, paged_pool  # noqa: E402

UNTOUCHED = 7.0


def make(starts, lengths, first_rows):
    pool = paged_pool(lengths, block_size=16, num_kv_heads=2, head_dim=48, dtype=torch.float32)
    chunks, ids, offset = [], [], 0
    for row, (start, length, first_row) in enumerate(zip(starts, lengths, first_rows, strict=True)):
        table = pool.block_tables[row, : -(-length // 16)]
        chunks.append(ChunkPlace(first_row, length - start, start, offset))
        ids.append(table)
        offset += len(table)
    return pool, chunks, ids


@pytest.mark.parametrize("window", [None, 1, 20, 64])
def test_equals_each_chunk_by_itself(window, device):
    pool, chunks, ids = make([0, 85, 90, 30], [70, 90, 130, 31], [3, 80, 90, 130])
    query = torch.randn((135, 6, 48))
    launch = prefill_launch(116, 3, 48, 4, device)
    tiles = torch.from_numpy(tile_list(chunks, 3, launch.rows))
    tiles = torch.cat((tiles, torch.zeros((2, 8), dtype=torch.int32)))
    out = torch.full_like(query, UNTOUCHED).to(device)
    k_cache, v_cache = pool.k_cache.to(device), pool.v_cache.to(device)
    args = (torch.cat(ids).to(device), tiles.to(device), 0.125, launch)
    paged_prefill_batch(query.to(device), k_cache, v_cache, *args, window=window, out=out)
    written = torch.zeros(135, dtype=torch.bool)
    for chunk, table in zip(chunks, ids, strict=True):
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_tokens)
        written[rows] = True
        expected = reference(
            query[rows].double(), pool.k_cache.double(), pool.v_cache.double(), table, chunk.start,
            0.125, window=window,
        )  # fmt: skip
        assert (out[rows].cpu() - expected).abs().max() <= 3e-6
    assert bool((out.cpu()[~written] == UNTOUCHED).all())


def test_window_reads_nothing_before_it(device):
    pool, _, (table,) = make([100], [140], [0])
    query = torch.randn((40, 6, 48))
    args = (query, pool.k_cache, pool.v_cache, table, 100, 0.125)
    expected = reference(*args, window=30)
    place = torch.arange(71)
    pool.k_cache[table[place // 16], place % 16] = float("nan")
    pool.v_cache[table[place // 16], place % 16] = float("inf")
    table[:4] = NEVER_READ
    on_device = [part.to(device) if torch.is_tensor(part) else part for part in args]
    out = paged_prefill(*on_device, window=30)
    assert (out.cpu() - expected).abs().max() <= 3e-6


def test_tiles_with_the_most_keys_come_first_and_cover_every_pair():
    chunks = [ChunkPlace(0, 5, 1000, 0), ChunkPlace(5, 100, 0, 63)]
    tiles = tile_list(chunks, 2, 16)
    ends = tiles[:, 2] + tiles[:, 4] // 2
    assert ends.tolist() == sorted(ends.tolist(), reverse=True)
    assert sorted(tiles[tiles[:, 0] == 5, 4].tolist()) == list(range(0, 200, 16))
    assert tiles[tiles[:, 0] == 0, 4].tolist() == [0]


def test_tiles_of_another_kind_are_refused(device):
    pool, chunks, ids = make([0], [20], [0])
    parts = [torch.randn((20, 6, 48)), pool.k_cache, pool.v_cache, ids[0]]
    tiles = torch.from_numpy(tile_list(chunks, 3, 16)).long()
    with pytest.raises(ValueError, match="expected"):
        paged_prefill_batch(
            *(part.to(device) for part in (*parts, tiles)), 0.125, PrefillLaunch(16, 64, 4, 2)
        )
