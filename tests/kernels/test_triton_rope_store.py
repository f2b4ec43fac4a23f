"""The fused step between the packed product and attention, and block copies."""

import pytest
import torch

from tests.helpers.kernel_cases import BOUND, DTYPES, excess, names, randn, spaced

triton = pytest.importorskip("triton")

from kernels.copy_blocks import block_caches, copy_blocks  # noqa: E402 - only where Triton is
from kernels.launch_glue import MAX_COPY_PAIRS  # noqa: E402
from kernels.qkv_rope_store import qkv_rope_store  # noqa: E402
from kernels.reference.copy_blocks import copy_blocks as copy_reference  # noqa: E402
from kernels.reference.qkv_rope_store import qkv_rope_store as reference  # noqa: E402
from kernels.reference.rope import rope_table  # noqa: E402

POSITIONS = 100
# (query heads, KV heads), head_dim, rotary_dim
SHAPES = [
    ((9, 3), 64, 64),
    ((16, 8), 128, 128),
    ((14, 2), 80, 80),
    ((7, 1), 96, 24),
    ((2, 2), 256, 128),
]


def tables(rotary_dim, dtype, device):
    inv_freq = 10000.0 ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    return [table.to(device) for table in rope_table(inv_freq, POSITIONS, dtype)]


def make_pool(heads, head_dim, dtype, device, blocks=4):
    """Keys and values, NaN, with a block of NaN before and after that belongs to nobody."""
    shape = (blocks + 2, 16, heads[1], head_dim)
    whole = [torch.full(shape, float("nan"), dtype=dtype, device=device) for _ in range(2)]
    return [cache[1:-1] for cache in whole]


def make_steps(device):
    """Positions and slots of five tokens, one of them padding."""
    return (
        torch.tensor([0, 7, POSITIONS - 1, 3, 50], device=device),
        torch.tensor([5, -1, 63, 0, 17], device=device),
    )


def bits(tensor):
    return tensor.cpu().view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "head_dim", "rotary_dim"), SHAPES, ids=names)
def test_queries_and_pool_equal_the_reference(heads, head_dim, rotary_dim, normed, dtype, device):
    qkv = randn((5, (heads[0] + 2 * heads[1]) * head_dim), dtype, device)
    positions, slots = make_steps(device)
    cos, sin = tables(rotary_dim, dtype, device)
    norm = randn((sum(heads), head_dim), dtype, device) if normed else None
    pool = make_pool(heads, head_dim, dtype, device)
    query = qkv_rope_store(qkv, cos, sin, positions, *pool, slots, norm=norm, eps=1e-6)

    oracle = make_pool(heads, head_dim, torch.float64, "cpu")
    expected = reference(
        *(part.cpu().double() for part in (qkv, cos, sin)),
        positions.cpu(),
        *oracle,
        slots.cpu(),
        norm=None if norm is None else norm.cpu().double(),
        eps=1e-6,
    )
    assert query.is_contiguous()
    assert excess(query, expected) <= BOUND[dtype]
    written = slots[slots >= 0].cpu()
    for cache, wanted in zip(pool, oracle, strict=True):
        rows, wanted_rows = cache.cpu().clone().flatten(0, 1), wanted.flatten(0, 1)
        assert excess(rows[written], wanted_rows[written]) <= BOUND[dtype]
        rows[written] = float("nan")
        assert bool(rows.isnan().all()), "a slot was written that no token has"
        size = cache[0].numel()
        before, after = cache.storage_offset() - size, cache.storage_offset() + cache.numel()
        for start in (before, after):
            around = cache.as_strided((size,), (1,), start)
            assert bool(around.isnan().all()), "something was written outside the pool"
    values = qkv.cpu().view(5, -1, head_dim)[:, -heads[1] :]
    stored = pool[1].cpu().flatten(0, 1)[written]
    assert torch.equal(bits(stored), bits(values[slots.cpu() >= 0]))


@pytest.mark.parametrize("tokens", [1, 4])
def test_number_of_tokens_does_not_matter(tokens, device):
    qkv = randn((11, 12 * 64), torch.float32, device)
    cos, sin = tables(64, torch.float32, device)
    positions = torch.arange(11, device=device)
    whole, part = (make_pool((6, 3), 64, torch.float32, device) for _ in range(2))
    options = {"norm": randn((9, 64), torch.float32, device), "eps": 1e-6}
    all_queries = qkv_rope_store(qkv, cos, sin, positions, *whole, positions, **options)
    for first in range(0, 11, tokens):
        rows = slice(first, first + tokens)
        args = (qkv[rows], cos, sin, positions[rows], *part, positions[rows])
        assert torch.equal(qkv_rope_store(*args, **options), all_queries[rows])
    for cache, wanted in zip(part, whole, strict=True):
        assert torch.equal(bits(cache), bits(wanted))


def test_a_row_does_not_depend_on_the_others(device):
    qkv = randn((5, 12 * 64), torch.float32, device)
    cos, sin = tables(64, torch.float32, device)
    positions, slots = make_steps(device)
    pools = [make_pool((6, 3), 64, torch.float32, device) for _ in range(2)]
    before = qkv_rope_store(qkv, cos, sin, positions, *pools[0], slots)
    qkv[:3] = float("nan")
    after = qkv_rope_store(qkv, cos, sin, positions, *pools[1], slots)
    assert torch.equal(before[3:], after[3:])
    assert torch.equal(pools[0][0].flatten(0, 1)[[0, 17]], pools[1][0].flatten(0, 1)[[0, 17]])


