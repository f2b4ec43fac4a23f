"""The pool's memory."""

from __future__ import annotations

import psutil
import pytest
import torch

from engine.kv_cache import KVCache
from tests.helpers.tiny_model import tiny_llama

CPU = torch.device("cpu")


def make_cache(num_blocks: int = 6, block_size: int = 4) -> KVCache:
    return KVCache(tiny_llama().config, num_blocks, block_size, torch.float32, CPU)


def test_shape_and_size() -> None:
    cache = make_cache()
    assert len(cache.k) == len(cache.v) == 3
    assert cache.k[0].shape == (6, 4, 2, 16)
    assert cache.block_bytes == 3 * 2 * 4 * 2 * 16 * 4
    config = tiny_llama().config
    assert cache.block_bytes == config.kv_bytes_per_token(4) * 4


def test_rows_are_views_of_the_pool() -> None:
    cache = make_cache()
    cache.k_rows[1][9] = 5.0
    assert bool((cache.k[1][2, 1] == 5.0).all())
    assert int((cache.k[1] == 5.0).sum()) == 32


def test_store_writes_one_layer_and_the_given_slots_only() -> None:
    cache = make_cache()
    before = [t.clone() for t in (*cache.k, *cache.v)]
    key, value = torch.randn(2, 32), torch.randn(2, 32)
    cache.store(1, key, value, torch.tensor([21, 2]))
    before[1].view(24, 32)[[21, 2]] = key
    before[4].view(24, 32)[[21, 2]] = value
    assert all(
        torch.equal(now, then) for now, then in zip((*cache.k, *cache.v), before, strict=True)
    )


def test_copy_blocks_copies_every_layer() -> None:
    cache = make_cache()
    for tensor in (*cache.k, *cache.v):
        tensor.normal_()
    before = [t.clone() for t in (*cache.k, *cache.v)]
    cache.copy_blocks([(0, 4), (3, 1)])
    for now, then in zip((*cache.k, *cache.v), before, strict=True):
        then[[4, 1]] = then[[0, 3]]
        assert torch.equal(now, then)


def test_a_gpu_copies_blocks_in_all_layers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from kernels import copy_blocks

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    calls: list[int] = []
    copy = copy_blocks.copy_blocks

    def counted(caches, source, destination) -> None:
        calls.append(len(source))
        copy(caches, source, destination)

    monkeypatch.setattr(copy_blocks, "copy_blocks", counted)
    monkeypatch.setattr("engine.kv_cache.triton_obstacle", lambda _device: "")
    cache = KVCache(tiny_llama().config, 6, 4, torch.float32, device)
    for tensor in (*cache.k, *cache.v):
        tensor.normal_()
    before = [t.clone() for t in (*cache.k, *cache.v)]
    cache.copy_blocks([(0, 4), (3, 1)])
    assert calls == [2]
    for now, then in zip((*cache.k, *cache.v), before, strict=True):
        then[[4, 1]] = then[[0, 3]]
        assert torch.equal(now, then)


def test_copying_nothing_is_allowed() -> None:
    cache = make_cache()
    cache.copy_blocks([])
    assert not any(bool(t.any()) for t in (*cache.k, *cache.v))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_large_pool_takes_memory_only_as_it_is_written(dtype: torch.dtype) -> None:
    config = tiny_llama().config
    process = psutil.Process()
    before = process.memory_info().rss
    cache = KVCache(config, 40_000, 16, dtype, CPU)
    size = 40_000 * cache.block_bytes
    assert size > 200 << 20
    assert process.memory_info().rss - before < size // 10
    assert not bool(cache.k[0][39_999].any())
    cache.k[1][123] = 1.0
    assert float(cache.k[1].sum()) == cache.k[1][0].numel()


def test_a_pool_takes_no_more_where_a_model_has_gone_before() -> None:
    # Once it has freed 30 MB in one piece, malloc keeps smaller pieces for those who come next.
    piece = torch.ones(30 << 18)
    del piece
    model = [torch.ones(20 << 18) for _ in range(12)]
    last = torch.ones(1 << 18)
    del model
    process = psutil.Process()
    before = process.memory_info().rss
    cache = KVCache(tiny_llama().config, 20_000, 16, torch.bfloat16, CPU)
    size = 20_000 * cache.block_bytes
    assert size > 100 << 20
    assert process.memory_info().rss - before < size // 10
    assert last.numel()


def test_a_pool_that_the_system_refuses_is_out_of_memory() -> None:
    with pytest.raises(MemoryError):
        KVCache(tiny_llama().config, 1 << 45, 16, torch.bfloat16, CPU)
