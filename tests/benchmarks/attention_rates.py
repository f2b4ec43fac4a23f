"""Speed of the attention kernels on a GPU, beside FlashAttention-3 where its extension is at hand.

``python tests/benchmarks/attention_rates.py [--sweep] [--fa3 DIR] [PART …]`` prints one JSON line a
row; parts: decode, shared, prefill. Microseconds a call: replays of a CUDA graph of calls over
different blocks of a pool (150 MB of keys and values at least, so that they come from memory), the
median of 50 or more, the gap between kernels included.

What was changed on one H200, what was expected, what came out (us; 16/8 heads of 128, bfloat16):

| decode (batch, context) | (1,512) | (1,4096) | (1,32768) | (8,512) | (8,4096) | (8,32768) | (64,512) | (64,4096) | (16→17,4096) |
|---|---|---|---|---|---|---|---|---|---|
| FlashAttention-3 | 11.8 | 15.8 | 44.8 | 14.3 | 43.5 | 249 | 44.8 | 251 | 72 → 108 |
| 1: one launch, plan on the device, 4 warps; expected 6 at (1,512) | 6.4 | 16.4 | 44.2 | 12.7 | 40.8 | 343 | 37.0 | 250 | 71 → 97 |
| 2: 2 warps; parts rounded down (no tail wave: 343 → 250 expected); block ids a tile ahead (a tile of latency less) | 6.3 | 12.4 | 42.0 | 10.8 | 39.2 | 252 | 38.1 | 261 | 69 → 78 |
| 3: early launch (1 less at (1,512) expected) | 5.2 | 11.6 | 44.3 | 10.5 | 41.6 | 277 | 39.5 | 277 | 75 → 84 |
| 4: joins 32 parts at once; its registers leave 4 programs a multiprocessor, so the next layer's early ones wait outside | 5.0 | 11.2 | 40.3 | 10.0 | 38.7 | 252 | 36.3 | 249 | 69 → 79 |

| shared (sequences, prefix), 512 own | (4,2048) | (8,2048) | (16,512) | (16,2048) | (16,8192) | (64,2048) | (64,8192) |
|---|---|---|---|---|---|---|---|
| each by itself | 13.9 | 18.8 | 17.3 | 30.0 | 76.8 | 97.8 | 283 |
| 1: prefix once; 40 expected at (16,8192) | 14.2 | 18.0 | 21.2 | 24.3 | 32.1 | 51.6 | 59.2 |
| 2: own parts do not wait for the prefix's; 24 expected | 12.7 | 15.8 | 17.9 | 23.7 | 30.0 | 50.3 | 57.6 |
| 3: one program of the prefix beside two of own parts, whoever joins waits | 11.5 | - | 18.7 | 20.0 | 27.0 | 47.4 | 55.8 |
| 4: both kinds of parts joined in one pass; 25.4 expected | 10.5 | 13.4 | 17.7 | 19.1 | 25.7 | 46.4 | 55.2 |
| 5: tiles of 64, two on their way | 10.0 | 13.3 | 17.8 | 18.8 | 24.4 | 46.0 | 53.6 |

| prefill (tokens, cached) | (512,0) | (512,9728) | (2048,0) | (2048,2048) | (8192,0) |
|---|---|---|---|---|---|
| FlashAttention-3 | 15.8 | 82.6 | 40.6 | 91.5 | 439 |
| 1: 128 rows, 2 stages | 17.4 | 315 | 59.9 | 172 | 886 |
| 2: block ids a tile ahead, 3 stages, 64 rows for short chunks (half of the misses in latency expected) | 13.1 | 150 | 50.8 | 130 | 653 |
"""

