"""One row each of ``attention_rates``: a kernel's time on random pages of a pool, and its error."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.decode_plan import plan_decode
from kernels.launch import DecodeLaunch, PrefillLaunch, prefill_launch
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill, paged_prefill_batch
from kernels.prefill_tiles import ChunkPlace, tile_list
from kernels.shared_prefix_decode import plan_shared_prefix_decode, shared_prefix_decode
from tests.benchmarks.throughput import draw_workload

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 16, 8, 128, 16
TOKEN_BYTES = 2 * KV_HEADS * HEAD_DIM * 2
ROTATED_BYTES = 160e6
SCALE = HEAD_DIM**-0.5
OWN_TOKENS = 512


class Pool:
    """Random keys and values, and block tables that lie scattered in them."""

    def __init__(self, num_blocks: int) -> None:
        shape = (num_blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
        self.k = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        self.v = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        self._order = torch.randperm(num_blocks, device="cuda")
        self._next = 0

    def table(self, blocks: int) -> Tensor:
        """``[blocks]`` ids, other ones at each call as long as there are any."""
        if self._next + blocks > len(self._order):
            self._next = 0
        start, self._next = self._next, self._next + blocks
        return self._order[start : start + blocks]

    def tables(self, batch: int, tokens: int) -> Tensor:
        blocks = -(-tokens // BLOCK_SIZE)
        return self.table(batch * blocks).view(batch, blocks)


def microseconds(calls: list[Callable[[], object]], replays: int = 50) -> float:
    """Median time of one of the calls, in a graph of all of them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        calls[0]()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3):
        graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return statistics.median(times) * 1e3 / len(calls)


def rotations(used_bytes: float) -> int:
    return max(4, math.ceil(ROTATED_BYTES / used_bytes))


def dense(pool: Pool, query: Tensor, table: Tensor, context: int) -> Tensor:
    """The last ``len(query)`` tokens' attention over a gathered context, in float32."""
    key, value = (
        part[table].flatten(0, 1)[:context].float().transpose(0, 1).unsqueeze(0)
        for part in (pool.k, pool.v)
    )
    tokens = len(query)
    mask = torch.ones(tokens, context, dtype=torch.bool, device="cuda").tril(context - tokens)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.float().transpose(0, 1).unsqueeze(0), key, value, mask, scale=SCALE, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def decode_row(
    pool: Pool, batch: int, context: int, launch: DecodeLaunch | None, fa3: Any = None
) -> dict[str, object]:
    """Contexts of one length."""
    where = {"part": "decode", "batch": batch, "context": context}
    return where | _decodes(pool, [context] * batch, launch, fa3)


def mixed_row(
    pool: Pool, steps: int, launch: DecodeLaunch | None, fa3: Any = None
) -> dict[str, object]:
    """The contexts that W1's answers have after so many steps, those that have ended left out."""
    prompts, outputs = draw_workload()
    left = zip(prompts, outputs, strict=True)
    lengths = [len(prompt) + steps for prompt, output in left if output > steps]
    where = {"part": "mixed", "steps": steps, "batch": len(lengths), "longest": max(lengths)}
    return where | _decodes(pool, lengths, launch, fa3)


