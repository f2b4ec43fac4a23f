"""A common beginning that is read once gives what reading it for each sequence gives."""

import pytest
import torch

triton = pytest.importorskip("triton")

from kernels import launch as launches  # noqa: E402 - only where Triton is
from kernels.launch import fitting_rows, shared_launch, uses_shared_prefix  # noqa: E402
from kernels.reference.shared_prefix_decode import (  # noqa: E402
    shared_prefix_decode as reference,
)
from kernels.shared_prefix_decode import shared_prefix_decode  # noqa: E402
from tests.helpers.paged import NEVER_READ, paged_pool  # noqa: E402

ON_GPU = torch.cuda.is_available()
BOUND = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]


def make(lengths, groups, heads, head_dim, block_size, dtype):
    """Sequences of a pool of which groups share their first blocks; the rest of it is NaN."""
    pool = paged_pool(
        lengths, block_size=block_size, num_kv_heads=heads[1], head_dim=head_dim, dtype=dtype
    )
    width = max(len(rows) for rows, _ in groups)
    members = torch.full((len(groups), width), -1)
    for place, (rows, blocks) in enumerate(groups):
        members[place, : len(rows)] = torch.tensor(rows, dtype=torch.int64)
        for row in rows[1:]:
            pool.block_tables[row, :blocks] = pool.block_tables[rows[0], :blocks]
    shared = torch.tensor([blocks for _, blocks in groups])
    query = torch.randn((len(lengths), heads[0], head_dim)).to(dtype)
    lens = torch.tensor(lengths)
    return query, pool.k_cache, pool.v_cache, pool.block_tables, lens, members, shared


def error(parts, device):
    scale = parts[0].shape[-1] ** -0.5
    out = shared_prefix_decode(*(part.to(device) for part in parts), scale)
    exact = [part.double() if part.is_floating_point() else part for part in parts]
    return float((out.cpu().double() - reference(*exact, scale)).abs().max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("heads", "head_dim", "block_size"),
    [((9, 3), 64, 16), ((24, 1), 80, 8), ((16, 8), 128, 16), ((14, 2), 96, 32), ((8, 8), 256, 48)],
    ids=str,
)
def test_equals_attention_of_each_sequence(heads, head_dim, block_size, dtype, device):
    bs = block_size
    lengths = [3 * bs + 1, 3 * bs + 40, 7, 2 * bs + 9, 5 * bs, 90 + 3 * bs]
    groups = [([5, 0, 1], 3), ([4, 3], 2)]
    assert error(make(lengths, groups, heads, head_dim, bs, dtype), device) <= BOUND[dtype]


def test_more_rows_than_one_program_takes(device):
    lengths = [50 + 3 * row for row in range(40)]
    parts = make(lengths, [(list(range(39, 2, -1)), 3)], (4, 2), 64, 16, torch.float32)
    assert error(parts, device) <= 2e-6


def test_rows_are_fewer_where_a_dtype_takes_more_shared_memory(monkeypatch):
    """As compiled, 64 rows of 128 or 256 in float32 take 112 or 136 KiB: a desktop GPU has 99."""
    gpu = torch.device("meta")
    monkeypatch.setattr(launches, "multiprocessors", lambda _: 82)

    def rows(kilobytes, head_dim, dtype):
        monkeypatch.setattr(launches, "shared_memory", lambda _: kilobytes * 1024)
        shared_launch.cache_clear()
        chosen = shared_launch(64, 16, 8, head_dim, gpu)
        shared_launch.cache_clear()
        return fitting_rows(chosen, head_dim, dtype.itemsize, gpu)

    dims = (64, 80, 128, 256)
    for kilobytes in (99, 163, 227):
        assert [rows(kilobytes, dim, torch.bfloat16) for dim in dims] == [64] * 4
    assert [rows(99, dim, torch.float32) for dim in dims] == [64, 32, 32, 16]
    assert [rows(163, dim, torch.float32) for dim in dims] == [64] * 4
    assert [rows(227, dim, torch.float32) for dim in dims] == [64] * 4


def test_padded_groups_and_rows_touch_nobody(device):
    query, k_cache, v_cache, tables, lens, members, shared = make(
        [70, 90, 33], [([0, 1], 4)], (6, 2), 64, 16, torch.float32
    )
    alone = shared_prefix_decode(
        *(part.to(device) for part in (query, k_cache, v_cache, tables, lens, members, shared)),
        0.125,
        max_context=90,
    )
    members = torch.cat((members, torch.full((2, 2), -1)))
    members = torch.cat((members, torch.full((3, 3), -1)), 1)
    padded = shared_prefix_decode(
        torch.cat((query, torch.randn(1, 6, 64))).to(device),
        k_cache.to(device),
        v_cache.to(device),
        torch.cat((tables, torch.full_like(tables[:1], NEVER_READ))).to(device),
        torch.cat((lens, torch.tensor([0]))).to(device),
        members.to(device),
        torch.tensor([4, 0, 0], device=device),
        0.125,
        max_context=90,
    )
    assert (padded[:3] - alone).abs().max() <= 1e-6
    assert torch.equal(padded[3], torch.zeros_like(padded[3]))


def test_shapes_that_do_not_fit_are_refused(device):
    parts = [
        part.to(device) for part in make([40, 40], [([0, 1], 2)], (4, 2), 64, 16, torch.float32)
    ]
    with pytest.raises(ValueError, match="2 prefixes for 1 groups"):
        shared_prefix_decode(*parts[:-1], parts[-1].repeat(2), 0.125)
    with pytest.raises(ValueError, match="3 groups of 2 sequences"):
        shared_prefix_decode(*parts[:-2], parts[-2].repeat(3, 1), parts[-1].repeat(3), 0.125)


def test_gate_goes_by_the_bytes_that_are_saved():
    def pays(sequences, prefix, own=512, token_bytes=4096):
        return uses_shared_prefix(sequences, prefix, sequences * own, token_bytes)

    assert pays(16, 8192)
    # 16 MB a layer: 4096 tokens of 4096 bytes.
    assert pays(3, 2048)
    assert pays(2, 4096)
    assert not pays(2, 2048, own=256)
    assert pays(2, 2048, own=256, token_bytes=8192)
    # A short beginning must save four times that.
    assert pays(8, 1024)
    assert not pays(16, 512)
    assert pays(64, 512)
    # Nothing is left of it where each has much of its own.
    assert pays(8, 2048, own=2048)
    assert not pays(8, 2048, own=6000)
    assert not pays(1, 1 << 20, own=0)