# ruff: noqa: E501 - the table

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from kernels.decode_plan import plan_decode
from kernels.launch import (
    DecodeLaunch,
    PrefillLaunch,
    decode_launch,
    prefill_launch,
    shared_launch,
)
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill, paged_prefill_batch
from kernels.prefill_tiles import ChunkPlace, tile_list
from kernels.shared_prefix_decode import plan_shared_prefix_decode, shared_prefix_decode

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 16, 8, 128, 16
TOKEN_BYTES = 2 * KV_HEADS * HEAD_DIM * 2
ROTATED_BYTES = 160e6
SCALE = HEAD_DIM**-0.5
DECODE_SHAPES = [
    (1, 512), (1, 4096), (1, 32768), (8, 512), (8, 4096), (8, 32768), (64, 512), (64, 4096),
    (16, 4096), (17, 4096), (8, 8192), (8, 9216), (32, 1024), (256, 512), (2, 512),
]  # fmt: skip
SHARED_SHAPES = [
    (4, 512), (4, 2048), (8, 2048), (8, 8192), (16, 512), (16, 2048), (16, 8192), (64, 2048),
    (64, 8192), (2, 4096), (3, 2048),
]  # fmt: skip
OWN_TOKENS = 512
PREFILL_SHAPES = [
    (tokens, cached)
    for tokens in (512, 2048, 8192)
    for cached in (0, tokens, 19 * tokens)
    if tokens + cached <= 40960
] + [(16, 8000), (64, 8000), (256, 8000), (256, 32000)]


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
    count = rotations(batch * context * TOKEN_BYTES)
    tables = [pool.tables(batch, context) for _ in range(count)]
    lengths = torch.full((batch,), context, device="cuda")
    query = torch.randn((batch, HEADS, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
    plan = plan_decode(lengths, HEADS, KV_HEADS, HEAD_DIM, context, launch=launch)

    def call(table: Tensor) -> Tensor:
        return paged_decode(query, pool.k, pool.v, table, lengths, SCALE, plan=plan)

    error = float("nan")
    out = call(tables[0])
    for row in (0, batch - 1):
        expected = dense(pool, query[row : row + 1], tables[0][row], context)
        error = (
            max(error, float((out[row] - expected[0]).abs().max()))
            if row
            else float((out[row] - expected[0]).abs().max())
        )
    spent = microseconds([lambda table=table: call(table) for table in tables])
    result: dict[str, object] = {
        "part": "decode", "batch": batch, "context": context, "us": round(spent, 2),
        "tb_s": round(batch * context * TOKEN_BYTES / spent / 1e6, 3), "error": round(error, 5),
    }  # fmt: skip
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


def decode_sweep() -> Iterator[DecodeLaunch]:
    base = decode_launch(HEADS, KV_HEADS, HEAD_DIM, torch.device("cuda", 0))
    for warps, stages, programs, early, chunk in [
        (2, 2, 4, True, 16), (2, 2, 4, False, 16), (2, 3, 3, True, 16), (2, 2, 5, True, 16),
        (2, 2, 6, True, 16), (2, 2, 4, True, 32), (2, 2, 4, True, 8), (4, 2, 4, True, 16),
        (4, 3, 3, True, 16), (4, 2, 5, True, 16), (2, 3, 2, True, 16), (4, 2, 4, True, 32),
        (1, 2, 4, True, 16), (2, 3, 4, True, 16),
    ]:  # fmt: skip
        yield replace(
            base,
            spread=programs * 132 // KV_HEADS,
            num_warps=warps,
            num_stages=stages,
            early=early,
            join_chunk=chunk,
        )


def sweep_decode(pool: Pool, until: float) -> None:
    shapes = [
        (1, 512), (1, 4096), (1, 32768), (8, 512), (8, 4096), (8, 32768), (16, 4096), (17, 4096),
        (64, 512), (64, 4096),
    ]  # fmt: skip
    for launch in decode_sweep():
        if time.monotonic() > until:
            return
        times = [decode_row(pool, *shape, launch) for shape in shapes]
        print(
            json.dumps(
                {
                    "sweep": "decode",
                    "tile": launch.tile,
                    "warps": launch.num_warps,
                    "stages": launch.num_stages,
                    "spread": launch.spread,
                    "early": launch.early,
                    "chunk": launch.join_chunk,
                    "us": [row["us"] for row in times],
                    "error": max(row["error"] for row in times),
                }
            ),
            flush=True,
        )


def sweep_shared(pool: Pool, until: float) -> None:
    for batch, prefix in [(16, 8192), (64, 8192), (4, 2048)]:
        base = shared_launch(batch, HEADS, KV_HEADS, HEAD_DIM, torch.device("cuda", 0))
        for (tile, warps, stages), programs in itertools.product(
            [(64, 4, 3), (64, 4, 2), (128, 4, 2), (128, 8, 2), (64, 2, 2)], [1, 2]
        ):
            if time.monotonic() > until:
                return
            spread = max(1, base.spread * programs // 2)
            launch = replace(base, tile=tile, num_warps=warps, num_stages=stages, spread=spread)
            row = shared_row(pool, batch, prefix, launch)
            print(json.dumps({"sweep": str(launch), **row}), flush=True)


def sweep_prefill(pool: Pool, until: float) -> None:
    for rows, tile, warps, stages in [
        (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3),
        (64, 128, 4, 2), (128, 64, 4, 2), (64, 32, 4, 3),
    ]:  # fmt: skip
        if time.monotonic() > until:
            return
        launch = PrefillLaunch(rows, tile, warps, stages)
        times = [
            prefill_row(pool, *shape, launch)
            for shape in [(512, 0), (512, 9728), (2048, 0), (8192, 0), (2048, 2048)]
        ]
        print(
            json.dumps(
                {
                    "sweep": str(launch),
                    "us": [row["us"] for row in times],
                    "error": max(row["error"] for row in times),
                }
            ),
            flush=True,
        )


def main() -> int:
    """Prints the rows of the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["decode", "shared", "prefill"])
    parser.add_argument("--sweep", action="store_true", help="other launch choices too")
    parser.add_argument("--fa3", type=Path, help="folder of the extension and its wrapper")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each sweep at most")
    arguments = parser.parse_args()
    fa3 = None
    if arguments.fa3 is not None:
        sys.path.insert(0, str(arguments.fa3))
        import fa3_peer as fa3
    torch.manual_seed(0)
    pool = Pool(40_960)
    rows: dict[str, tuple[Callable[..., dict[str, object]], list[tuple[int, int]]]] = {
        "decode": (lambda a, b: decode_row(pool, a, b, None, fa3), DECODE_SHAPES),
        "shared": (lambda a, b: shared_row(pool, a, b), SHARED_SHAPES),
        "prefill": (lambda a, b: prefill_row(pool, a, b, None, fa3), PREFILL_SHAPES),
    }
    sweeps = {"decode": sweep_decode, "shared": sweep_shared, "prefill": sweep_prefill}
    for part in arguments.parts:
        row, shapes = rows[part]
        for shape in shapes:
            try:
                print(json.dumps(row(*shape)), flush=True)
            except Exception as error:
                print(json.dumps({"part": part, "shape": shape, "failed": repr(error)[:600]}))
        if arguments.sweep:
            try:
                sweeps[part](pool, time.monotonic() + arguments.seconds)
            except Exception as error:
                print(json.dumps({"sweep": part, "failed": repr(error)[:600]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
