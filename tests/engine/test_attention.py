"""The paged reference backend: what it stores, and mixed steps against dense attention."""

from __future__ import annotations

import random

import torch

from engine.attention.paged_reference import PagedReferenceBackend
from engine.batch import PrefillSpan, StepBatch
from engine.kv_cache import KVCache
from tests.helpers.paged import dense_attention
from tests.helpers.tiny_model import tiny_llama

BLOCK_SIZE = 4
NUM_BLOCKS = 24
CONFIG = tiny_llama().config
HEADS, KV_HEADS, HEAD_DIM = CONFIG.num_heads, CONFIG.num_kv_heads, CONFIG.head_dim


def make_backend() -> PagedReferenceBackend:
    cache = KVCache(CONFIG, NUM_BLOCKS, BLOCK_SIZE, torch.float64, torch.device("cpu"))
    for tensor in (*cache.k, *cache.v):
        tensor.fill_(float("nan"))
    return PagedReferenceBackend(cache, CONFIG)


def step_of(
    tables: list[list[int]], starts: list[int], counts: list[int], num_decodes: int
) -> StepBatch:
    """A step whose i-th sequence computes ``counts[i]`` tokens from ``starts[i]``."""
    positions: list[int] = []
    slots: list[int] = []
    spans: list[PrefillSpan] = []
    for i, (table, start, count) in enumerate(zip(tables, starts, counts, strict=True)):
        if i >= num_decodes:
            spans.append(PrefillSpan(len(positions), count, start, torch.tensor(table)))
        for place in range(start, start + count):
            positions.append(place)
            slots.append(table[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE)
    width = max([len(table) for table in tables[:num_decodes]], default=1)
    decode_tables = torch.full((num_decodes, width), 2**30)
    for i in range(num_decodes):
        decode_tables[i, : len(tables[i])] = torch.tensor(tables[i])
    return StepBatch(
        input_ids=torch.zeros(len(positions), dtype=torch.int64),
        positions=torch.tensor(positions),
        slot_mapping=torch.tensor(slots),
        num_decodes=num_decodes,
        decode_block_tables=decode_tables,
        decode_lengths=torch.tensor([start + 1 for start in starts[:num_decodes]]),
        max_decode_length=max([start + 1 for start in starts[:num_decodes]], default=0),
        prefills=tuple(spans),
        sample_rows=torch.zeros(0, dtype=torch.int64),
        sampled=(),
        sample_ends=(),
    )


def qkv(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return (
        randn(count, HEADS, HEAD_DIM),
        randn(count, KV_HEADS, HEAD_DIM),
        randn(count, KV_HEADS, HEAD_DIM),
    )


def test_mixed_steps_equal_dense_attention_in_every_layer() -> None:
    """Three sequences over several steps: chunks beside decodes, in shuffled blocks."""
    backend = make_backend()
    free = list(range(NUM_BLOCKS))
    random.Random(1).shuffle(free)
    tables = [[free.pop() for _ in range(6)] for _ in range(3)]
    # (sequence, tokens) of each step, decodes first.
    plan = [
        ([], [(0, 5)]),
        ([0], [(1, 3), (2, 9)]),
        ([0], [(1, 6)]),
        ([0, 1, 2], []),
        ([1, 2], [(0, 4)]),
    ]
    done = [0, 0, 0]
    keys: list[list[list[torch.Tensor]]] = [[[] for _ in range(3)] for _ in range(3)]
    values: list[list[list[torch.Tensor]]] = [[[] for _ in range(3)] for _ in range(3)]
    for number, (decodes, prefills) in enumerate(plan):
        work = [(s, 1) for s in decodes] + prefills
        starts, counts = [done[s] for s, _ in work], [count for _, count in work]
        batch = step_of([tables[s] for s, _ in work], starts, counts, len(decodes))
        attend = backend.begin_step(batch)
        for layer in range(CONFIG.num_layers):
            query, key, value = qkv(sum(counts), 100 * number + layer)
            out = attend(layer, query, key.flatten(1), value.flatten(1))
            assert out.shape == (sum(counts), HEADS * HEAD_DIM)
            row = 0
            for (s, count), start in zip(work, starts, strict=True):
                rows = slice(row, row + count)
                keys[layer][s].append(key[rows])
                values[layer][s].append(value[rows])
                want = dense_attention(
                    query[rows],
                    torch.cat(keys[layer][s]),
                    torch.cat(values[layer][s]),
                    start,
                    HEAD_DIM**-0.5,
                )
                assert float((out[rows] - want.flatten(1)).abs().max()) < 1e-12
                row += count
        for s, count in work:
            done[s] += count
    assert done == [12, 11, 11]


def test_negative_slots_write_nothing() -> None:
    backend = make_backend()
    batch = step_of([[5], [9, 2]], [2, 0], [1, 6], num_decodes=1)
    batch.slot_mapping[[2, 6]] = -1
    query, key, value = qkv(7, 1)
    before = [tensor.clone() for tensor in (*backend.cache.k, *backend.cache.v)]
    backend.begin_step(batch)(1, query, key.flatten(1), value.flatten(1))
    kept = [0, 1, 3, 4, 5]
    slots = batch.slot_mapping[kept]
    before[1].flatten(0, 1)[slots] = key[kept]
    before[4].flatten(0, 1)[slots] = value[kept]
    for now, then in zip((*backend.cache.k, *backend.cache.v), before, strict=True):
        assert torch.equal(now.view(torch.int64), then.view(torch.int64))
    # The last slot of the pool is where an unfiltered −1 would land.
    assert bool(backend.cache.k[1][-1, -1].isnan().all())


def test_copies_reach_the_pool() -> None:
    backend = make_backend()
    backend.cache.k[2][3] = 1.0
    backend.copy_blocks([(3, 8)])
    assert bool((backend.cache.k[2][8] == 1.0).all())


def test_forgetting_is_allowed_at_any_time() -> None:
    make_backend().forget("nobody")
