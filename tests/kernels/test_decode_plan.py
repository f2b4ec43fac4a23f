"""How decode contexts are cut, and that the cut does not change what comes out."""

import heapq
import random
from dataclasses import replace
from unittest.mock import MagicMock

import pytest
import torch

triton = pytest.importorskip("triton")

from kernels import decode_plan  # noqa: E402 - only where Triton is
from kernels import launch as launches  # noqa: E402
from kernels.decode_plan import plan_decode  # noqa: E402 - only where Triton is
from kernels.launch import decode_launch  # noqa: E402
from kernels.paged_decode import paged_decode  # noqa: E402
from kernels.reference.paged_decode import paged_decode as reference  # noqa: E402
from tests.helpers.paged import NEVER_READ, dense_attention, paged_pool  # noqa: E402


def items_of(plan):
    words = plan.items.cpu()
    return words[8:].view(-1, 8)[: int(words[0]), :7].tolist()


def lay(lengths, device, **choices):
    tensor = torch.tensor(lengths, device=device)
    return plan_decode(tensor, 6, 2, 64, max(lengths), **choices)


@pytest.mark.parametrize(
    "choices",
    [{}, {"splits": 3}, {"splits": 32}, {"deterministic": True}, {"window": 100}],
    ids=str,
)
def test_items_are_all_tiles_once_and_the_largest_first(choices, device):
    for lengths in ([1], [64, 0, 65, 3000], [500] * 17, [4096] + [3] * 70):
        plan = lay(lengths, device, **choices)
        items = items_of(plan)
        assert len(items) <= plan.capacity
        tile, placed = plan.launch.tile, []
        for sequence, length in enumerate(lengths):
            own = [item for item in items if item[0] == sequence]
            first = max(0, length - choices.get("window", length)) // tile
            covered = [t for item in own for t in range(item[1], item[2])]
            assert covered == list(range(first, -(-length // tile)))
            # Joined from the first on, as many as there are.
            place = items.index(own[0])
            assert items[place : place + len(own)] == own
            assert all(item[3:5] == [place, len(own)] for item in own)
            placed.append((place, max(item[2] - item[1] for item in own)))
        assert sum(items[place][4] for place, _ in placed) == len(items)
        largest = [size for _, size in sorted(placed)]
        assert largest == sorted(largest, reverse=True)


def mixed(count, longest):
    draw = random.Random(count)
    return [draw.randint(longest // 8, longest) for _ in range(count)]


@pytest.mark.parametrize(
    "lengths",
    [
        mixed(5, 9000), mixed(20, 3000), mixed(40, 2000), mixed(64, 2000), mixed(70, 900),
        mixed(160, 1200), [30_000] + [400] * 63, [16_000] + [400] * 200,
    ],
    ids=lambda lengths: f"{len(lengths)} to {max(lengths)}",
)  # fmt: skip
def test_programs_end_at_about_the_same_time(lengths, device):
    """Each takes the next item as it ends one, as a multiprocessor does."""
    launch = replace(decode_launch(6, 2, 64, device), spread=66)
    items = items_of(lay(lengths, device, launch=launch))
    sizes = [last - first for _, first, last, *_ in items]
    ends = [0] * launch.spread
    for size in sizes:
        heapq.heapreplace(ends, ends[0] + size)
    assert max(ends) <= 1.25 * sum(sizes) / launch.spread + 3
    # No more than it takes: parts have to be joined.
    assert len(items) <= len(lengths) + 16 * launch.spread // launch.part_share + 1


@pytest.mark.parametrize(("count", "length", "parts"), [(64, 512, 1), (8, 4096, 8), (128, 640, 1)])
def test_contexts_of_one_length_are_cut_only_to_fill_the_device(count, length, parts, device):
    launch = replace(decode_launch(6, 2, 64, device), spread=66)
    assert len(items_of(lay([length] * count, device, launch=launch))) == count * parts


def test_launches_by_how_many_sequences_there_are(monkeypatch):
    """On an H200, of Qwen3-0.6B's shape: 66 programs of a KV head, or 49 with more on its way."""
    gpu = torch.device("meta")
    monkeypatch.setattr(launches, "multiprocessors", lambda _: 132)
    monkeypatch.setattr(launches, "shared_memory", lambda _: 227 * 1024)
    launches._decode_launches.cache_clear()
    few, deep = (decode_launch(16, 8, 128, gpu, batch) for batch in (1, 256))
    assert (few.spread, few.num_stages) == (66, 2)
    assert (deep.spread, deep.num_stages) == (49, 3)
    chosen = [decode_launch(16, 8, 128, gpu, batch) for batch in (33, 34, 49, 50, 66, 67)]
    assert chosen == [few, deep, deep, few, few, deep]
    # Three of them would not fit on a desktop GPU's multiprocessor.
    monkeypatch.setattr(launches, "shared_memory", lambda _: 99 * 1024)
    launches._decode_launches.cache_clear()
    assert decode_launch(16, 8, 128, gpu, 256).num_stages == 2
    launches._decode_launches.cache_clear()


def test_more_items_than_programs_in_one_dimension(monkeypatch, device):
    """As 64 contexts of a million tokens have, in parts that do not depend on each other."""
    lengths = torch.zeros(64, dtype=torch.int64, device="meta")
    monkeypatch.setattr(decode_plan, "_plan_kernel", MagicMock())
    plan = plan_decode(lengths, 6, 2, 64, 1_010_000, deterministic=True)
    assert plan.capacity >= 64 * -(-1_010_000 // 512)
    assert plan.capacity % plan.slices == 0
    assert plan.capacity // plan.slices <= decode_plan.MOST_PROGRAMS == 65_535
    monkeypatch.undo()
    query, k_cache, v_cache, tables, lens = make([700, 5, 1300, 64], device)
    whole = paged_decode(query, k_cache, v_cache, tables, lens, 0.125, deterministic=True)
    monkeypatch.setattr(decode_plan, "MOST_PROGRAMS", 5)
    cut = plan_decode(lens, 6, 2, 64, 1300, deterministic=True)
    # Seven of twelve are there: some in the second of three slices, none in the last.
    assert (cut.capacity, cut.slices, len(items_of(cut))) == (12, 3, 7)
    out = paged_decode(query, k_cache, v_cache, tables, lens, 0.125, plan=cut)
    assert torch.equal(out, whole)


def test_counters_begin_at_zero(device):
    assert not bool(lay([100, 2000], device).counters.any())


def make(lengths, device, block_size=16):
    pool = paged_pool(
        lengths, block_size=block_size, num_kv_heads=2, head_dim=64, dtype=torch.float32
    )
    query = torch.randn((len(lengths), 6, 64))
    parts = (query, pool.k_cache, pool.v_cache, pool.block_tables, torch.tensor(lengths))
    return tuple(part.to(device) for part in parts)


@pytest.mark.parametrize("window", [1, 16, 64, 70, 1000])
def test_window_reads_nothing_before_it(window, device):
    lengths = [1, 40, 130, 200]
    query, k_cache, v_cache, tables, lens = make(lengths, device)
    expected = reference(
        query.cpu(), k_cache.cpu(), v_cache.cpu(), tables.cpu(), lens.cpu(), 0.125, window=window
    )
    for row, length in enumerate(lengths):
        gone = max(0, length - window)
        place = torch.arange(gone, device=device)
        block = tables[row][place // 16]
        k_cache[block, place % 16] = float("nan")
        v_cache[block, place % 16] = float("inf")
        tables[row, : gone // 16] = NEVER_READ
    for splits in (None, 2):
        out = paged_decode(
            query, k_cache, v_cache, tables, lens, 0.125, window=window, splits=splits
        )
        assert (out.cpu() - expected).abs().max() <= 2e-6


def test_one_plan_serves_all_layers(device):
    query, k_cache, v_cache, tables, lens = make([70, 600, 3], device)
    plan = plan_decode(lens, 6, 2, 64, 600, splits=4)
    whole = paged_decode(query, k_cache, v_cache, tables, lens, 0.125, splits=1)
    for _ in range(3):
        plan.partial.fill_(float("nan"))
        plan.lse.fill_(float("nan"))
        out = torch.full_like(query, float("nan"))
        paged_decode(query, k_cache, v_cache, tables, lens, 0.125, plan=plan, out=out)
        assert (out - whole).abs().max() <= 2e-6


def test_a_plan_for_wide_tables_cuts_short_contexts_as_finely(device):
    query, k_cache, v_cache, tables, lens = make([130, 90], device)
    wide = plan_decode(lens, 6, 2, 64, 1 << 17)
    narrow = plan_decode(lens, 6, 2, 64, 130)
    assert items_of(wide) == items_of(narrow)
    out = paged_decode(query, k_cache, v_cache, tables, lens, 0.125, plan=wide)
    assert torch.equal(out, paged_decode(query, k_cache, v_cache, tables, lens, 0.125, plan=narrow))


def test_deterministic_output_depends_on_the_sequence_alone(device):
    query, k_cache, v_cache, tables, lens = make([700, 5, 1300, 64], device)
    together = paged_decode(query, k_cache, v_cache, tables, lens, 0.125, deterministic=True)
    for rows in ([2], [2, 0], [3, 1, 2, 0], [0, 2, 2, 2, 1, 1, 1]):
        out = paged_decode(
            query[rows], k_cache, v_cache, tables[rows], lens[rows], 0.125, deterministic=True
        )
        assert torch.equal(out, together[rows])


def test_a_plan_of_another_batch_is_refused(device):
    query, k_cache, v_cache, tables, lens = make([70, 20], device)
    plan = plan_decode(lens[:1], 6, 2, 64, 70)
    with pytest.raises(ValueError, match="a plan of 1 sequences for 2 rows"):
        paged_decode(query, k_cache, v_cache, tables, lens, 0.125, plan=plan)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("window", [None, 900])
def test_more_contexts_than_run_at_once_with_long_ones_among_them(dtype, window, device):
    """As many as a full batch has, in parts and whole, and with room for a much longer one."""
    lengths = [1, 64, 4096, *[100 + 3 * place for place in range(250)], 8000, 0, 2500]
    pool = paged_pool(lengths, block_size=16, num_kv_heads=8, head_dim=128, dtype=dtype)
    query = torch.randn((len(lengths), 16, 128)).to(dtype)
    lens = torch.tensor(lengths, device=device)
    args = [part.to(device) for part in (query, pool.k_cache, pool.v_cache, pool.block_tables)]
    plan = plan_decode(lens, 16, 8, 128, 40_960, window=window)
    assert plan.batch > plan.launch.spread
    # Within a window all are about as long.
    most_parts = max(item[4] for item in items_of(plan))
    assert most_parts > 1 if window is None else most_parts == 1
    assert len(items_of(plan)) <= plan.capacity
    plan.partial.fill_(float("nan"))
    plan.lse.fill_(float("nan"))
    out = paged_decode(*args, lens, 128**-0.5, plan=plan)
    whole = paged_decode(*args, lens, 128**-0.5, window=window, splits=1)
    bound = 2e-6 if dtype == torch.float32 else 1e-2
    assert (out.float() - whole.float()).abs().max() <= bound
    for row in (0, 2, 253, 255):
        oracle = dense_attention(
            query[row : row + 1],
            pool.key[row],
            pool.value[row],
            lengths[row] - 1,
            128**-0.5,
            window,
        )
        assert (out[row].cpu().double() - oracle[0]).abs().max() <= bound
    assert not bool(out[254].any())
