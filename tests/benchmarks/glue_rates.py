"""Times of the kernels beside attention: ``python tests/benchmarks/glue_rates.py`` on a GPU.

Each is timed by the replay of a CUDA graph of many launches, products over weights that do not fit
into the level-2 cache; the gap between two launches is part of the time. One JSON line a row. Whole
layers: ``layer_chain.py``; candidates: ``linear_sweep.py``.

Measured on one H200 (torch 2.11, Triton 3.6), bfloat16, Qwen3-0.6B shape, in microseconds. A layer
is qkv, o, gate_up and down with their norms, gate and sums, no attention; cuBLAS with a kernel for
each of these takes 38.3 at 1 row, 32.0 at 8, 34.7 at 64. Expected (– where nothing had been written
down) and found:

| version | exp. | found |
|---|---|---|
| 1 row by multiply-adds, all weights of a program loaded at once, norm inside | 13.9 | 16.1 |
| the same, weights asked for before the wait of a dependent launch | 11 | 12.4–13.3 (a) |
| 2 rows so | – | 17.0 |
| 8 rows so, no dependent launch | – | 44 (b) |
| 8 rows on tensor cores, all weights loaded at once, norm inside | 15 | 54.5 (c) |
| 8 rows, pipelined loop, dependent launch | 16 | 23.1 (d) |
| 16 rows, likewise | – | 22.9 (d) |
| 64 rows, likewise | 21 | 24.6 (d) |
| 64 rows, weights also asked for into the level-2 cache before the wait | – | 30.2 (e) |
| o and down split, joined by the norm that comes next | 18 at 8 rows, 22 at 64 | 25.3, 23.6 |
| next kernel let start after the wait | – | 18.8, 19.1, 22.7, 23.9 at 4, 8, 16, 64 (f) |
| 4, 8, 16 rows, weights asked into the level-2 cache before the wait | 1 less | 18.9, 18.7, – (e) |
| the same, weights in registers before the wait | 15.3, 15.5, 17 | 13.6, 14.8, 17.6 (g) |
| 65 to 128 rows by our own tiles | 31 | 27.7 at 96, 28.3 at 128; cuBLAS 36.7 |

(a) Programs of 64 weights a thread, about 512 of them; alone, smaller ones win. (b) Bound by
arithmetic: tensor cores from 3 rows on. (c) Registers reach the tensor cores through shared memory:
dropped; so was the norm inside the loop, which costs 2–5 a product; one of its own takes 1–1.7.
(d) o and down were split and joined by the last program to arrive, whose counter costs about 2
each. (e) Dropped. (f) So from 9 to
16 rows; see ``dependent_launch.py``. (g) As ``chain_search.py`` found, in whose run the launches
before took 18.8, 19.1 and 22.7; up to 8 rows the next kernel starts at the start.

Alone, 1 / 64 / 16,384 rows: ``rms_norm`` of 1024 1.6 / 1.7 / 18.5 (torch 2.3 / 2.4 / 23.9),
``add_rms_norm`` 1.7 / 1.8 / 34.0 (3.9 TB/s), ``silu_and_mul`` of 3072 1.4 / 1.7 / –,
``qkv_rope_store`` with norm 1.5 / 1.7 / 96 (2.8 TB/s), expected 2.3 / 2.5 / 63. ``copy_blocks`` of
1 / 8 / 64 / 256 blocks in 28 layers 2.2 / 6.5 / 68 / 246 (3.8 TB/s).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.copy_blocks import block_caches, copy_blocks
from kernels.gate_and_mul import silu_and_mul
from kernels.qkv_rope_store import qkv_rope_store
from kernels.reference.rope import rope_table
from kernels.rms_norm import add_rms_norm, rms_norm
from tests.benchmarks.glue_cases import EPS, SHAPES, make_operands, run_library, run_ours
from tests.benchmarks.graph_timing import time_rotating

KIND = torch.bfloat16
LAUNCHES = 16
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


def say(kernel: str, seconds: float, moved: int, **more: object) -> None:
    row = {
        "kernel": kernel,
        "us": round(seconds * 1e6, 2),
        "tb_s": round(moved / seconds / 1e12, 3),
    }
    print(json.dumps({**row, **more}), flush=True)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=KIND, device="cuda")


def time_call(kernel: Callable[..., object], *args: object, **options: object) -> float:
    return time_rotating(lambda _: kernel(*args, **options), LAUNCHES)


def norms() -> None:
    for size, rows, pdl in itertools.product((576, 1024, 4096), (1, 8, 64, 16384), (False, True)):
        weight, x, residual = draw(size), draw(rows, size), draw(rows, size)
        theirs = time_call(F.rms_norm, x, (size,), weight, EPS)
        alone = time_call(rms_norm, x, weight, EPS, pdl=pdl)
        summed = time_call(add_rms_norm, x, residual, weight, EPS, pdl=pdl)
        more = {"rows": rows, "size": size, "pdl": pdl}
        say("rms_norm", alone, 2 * x.nbytes, torch_us=round(theirs * 1e6, 2), **more)
        say("add_rms_norm", summed, 4 * x.nbytes, **more)


def gates() -> None:
    for rows, pdl in itertools.product((1, 8, 64, 4096), (False, True)):
        gate_up = draw(rows, 6144)
        seconds = time_call(silu_and_mul, gate_up, pdl=pdl)
        say("silu_and_mul", seconds, gate_up.nbytes * 3 // 2, rows=rows, size=3072, pdl=pdl)


def rotations() -> None:
    inv_freq = 1e6 ** -(torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    cos, sin = (table.cuda() for table in rope_table(inv_freq, 4096, KIND))
    weights = draw(24, 128)
    kinds = itertools.product((1, 8, 64, 512, 4096, 16384), (None, weights), (False, True))
    for tokens, norm, pdl in kinds:
        qkv = draw(tokens, 4096)
        pool = [draw(tokens // 16 + 2, 16, 8, 128) for _ in range(2)]
        positions = torch.randint(0, 4096, (tokens,), device="cuda")
        slots = torch.randperm(tokens + 16, device="cuda")[:tokens]
        args = (qkv, cos, sin, positions, *pool, slots)
        seconds = time_call(qkv_rope_store, *args, norm=norm, eps=EPS, pdl=pdl)
        more = {"tokens": tokens, "norm": norm is not None, "pdl": pdl}
        say("qkv_rope_store", seconds, 2 * qkv.nbytes, **more)


def copies() -> None:
    caches = [draw(600, 16, 8, 128) for _ in range(56)]
    everywhere = block_caches(caches[:28], caches[28:])
    for pairs in (1, 8, 64, 256):
        blocks = torch.randperm(600, device="cuda")[: 2 * pairs]
        source, destination = blocks[:pairs].contiguous(), blocks[pairs:].contiguous()
        seconds = time_call(copy_blocks, everywhere, source, destination)
        say("copy_blocks", seconds, 2 * pairs * 56 * 32768, pairs=pairs, layers=28)


def product(name: str, rows: int) -> None:
    case = SHAPES[name]
    operands = make_operands(case, rows, None, KIND)
    plain, count = case.plain(), operands.count
    times = {
        "cublas_us": time_rotating(lambda i: run_library(plain, operands, i), count),
        "cublas_with_glue_us": time_rotating(
            lambda i: run_library(case, operands, i, pdl=True), count
        ),
        "without_pdl_us": time_rotating(lambda i: run_ours(case, operands, i), count),
    }
    seconds = time_rotating(lambda i: run_ours(case, operands, i, pdl=True), count)
    rounded = {what: round(each * 1e6, 2) for what, each in times.items()}
    say(name, seconds, case.weight_bytes, rows=rows, **rounded)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", nargs="*", help="norms gates rotations copies, or names of products"
    )
    arguments = parser.parse_args()
    parts = {"norms": norms, "gates": gates, "rotations": rotations, "copies": copies}
    wanted = arguments.what or [*parts, *SHAPES]
    for part, measure in parts.items():
        if part in wanted:
            measure()
    for name, rows in itertools.product([name for name in wanted if name in SHAPES], ROWS):
        product(name, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
