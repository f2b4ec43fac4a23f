"""Speed of the attention kernels on a GPU, beside FlashAttention-3 where its extension is at hand.

``python tests/benchmarks/attention_rates.py [--sweep] [--fa3 DIR] [PART …]`` prints one JSON line a
row; parts: decode, mixed, shared, prefill. Microseconds a call: replays of a CUDA graph of calls over
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
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

# As a script this folder would be the first on the path, not the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from kernels.launch import DecodeLaunch, PrefillLaunch, decode_launch, shared_launch
from tests.benchmarks.attention_rows import (
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    Pool,
    decode_row,
    mixed_row,
    prefill_row,
    shared_row,
)

DECODE_SHAPES = [
    (1, 512), (1, 4096), (1, 32768), (8, 512), (8, 4096), (8, 32768), (64, 512), (64, 4096),
    (16, 4096), (17, 4096), (8, 8192), (8, 9216), (32, 1024), (256, 512), (2, 512),
]  # fmt: skip
MIXED_SHAPES = [(steps,) for steps in (20, 150, 300, 450, 600, 700, 800, 880, 940, 980)]
SHARED_SHAPES = [
    (4, 512), (4, 2048), (8, 2048), (8, 8192), (16, 512), (16, 2048), (16, 8192), (64, 2048),
    (64, 8192), (2, 4096), (3, 2048),
]  # fmt: skip
PREFILL_SHAPES = [
    (tokens, cached)
    for tokens in (512, 2048, 8192)
    for cached in (0, tokens, 19 * tokens)
    if tokens + cached <= 40960
] + [(16, 8000), (64, 8000), (256, 8000), (256, 32000)]


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
    parser.add_argument("parts", nargs="*", default=["decode", "mixed", "shared", "prefill"])
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
    rows: dict[str, tuple[Callable[..., dict[str, object]], Sequence[tuple[int, ...]]]] = {
        "decode": (lambda a, b: decode_row(pool, a, b, None, fa3), DECODE_SHAPES),
        "mixed": (lambda steps: mixed_row(pool, steps, None, fa3), MIXED_SHAPES),
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
        if arguments.sweep and part in sweeps:
            try:
                sweeps[part](pool, time.monotonic() + arguments.seconds)
            except Exception as error:
                print(json.dumps({"sweep": part, "failed": repr(error)[:600]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
