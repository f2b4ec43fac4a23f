"""Triton attention over pages against a dense oracle in float64."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.paged import PagedPool, dense_attention, paged_pool

triton = pytest.importorskip("triton")

from kernels.paged_decode import paged_decode  # noqa: E402 - only where Triton is
from kernels.paged_prefill import paged_prefill  # noqa: E402

BOUND = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
ON_GPU = torch.cuda.is_available()
DTYPES = [
    torch.float32,
    torch.float16,
    # The interpreter multiplies the bit patterns of bfloat16.
    pytest.param(torch.bfloat16, marks=pytest.mark.gpu),
]

# (query heads, KV heads), head_dim, block size: each pair of values of KERNELS' lists comes up.
SHAPES = [
    ((9, 3), 64, 16),
    ((14, 2), 80, 8),
    ((7, 1), 96, 48),
    ((16, 8), 128, 64),
    ((32, 8), 256, 32),
    ((24, 1), 64, 256),
    ((40, 2), 128, 16),
    ((8, 8), 80, 32),
]


def make_paged(lengths, kv_heads, head_dim, block_size, dtype, device) -> PagedPool:
    """A pool on the device, NaN where nothing may be read; half of those values are infinite."""
    pool = paged_pool(
        lengths, block_size=block_size, num_kv_heads=kv_heads, head_dim=head_dim, dtype=dtype
    )
    unowned = pool.v_cache.isnan()
    unowned[::2] = False
    return replace(
        pool,
        k_cache=pool.k_cache.to(device),
        v_cache=pool.v_cache.masked_fill(unowned, float("inf")).to(device),
        block_tables=pool.block_tables.to(device),
    )


def lengths_of(pool: PagedPool):
    return torch.tensor(pool.lengths, device=pool.block_tables.device)


def excess(out, oracle) -> float:
    """Largest error, relative where the value is above 1.

    The first tokens of a prompt attend to few others, so their output is as large as one value;
    above 2 the last bit of float16 alone is 2e-3.
    """
    error = (out.cpu().double() - oracle).abs() / oracle.abs().clamp(min=1.0)
    return float(error.max())


def names(value):
    return str(value).replace("torch.", "").replace(" ", "")


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize(("heads", "head_dim", "block_size"), SHAPES, ids=names)
def test_decode_equals_dense_attention(heads, head_dim, block_size, dtype, device):
    lengths = [1, block_size - 1, block_size, block_size + 1, 64, 65, 130]
    if ON_GPU:
        lengths += [300, 4096]
    data = make_paged(lengths, heads[1], head_dim, block_size, dtype, device)
    query = torch.randn((len(lengths), heads[0], head_dim)).to(dtype)
    scale = head_dim**-0.5
    out = paged_decode(
        query.to(device), data.k_cache, data.v_cache, data.block_tables, lengths_of(data), scale
    )
    for i, length in enumerate(lengths):
        oracle = dense_attention(query[i : i + 1], data.key[i], data.value[i], length - 1, scale)
        assert excess(out[i], oracle[0]) <= BOUND[dtype], f"length {length}"


@pytest.mark.parametrize("splits", [1, 2, 4, 8, 32])
def test_decode_is_the_same_in_any_number_of_splits(splits, device):
    lengths = [1, 64, 65, 200]
    data = make_paged(lengths, 3, 64, 16, torch.float32, device)
    query = torch.randn((4, 9, 64)).to(device)
    args = (query, data.k_cache, data.v_cache, data.block_tables, lengths_of(data), 0.125)
    whole = paged_decode(*args, splits=1)
    assert (paged_decode(*args, splits=splits) - whole).abs().max() <= 2e-6


@pytest.mark.parametrize("splits", [1, 4])
def test_padded_row_is_finite_and_touches_nobody(splits, device):
    data = make_paged([70, 33], 2, 64, 16, torch.float32, device)
    query = torch.randn((3, 4, 64)).to(device)
    tables = torch.cat([data.block_tables, torch.full_like(data.block_tables[:1], 2**30)])
    lengths = torch.cat([lengths_of(data), torch.zeros_like(lengths_of(data)[:1])])
    args = (data.k_cache, data.v_cache)
    padded = paged_decode(query, *args, tables, lengths, 0.125, splits=splits, max_context=70)
    alone = paged_decode(
        query[:2], *args, data.block_tables, lengths_of(data), 0.125, splits=splits, max_context=70
    )
    assert torch.equal(padded[:2], alone)
    assert torch.equal(padded[2], torch.zeros_like(padded[2]))


def test_two_sequences_with_one_table_agree_bit_for_bit(device):
    data = make_paged([100], 3, 64, 16, torch.float32, device)
    query = torch.randn((1, 9, 64)).to(device).repeat(2, 1, 1)
    out = paged_decode(
        query,
        data.k_cache,
        data.v_cache,
        data.block_tables.repeat(2, 1),
        lengths_of(data).repeat(2),
        0.125,
    )
    assert torch.equal(out[0], out[1])


def _planted(kind: str, key, value):
    if kind == "one key far above the rest":
        key[40] *= 40
    elif kind == "equal scores":
        key[:] = key[0]
    else:
        value[17] = 1e4
    return key, value


@pytest.mark.parametrize("kind", ["one key far above the rest", "equal scores", "outlier value"])
def test_difficult_values(kind, device):
    data = make_paged([90], 1, 64, 16, torch.float32, device)
    key, value = _planted(kind, data.key[0], data.value[0])
    for position in range(90):
        block = int(data.block_tables[0, position // 16])
        data.k_cache[block, position % 16] = key[position].float()
        data.v_cache[block, position % 16] = value[position].float()
    query = torch.randn((1, 2, 64))
    oracle = dense_attention(query, key.float().double(), value.float().double(), 89, 0.125)
    out = paged_decode(
        query.to(device),
        data.k_cache,
        data.v_cache,
        data.block_tables,
        lengths_of(data),
        0.125,
        splits=2,
    )
    largest = max(1.0, float(value.abs().max()))
    assert (out.cpu().double() - oracle).abs().max() <= 2e-6 * largest


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize(("heads", "head_dim", "block_size"), SHAPES, ids=names)
def test_prefill_equals_dense_attention(heads, head_dim, block_size, dtype, device):
    cases = [(0, 1), (0, 7), (1, 2), (block_size, 5), (block_size + 3, 40)]
    if ON_GPU:
        cases += [(0, 600), (1000, 65)]
    scale = head_dim**-0.5
    for start, tokens in cases:
        data = make_paged([start + tokens], heads[1], head_dim, block_size, dtype, device)
        query = torch.randn((tokens, heads[0], head_dim)).to(dtype)
        out = paged_prefill(
            query.to(device), data.k_cache, data.v_cache, data.block_tables[0], start, scale
        )
        oracle = dense_attention(query, data.key[0], data.value[0], start, scale)
        assert excess(out, oracle) <= BOUND[dtype], f"start {start}, {tokens} tokens"


def test_prefill_takes_a_query_that_is_a_slice(device):
    data = make_paged([20], 2, 64, 16, torch.float32, device)
    packed = torch.randn((20, 8, 64)).to(device)
    out = paged_prefill(packed[:, :4], data.k_cache, data.v_cache, data.block_tables[0], 0, 0.125)
    whole = paged_prefill(
        packed[:, :4].contiguous(), data.k_cache, data.v_cache, data.block_tables[0], 0, 0.125
    )
    assert torch.equal(out, whole)


def test_shapes_that_do_not_fit_are_refused(device):
    data = make_paged([20], 2, 64, 16, torch.float32, device)
    query = torch.randn((1, 3, 64)).to(device)
    with pytest.raises(ValueError, match="do not fit"):
        paged_decode(query, data.k_cache, data.v_cache, data.block_tables, lengths_of(data), 1.0)
    with pytest.raises(ValueError, match="2 lengths for 1 rows"):
        paged_decode(
            query[:, :2],
            data.k_cache,
            data.v_cache,
            data.block_tables,
            lengths_of(data).repeat(2),
            1.0,
        )
    with pytest.raises(ValueError, match="do not hold 80 tokens"):
        paged_prefill(
            torch.randn((60, 2, 64)).to(device),
            data.k_cache,
            data.v_cache,
            data.block_tables[0, :2],
            20,
            1.0,
        )
    with pytest.raises(ValueError, match="contiguous"):
        paged_decode(
            query[:, :2],
            data.k_cache.transpose(0, 1).contiguous().transpose(0, 1),
            data.v_cache,
            data.block_tables,
            lengths_of(data),
            1.0,
        )