def _decodes(
    pool: Pool, contexts: list[int], launch: DecodeLaunch | None, fa3: Any
) -> dict[str, object]:
    batch, longest, whole = len(contexts), max(contexts), sum(contexts)
    tables = [pool.tables(batch, longest) for _ in range(rotations(whole * TOKEN_BYTES))]
    lengths = torch.tensor(contexts, device="cuda")
    query = torch.randn((batch, HEADS, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
    plan = plan_decode(lengths, HEADS, KV_HEADS, HEAD_DIM, longest, launch=launch)

    def call(table: Tensor) -> Tensor:
        return paged_decode(query, pool.k, pool.v, table, lengths, SCALE, plan=plan)

    out = call(tables[0])
    error = 0.0
    for row in {0, batch - 1}:
        expected = dense(pool, query[row : row + 1], tables[0][row], contexts[row])
        error = max(error, float((out[row] - expected[0]).abs().max()))
    spent = microseconds([lambda table=table: call(table) for table in tables])
    result: dict[str, object] = {
        "us": round(spent, 2),
        "tb_s": round(whole * TOKEN_BYTES / spent / 1e6, 3),
        "error": round(error, 5),
    }
    if fa3 is not None:
        short = [table.int() for table in tables]
        used = lengths.int()
        result["fa3_us"] = round(
            microseconds(
                [
                    lambda table=table: fa3.flash_attn_with_kvcache(
                        query.unsqueeze(1), pool.k, pool.v, used, table, SCALE
                    )
                    for table in short
                ]
            ),
            2,
        )
    return result


def shared_row(pool: Pool, batch: int, prefix: int, launch: Any = None) -> dict[str, object]:
    context = prefix + OWN_TOKENS
    count = rotations((batch * OWN_TOKENS + prefix) * TOKEN_BYTES)
    tables = []
    for _ in range(count):
        common = pool.table(prefix // BLOCK_SIZE).expand(batch, -1)
        tables.append(torch.cat((common, pool.tables(batch, OWN_TOKENS)), 1))
    lengths = torch.full((batch,), context, device="cuda")
    query = torch.randn((batch, HEADS, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
    members = torch.arange(batch, device="cuda")[None]
    blocks = torch.tensor([prefix // BLOCK_SIZE], device="cuda")
    plan = plan_decode(lengths, HEADS, KV_HEADS, HEAD_DIM, context)
    shared = plan_shared_prefix_decode(
        lengths, members, blocks, BLOCK_SIZE, HEADS, KV_HEADS, HEAD_DIM, context, launch=launch
    )

    def plain(table: Tensor) -> Tensor:
        return paged_decode(query, pool.k, pool.v, table, lengths, SCALE, plan=plan)

    def grouped(table: Tensor) -> Tensor:
        return shared_prefix_decode(
            query, pool.k, pool.v, table, lengths, members, blocks, SCALE, plan=shared
        )

    error = float((plain(tables[0]) - grouped(tables[0])).abs().max())
    spent = microseconds([lambda table=table: grouped(table) for table in tables])
    result: dict[str, object] = {
        "part": "shared", "batch": batch, "prefix": prefix, "us": round(spent, 2),
        "error": round(error, 5),
    }  # fmt: skip
    if launch is None:
        result["plain_us"] = round(
            microseconds([lambda table=table: plain(table) for table in tables]), 2
        )
    return result


def prefill_row(
    pool: Pool, tokens: int, cached: int, launch: PrefillLaunch | None, fa3: Any = None
) -> dict[str, object]:
    context = tokens + cached
    table = pool.tables(1, context)[0]
    query = torch.randn((tokens, HEADS, HEAD_DIM), device="cuda", dtype=torch.bfloat16)

    def whole() -> Tensor:
        return paged_prefill(query, pool.k, pool.v, table, cached, SCALE, launch=launch)

    # As the engine does it: where tiles are few, their keys are cut into parts.
    cut = prefill_launch(tokens, HEADS // KV_HEADS, HEAD_DIM, 2, table.device, KV_HEADS)
    chunk = ChunkPlace(0, tokens, cached, 0)
    tiles = torch.from_numpy(tile_list([chunk], HEADS // KV_HEADS, cut)).cuda()
    counters = torch.zeros((len(tiles), KV_HEADS), dtype=torch.int32, device="cuda")

    def in_parts() -> Tensor:
        return paged_prefill_batch(
            query, pool.k, pool.v, table, tiles, SCALE, cut, counters=counters
        )

    call = whole if launch else in_parts
    last = query[-16:]
    error = float((call()[-16:] - dense(pool, last, table, context)).abs().max())
    replays = 50 if context <= 8192 else 10
    spent = microseconds([call] * 2, replays)
    flops = 4 * HEADS * HEAD_DIM * (tokens * cached + tokens * (tokens + 1) / 2)
    result: dict[str, object] = {
        "part": "prefill", "tokens": tokens, "cached": cached, "us": round(spent, 1),
        "tflop_s": round(flops / spent / 1e6, 1), "error": round(error, 5),
    }  # fmt: skip
    if launch is None:
        result |= {"tiles": len(tiles), "most_parts": int((tiles[:, 7] % 64).max())}
        result["whole_us"] = round(microseconds([whole] * 2, replays), 1)
    if fa3 is not None:
        cumulated = torch.tensor([0, tokens], dtype=torch.int32, device="cuda")
        used = torch.tensor([context], dtype=torch.int32, device="cuda")
        short = table.int()[None]
        result["fa3_us"] = round(
            microseconds(
                [
                    lambda: fa3.flash_attn_varlen_func(
                        query, pool.k, pool.v, tokens, cumulated, context, seqused_k=used,
                        softmax_scale=SCALE, causal=True, block_table=short,
                    )
                ]
                * 2,
                replays,
            ),
            1,
        )  # fmt: skip
        if cached == 0:
            key, value = (
                part[table].flatten(0, 1)[None].transpose(1, 2) for part in (pool.k, pool.v)
            )
            wide = query[None].transpose(1, 2)
            result["sdpa_us"] = round(
                microseconds(
                    [
                        lambda: torch.nn.functional.scaled_dot_product_attention(
                            wide, key, value, is_causal=True, scale=SCALE, enable_gqa=True
                        )
                    ]
                    * 2,
                    replays,
                ),
                1,
            )
    return result
