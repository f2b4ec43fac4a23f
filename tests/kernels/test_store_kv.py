"""Writing KV: exactly the slots of the mapping change."""

from __future__ import annotations

import pytest
import torch

from kernels.reference.copy_blocks import copy_blocks
from kernels.reference.store_kv import cache_rows, store_kv


def random_pool(num_blocks: int, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_blocks * 100 + block_size)
    shape = (num_blocks, block_size, 2, 4)
    return (
        torch.randn(shape, generator=generator),
        torch.randn(shape, generator=generator),
    )


@pytest.mark.parametrize("block_size", range(1, 9))
def test_every_start_and_length(block_size: int) -> None:
    """A run may begin and end anywhere in a block; the pool equals an oracle slot by slot."""
    num_blocks = 5
    table = torch.tensor([3, 1, 4, 0])
    for start in range(2 * block_size + 1):
        for length in range(1, 4 * block_size - start + 1):
            k_cache, v_cache = random_pool(num_blocks, block_size)
            key, value = torch.randn(length, 2, 4), torch.randn(length, 2, 4)
            expected_k, expected_v = k_cache.clone(), v_cache.clone()
            for i in range(length):
                block, offset = divmod(start + i, block_size)
                expected_k[table[block], offset] = key[i]
                expected_v[table[block], offset] = value[i]
            place = torch.arange(start, start + length)
            slots = table[place // block_size] * block_size + place % block_size
            store_kv(key, value, k_cache, v_cache, slots)
            assert torch.equal(k_cache, expected_k), (start, length)
            assert torch.equal(v_cache, expected_v), (start, length)


def test_negative_slots_are_skipped() -> None:
    k_cache, v_cache = random_pool(3, 4)
    before_k, before_v = k_cache.clone(), v_cache.clone()
    key, value = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    store_kv(key, value, k_cache, v_cache, torch.tensor([-1, 6, -1]))
    before_k[1, 2], before_v[1, 2] = key[1], value[1]
    assert torch.equal(k_cache, before_k)
    assert torch.equal(v_cache, before_v)


def test_nothing_but_skipped_slots_changes_nothing() -> None:
    k_cache, v_cache = random_pool(2, 4)
    before = k_cache.clone()
    store_kv(torch.randn(2, 2, 4), torch.randn(2, 2, 4), k_cache, v_cache, torch.tensor([-1, -1]))
    assert torch.equal(k_cache, before)


def test_a_pool_whose_view_would_be_a_copy_is_refused() -> None:
    """Slicing heads off makes the rows strided; a reshape would write to a copy without a word."""
    k_cache, _ = random_pool(2, 4)
    with pytest.raises(RuntimeError, match="view"):
        cache_rows(k_cache[:, :3, :1])


def test_a_slot_past_the_pool_is_refused() -> None:
    k_cache, v_cache = random_pool(2, 4)
    with pytest.raises((IndexError, RuntimeError)):
        store_kv(torch.randn(1, 2, 4), torch.randn(1, 2, 4), k_cache, v_cache, torch.tensor([8]))


def test_copy_blocks_changes_only_the_destinations() -> None:
    k_cache, v_cache = random_pool(6, 4)
    before_k, before_v = k_cache.clone(), v_cache.clone()
    copy_blocks(k_cache, v_cache, torch.tensor([1, 4]), torch.tensor([5, 1]))
    # Block 1 is both a source and a destination: it is read before it is written.
    before_k[[5, 1]], before_v[[5, 1]] = before_k[[1, 4]], before_v[[1, 4]]
    assert torch.equal(k_cache, before_k)
    assert torch.equal(v_cache, before_v)
