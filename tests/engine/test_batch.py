"""Laying out a step's inputs in persistent buffers."""

from __future__ import annotations

import random

import torch

from engine.api.params import GREEDY
from engine.batch import InputBatch, StepBatch
from engine.request import PLACEHOLDER_TOKEN, Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput


def request(name: str, tokens: list[int], table: list[int], num_prompt_tokens: int = 1) -> Request:
    made = Request(name, name, tokens, num_prompt_tokens, GREEDY, 0, 0.0)
    made.block_table = table
    return made


def decode(made: Request) -> ScheduledChunk:
    return ScheduledChunk(made, made.num_tokens - 1, 1, True)


def build(
    batch: InputBatch,
    decodes: list[ScheduledChunk],
    prefills: list[ScheduledChunk],
    last_tokens: dict[str, int] | None = None,
) -> StepBatch:
    return batch.build(SchedulerOutput(0, tuple(decodes), tuple(prefills)), last_tokens or {})


def test_decodes_come_first_then_chunks() -> None:
    batch = InputBatch(block_size=4, max_blocks=8, max_requests=4)
    a = request("a", [10, 11, 12, 13, 14, 15], [7, 3])
    b = request("b", [20], [1])
    c = request("c", list(range(30, 40)), [5, 2, 6])
    whole = ScheduledChunk(c, 3, 7, True)
    step = build(batch, [decode(a), decode(b)], [whole])
    assert step.input_ids.tolist() == [15, 20, 33, 34, 35, 36, 37, 38, 39]
    assert step.positions.tolist() == [5, 0, 3, 4, 5, 6, 7, 8, 9]
    assert step.slot_mapping.tolist() == [13, 4, 23, 8, 9, 10, 11, 24, 25]
    assert step.num_decodes == 2
    assert step.decode_lengths.tolist() == [6, 1]
    assert step.decode_block_tables[0].tolist() == [7, 3]
    assert step.decode_block_tables[1, 0] == 1
    (span,) = step.prefills
    assert (span.first_row, span.num_tokens, span.start) == (2, 7, 3)
    assert span.block_table.tolist() == [5, 2, 6]
    assert step.sample_rows.tolist() == [0, 1, 8]
    assert [r.request_id for r in step.sampled] == ["a", "b", "c"]
    assert step.sample_ends == (6, 1, 10)


def test_partial_chunk_samples_nothing() -> None:
    batch = InputBatch(block_size=4, max_blocks=8, max_requests=4)
    a = request("a", list(range(10)), [0, 1, 2])
    step = build(batch, [], [ScheduledChunk(a, 0, 6, False)])
    assert step.sample_rows.tolist() == []
    assert step.sampled == ()
    # The table covers the chunk, not the blocks that come later.
    assert step.prefills[0].block_table.tolist() == [0, 1]


def test_placeholder_becomes_the_newest_token() -> None:
    batch = InputBatch(block_size=4, max_blocks=8, max_requests=4)
    a = request("a", [1, PLACEHOLDER_TOKEN], [0])
    b = request("b", [2, 3, PLACEHOLDER_TOKEN], [1])
    step = build(batch, [decode(a)], [ScheduledChunk(b, 0, 3, True)], {"a": 77, "b": 88})
    assert step.input_ids.tolist() == [77, 2, 3, 88]
    assert b.token_ids == [2, 3, PLACEHOLDER_TOKEN], "the runner only reads requests"


def test_rows_follow_tables_that_grow_change_and_shrink() -> None:
    draw = random.Random(3)
    batch = InputBatch(block_size=4, max_blocks=2, max_requests=1)
    live: dict[str, Request] = {}
    for turn in range(400):
        name = f"r{draw.randrange(6)}"
        if name not in live:
            live[name] = request(name, [turn], [draw.randrange(1000)])
        made = live[name]
        change = draw.random()
        if change < 0.5:
            made.block_table.append(draw.randrange(1000))
        elif change < 0.7:
            made.block_table[draw.randrange(len(made.block_table))] = draw.randrange(1000)
        elif change < 0.8 and len(made.block_table) > 1:
            del made.block_table[draw.randrange(1, len(made.block_table)) :]
        elif change < 0.9:
            batch.forget(name)
            del live[name]
            continue
        for other in live.values():
            other.token_ids = list(range(len(other.block_table) * 4 - draw.randrange(4)))
        step = build(batch, [decode(r) for r in live.values()], [])
        for index, r in enumerate(live.values()):
            place = r.num_tokens - 1
            assert step.slot_mapping[index] == r.block_table[place // 4] * 4 + place % 4
            used = place // 4 + 1
            assert step.decode_block_tables[index, :used].tolist() == r.block_table[:used]
    assert batch.num_rows_used == len(live)


def test_forget_frees_the_row_and_ignores_strangers() -> None:
    batch = InputBatch(block_size=4, max_blocks=8, max_requests=2)
    a = request("a", [1], [3])
    build(batch, [decode(a)], [])
    assert batch.num_rows_used == 1
    batch.forget("a")
    batch.forget("nobody")
    assert batch.num_rows_used == 0


def test_more_tokens_than_the_buffers_held() -> None:
    batch = InputBatch(block_size=4, max_blocks=1, max_requests=1)
    a = request("a", list(range(1000)), list(range(250)))
    step = build(batch, [], [ScheduledChunk(a, 0, 1000, True)])
    assert step.input_ids.tolist() == list(range(1000))
    assert torch.equal(step.slot_mapping, torch.arange(1000))
