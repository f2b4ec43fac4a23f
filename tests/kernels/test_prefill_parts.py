"""Keys of prefill tiles that are read in parts by several programs, against float64."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.helpers.paged import dense_attention
from tests.kernels.test_triton_attention import BOUND, DTYPES, ON_GPU, SHAPES, make_paged, names

triton = pytest.importorskip("triton")

from kernels import paged_prefill, prefill_tiles  # noqa: E402 - only where Triton is
from kernels.launch import PrefillLaunch, prefill_launch  # noqa: E402
from kernels.prefill_tiles import ChunkPlace, most_tiles, tile_list  # noqa: E402

# In the interpreter a tile takes milliseconds, on a GPU each kernel seconds to compile.
CASES = [(2000, 16), (4000, 100), (9000, 3)] if ON_GPU else [(150, 5)]
SPREADS = [2, 7, 64, 500] if ON_GPU else [2, 64]
SOME = [
    (*shape, None if place % 2 else 40)
    for place, shape in enumerate(SHAPES)
    if ON_GPU or place in (0, 3)
]


@pytest.fixture(autouse=True)
def _poisoned_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no part has written must not be read."""

    def empty(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.full((count,), float("nan"), dtype=dtype, device=device)

    fake = SimpleNamespace(empty=empty, zeros=torch.zeros, float32=torch.float32, int32=torch.int32)
    monkeypatch.setattr(paged_prefill, "torch", fake)
    if not ON_GPU:
        monkeypatch.setattr(prefill_tiles, "MIN_PART_KEYS", 32)


def launch_of(heads: tuple[int, int], head_dim: int, dtype, device) -> PrefillLaunch:
    """The engine's own, whose parts the tests choose."""
    if ON_GPU:
        return prefill_launch(100, heads[0] // heads[1], head_dim, dtype.itemsize, device, heads[1])
    return PrefillLaunch(16, 32, 4, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize(("heads", "head_dim", "block_size", "window"), SOME, ids=names)
def test_parts_equal_dense_attention(heads, head_dim, block_size, window, dtype, device):
    if ON_GPU and dtype == torch.float32 and head_dim not in (64, 128):
        pytest.skip("a minute to compile, and no other code than for these")
    scale, group = head_dim**-0.5, heads[0] // heads[1]
    for start, tokens in CASES:
        data = make_paged([start + tokens], heads[1], head_dim, block_size, dtype, device)
        query = torch.randn((tokens, heads[0], head_dim)).to(dtype)
        oracle = dense_attention(query, data.key[0], data.value[0], start, scale, window)
        for spread in SPREADS:
            launch = replace(launch_of(heads, head_dim, dtype, device), spread=spread)
            tiles = torch.from_numpy(tile_list([ChunkPlace(0, tokens, start, 0)], group, launch))
            assert len(tiles) <= most_tiles(tokens, 1, group, launch)
            assert int((tiles[:, 7] % 64).max()) > 1 or spread < 2 * len(tiles)
            counters = torch.zeros((len(tiles), heads[1]), dtype=torch.int32, device=device)
            out = torch.full_like(query, float("nan")).to(device)
            for _ in range(2):
                paged_prefill.paged_prefill_batch(
                    query.to(device), data.k_cache, data.v_cache, data.block_tables.view(-1),
                    tiles.to(device), scale, launch, window=window, out=out, counters=counters,
                )  # fmt: skip
            error = (out.cpu().double() - oracle).abs() / oracle.abs().clamp(min=1.0)
            assert error.max() <= BOUND[dtype], f"start {start}, {tokens} tokens, {spread} parts"
            assert not bool(counters.any())


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 16, 256, 1000])
def test_the_engines_own_cut_of_several_chunks(tokens, device):
    """Chunks of one step behind contexts of different lengths, one without any."""
    heads, head_dim, dtype = (16, 8), 128, torch.bfloat16
    starts = [9000, 0, 2500]
    data = make_paged([start + tokens for start in starts], 8, head_dim, 16, dtype, device)
    query = torch.randn((3 * tokens, heads[0], head_dim)).to(dtype)
    launch = prefill_launch(3 * tokens, 2, head_dim, 2, device, 8)
    width = data.block_tables.shape[1]
    chunks = [
        ChunkPlace(row * tokens, tokens, start, row * width) for row, start in enumerate(starts)
    ]
    tiles = torch.from_numpy(tile_list(chunks, 2, launch))
    out = paged_prefill.paged_prefill_batch(
        query.to(device), data.k_cache, data.v_cache, data.block_tables.view(-1),
        tiles.to(device), head_dim**-0.5, launch,
    )  # fmt: skip
    for row, start in enumerate(starts):
        rows = slice(row * tokens, (row + 1) * tokens)
        oracle = dense_attention(query[rows], data.key[row], data.value[row], start, head_dim**-0.5)
        error = (out[rows].cpu().double() - oracle).abs() / oracle.abs().clamp(min=1.0)
        assert error.max() <= BOUND[dtype]