def test_rows_may_lie_apart(device):
    qkv = spaced((5, 12 * 64), torch.float32, device)
    cos, sin = tables(64, torch.float32, device)
    positions, slots = make_steps(device)
    pools = [make_pool((6, 3), 64, torch.float32, device) for _ in range(2)]
    queries = [
        qkv_rope_store(rows, cos, sin, positions, *pool, slots)
        for rows, pool in zip((qkv, qkv.contiguous()), pools, strict=True)
    ]
    assert torch.equal(*queries)
    assert torch.equal(bits(pools[0][0]), bits(pools[1][0]))


def test_no_tokens(device):
    cos, sin = tables(64, torch.float32, device)
    none = torch.zeros(0, dtype=torch.int64, device=device)
    pool = make_pool((6, 3), 64, torch.float32, device)
    qkv = torch.zeros((0, 12 * 64), device=device)
    assert qkv_rope_store(qkv, cos, sin, none, *pool, none).shape == (0, 6, 64)


def test_what_does_not_fit_is_refused(device):
    cos, sin = tables(64, torch.float32, device)
    pool = make_pool((6, 3), 64, torch.float32, device)
    positions, slots = make_steps(device)
    qkv = torch.zeros((5, 12 * 64), device=device)
    norm = torch.ones((9, 64), device=device)
    with pytest.raises(ValueError, match="rows of 767 elements"):
        qkv_rope_store(qkv[:, :767], cos, sin, positions, *pool, slots)
    with pytest.raises(ValueError, match="rows of 384 elements"):
        qkv_rope_store(qkv[:, :384], cos, sin, positions, *pool, slots)
    with pytest.raises(ValueError, match="tables"):
        qkv_rope_store(qkv, cos[:, :63], sin[:, :63], positions, *pool, slots)
    with pytest.raises(ValueError, match=r"\(4,\) positions, \(5,\) slots for 5 tokens"):
        qkv_rope_store(qkv, cos, sin, positions[:4], *pool, slots)
    with pytest.raises(ValueError, match=r"norm weights \(8, 64\), \(9, 64\) are expected"):
        qkv_rope_store(qkv, cos, sin, positions, *pool, slots, norm=norm[:8])
    turned = [cache.transpose(0, 1).contiguous().transpose(0, 1) for cache in pool]
    with pytest.raises(ValueError, match="must be contiguous"):
        qkv_rope_store(qkv, cos, sin, positions, *turned, slots)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=names)
@pytest.mark.parametrize("pairs", [1, 3, 6])
def test_copies_in_all_layers_equal_the_reference(pairs, dtype, device):
    caches = [[randn((9, 8, 3, 20), dtype, device) for _ in range(3)] for _ in range(2)]
    wanted = [[cache.clone() for cache in part] for part in caches]
    # Blocks 1 and 4 are both sources and destinations: they are read before they are written.
    source = torch.tensor([1, 4, 7, 0, 2, 3], device=device)[:pairs]
    destination = torch.tensor([5, 1, 4, 8, 6, 7], device=device)[:pairs]
    # Both columns of one tensor: their elements are not next to each other.
    pairs_of = torch.stack((source, destination), 1)
    copy_blocks(block_caches(*caches), pairs_of[:, 0], pairs_of[:, 1])
    for k_cache, v_cache in zip(*wanted, strict=True):
        copy_reference(k_cache, v_cache, source, destination)
    for part, wanted_part in zip(caches, wanted, strict=True):
        for cache, expected in zip(part, wanted_part, strict=True):
            assert torch.equal(bits(cache), bits(expected))


def test_more_copies_than_one_launch_takes(device):
    blocks = 2 * MAX_COPY_PAIRS + 4
    caches = [[randn((blocks, 2, 1, 4), torch.float32, device)] for _ in range(2)]
    order = torch.randperm(blocks, device=device)
    source, destination = order[: blocks // 2], order[blocks // 2 :]
    before = caches[0][0].clone()
    copy_blocks(block_caches(*caches), source, destination)
    before[destination] = before[source]
    assert torch.equal(caches[0][0], before)


def test_caches_that_cannot_be_copied_are_refused(device):
    cache = torch.zeros((4, 2, 1, 4), device=device)
    with pytest.raises(ValueError, match="one shape"):
        block_caches([cache], [cache[:3]])
    with pytest.raises(ValueError, match="contiguous"):
        block_caches([cache[:, :, :, ::2]], [cache[:, :, :, ::2]])
    odd = torch.zeros((4, 1, 1, 3), dtype=torch.float16, device=device)
    with pytest.raises(ValueError, match="no whole words"):
        block_caches([odd], [odd])
    one = torch.zeros(1, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match="destinations"):
        copy_blocks(block_caches([cache], [cache]), one, one.repeat(2))
    copy_blocks(block_caches([cache], [cache]), one[:0], one[:0])
