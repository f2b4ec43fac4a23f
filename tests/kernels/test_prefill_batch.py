"""Several prefill chunks in one launch."""

import itertools
from dataclasses import replace

import pytest
import torch

triton = pytest.importorskip("triton")

from kernels import prefill_tiles  # noqa: E402 - only where Triton is
from kernels.launch import PrefillLaunch, prefill_launch  # noqa: E402
from kernels.paged_prefill import paged_prefill, paged_prefill_batch  # noqa: E402
from kernels.prefill_tiles import ChunkPlace, most_tiles, tile_list  # noqa: E402
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
    tiles = torch.from_numpy(tile_list(chunks, 3, launch))
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


@pytest.mark.parametrize("window", [None, 20, 300])
def test_keys_in_parts_give_what_whole_ones_give(window, device, monkeypatch):
    """Parts before every window too, and twice over the same counters."""
    monkeypatch.setattr(prefill_tiles, "MIN_PART_KEYS", 64)
    starts, lengths = [0, 500, 90], [40, 530, 100]
    pool, chunks, ids = make(starts, lengths, [0, 40, 70])
    query = torch.randn((80, 6, 48)).to(device)
    whole = PrefillLaunch(64, 32, 4, 2)
    cut = replace(whole, spread=12)
    k_cache, v_cache = pool.k_cache.to(device), pool.v_cache.to(device)
    block_ids = torch.cat(ids).to(device)

    def attend(launch, tiles, counters=None):
        out = torch.full_like(query, float("nan"))
        return paged_prefill_batch(
            query, k_cache, v_cache, block_ids, tiles.to(device), 0.125, launch,
            window=window, out=out, counters=counters,
        )  # fmt: skip

    expected = attend(whole, torch.from_numpy(tile_list(chunks, 3, whole)))
    tiles = torch.from_numpy(tile_list(chunks, 3, cut))
    tiles = torch.cat((tiles, torch.zeros((3, 8), dtype=torch.int32)))
    parts = tiles[:, 7] % 64
    assert int(parts.max()) >= 5
    assert len(tiles) <= most_tiles(80, 3, 3, cut) + 3
    counters = torch.zeros((len(tiles), 2), dtype=torch.int32, device=device)
    for _ in range(2):
        found = attend(cut, tiles, counters)
        assert bool(found.isfinite().all())
        assert (found - expected).abs().max() <= 3e-6
        assert not bool(counters.any())
    assert torch.equal(found, attend(cut, tiles))


def test_parts_of_a_tile_follow_each_other_and_cover_its_keys(monkeypatch):
    monkeypatch.setattr(prefill_tiles, "MIN_PART_KEYS", 64)
    launch = PrefillLaunch(16, 32, 4, 2, spread=20)
    chunks = [ChunkPlace(0, 5, 1000, 0), ChunkPlace(5, 30, 0, 63)]
    tiles = tile_list(chunks, 2, launch).tolist()
    place = 0
    while place < len(tiles):
        first, count = divmod(tiles[place][7], 64)
        assert first == place
        own = tiles[place : place + count]
        assert all(tile[:5] == own[0][:5] and tile[7] == own[0][7] for tile in own)
        assert own[0][5] == 0
        assert all(a[6] == b[5] for a, b in itertools.pairwise(own))
        last_token = min((own[0][4] + 15) // 2, own[0][1] - 1)
        assert own[-1][6] == -(-(own[0][2] + last_token + 1) // 32)
        place += count
    assert tiles[0][7] % 64 > 3


def test_too_few_counters_are_refused(device):
    pool, chunks, ids = make([0], [20], [0])
    launch = PrefillLaunch(16, 64, 4, 2, spread=4)
    parts = [torch.randn((20, 6, 48)), pool.k_cache, pool.v_cache, ids[0]]
    tiles = torch.from_numpy(tile_list(chunks, 3, launch))
    counters = torch.zeros((1, 2), dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="counters for"):
        paged_prefill_batch(
            *(part.to(device) for part in (*parts, tiles)), 0.125, launch, counters=counters
        )


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
    tiles = tile_list(chunks, 2, PrefillLaunch(16, 64, 4, 2))
    ends = tiles[:, 2] + tiles[:, 4] // 2
    assert ends.tolist() == sorted(ends.tolist(), reverse=True)
    assert sorted(tiles[tiles[:, 0] == 5, 4].tolist()) == list(range(0, 200, 16))
    assert tiles[tiles[:, 0] == 0, 4].tolist() == [0]


def test_tiles_of_another_kind_are_refused(device):
    pool, chunks, ids = make([0], [20], [0])
    parts = [torch.randn((20, 6, 48)), pool.k_cache, pool.v_cache, ids[0]]
    tiles = torch.from_numpy(tile_list(chunks, 3, PrefillLaunch(16, 64, 4, 2))).long()
    with pytest.raises(ValueError, match="expected"):
        paged_prefill_batch(
            *(part.to(device) for part in (*parts, tiles)), 0.125, PrefillLaunch(16, 64, 4, 2)
        )
