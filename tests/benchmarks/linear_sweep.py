"""Looks for the fastest launches of ``skinny_linear`` on this GPU: ``python …/linear_sweep.py``.

Compiles many candidates in parallel, checks each against float32 and times it in a CUDA graph with
programmatic dependent launch, products that a norm follows together with it. What it finds goes
into ``kernels/launch_linear.py`` by hand.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from kernels.launch import next_power_of_2
from kernels.launch_linear import DotLaunch, HeldLaunch, LinearLaunch, VectorLaunch
from tests.benchmarks.glue_cases import (
    SHAPES,
    Operands,
    Product,
    make_operands,
    run_library,
    run_ours,
)
from tests.benchmarks.graph_timing import time_rotating

MULTIPROCESSORS = 132
SHARED_BYTES = 200_000
WRONG = 3e-2
"""An error above this is no rounding of bfloat16."""

MOST_HELD = 208
"""Registers that a thread has for weights, rows and sums."""

NAMES = {"DotLaunch": DotLaunch, "VectorLaunch": VectorLaunch, "HeldLaunch": HeldLaunch}
"""What the launches in a sweep's JSON are written with."""

Case = tuple[str, int]
Job = tuple[Any, ...]
"""``compile_one``: product, rows, launch."""


def vector_candidates(product: Product, rows: int) -> list[LinearLaunch]:
    """Those whose threads hold between 16 and 128 weights each."""
    if rows > 4:
        return []
    depth = next_power_of_2(product.inner)
    found: list[LinearLaunch] = []
    for outputs, warps in itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8)):
        held = outputs * depth * (2 if product.gated else 1) // (32 * warps)
        if 16 <= held <= 128 and product.outputs // outputs >= 60:
            found.append(VectorLaunch(outputs, warps))
    return found


def dot_candidates(product: Product, rows: int) -> list[LinearLaunch]:
    """Those that fill the device, fit into shared memory and keep enough loads under way."""
    if rows < 2 or product.norm:
        return []
    factor = 2 if product.gated else 1
    tiles = (8, 16) if rows <= 8 else (min(rows, 64), min(rows, 128))
    found: list[LinearLaunch] = []
    for tile, outputs, depth, splits, stages, warps, first in itertools.product(
        sorted(set(tiles)),
        (8, 16, 32, 64, 128),
        (64, 128, 256, 512),
        (1, 2, 3, 4, 6, 8) if product.joined else (1,),
        (2, 3, 4, 5, 6, 8),
        (1, 2, 4, 8),
        (False, True),
    ):
        programs = -(-product.outputs // outputs) * splits * -(-rows // tile)
        shared = stages * (tile + outputs * factor) * depth * 2
        resident = min(programs / MULTIPROCESSORS, SHARED_BYTES // shared)
        flying = (stages - 1) * outputs * factor * depth * 2 * resident
        steps = product.inner // (depth * splits)
        fits = (
            40 <= programs <= 900
            and shared <= SHARED_BYTES
            and (flying >= 20_000 or product.weight_bytes < 3e6)
            and product.inner % (depth * splits) == 0
            and steps >= 1
            and stages <= steps + 1
        )
        area = tile * outputs * factor
        sensible = (
            (outputs >= 16 if first else tile >= 16)
            and not (first and outputs < 64 and tile > 32)
            and not (warps == 8 and area < 2048)
            and not (warps < 4 and (tile > 32 or area > 512 * warps))
        )
        if fits and sensible:
            found.append(DotLaunch(tile, outputs, depth, splits, warps, stages, first))
    random.Random(rows).shuffle(found)
    return found


def held_candidates(product: Product, rows: int) -> list[LinearLaunch]:
    """Those that occupy the device, have some loads a thread under way, and do not spill."""
    if not 2 < rows <= 16 or product.norm:
        return []
    tile = 8 if rows <= 8 else 16
    factor = 2 if product.gated else 1
    whole = next_power_of_2(product.inner)
    found: list[LinearLaunch] = []
    for outputs, depth, warps in itertools.product(
        (8, 16, 32, 64), (256, 512, 1024, 2048), (1, 2, 4, 8)
    ):
        splits = -(-product.inner // depth)
        weights = outputs * factor
        held = (weights + tile) * depth // 2 // (32 * warps) + weights * tile // 32
        if (
            weights >= 16
            and (depth <= product.inner // 2 if product.joined else depth == whole)
            and depth >= 32 * warps
            and 40 <= held <= MOST_HELD
            and 60 <= -(-product.outputs // outputs) * splits <= 600
        ):
            found.append(HeldLaunch(tile, outputs, depth, splits, warps))
    return found


def compile_one(job: Job) -> str:
    name, rows, launch = job
    try:
        operands = make_operands(SHAPES[name], rows, 1, torch.bfloat16)
        run_ours(SHAPES[name], operands, 0, launch=launch, pdl=True)
        torch.cuda.synchronize()
    except Exception as error:  # a candidate that cannot be compiled is no candidate
        return f"{name} {rows} {launch}: {str(error)[-160:]}"
    return ""


def error_of(product: Product, operands: Operands, launch: LinearLaunch, **options: bool) -> float:
    """Largest error against float32, relative where values are above 1."""
    ours = run_ours(product, operands, 0, launch=launch, **options)
    expected = run_library(product, operands.widened(), 0)
    return max(
        float(((got.float() - want).abs() / want.abs().clamp(min=1.0)).max())
        for got, want in zip(ours, expected, strict=True)
    )


def compile_all(
    jobs: Sequence[Job], processes: int, limit_s: float, work: Callable[[Job], str] = compile_one
) -> set[Job]:
    """The jobs that were ready in time; ``work`` returns what is wrong with one."""
    started = time.monotonic()
    ready: set[Job] = set()
    pool = multiprocessing.get_context("spawn").Pool(processes)
    results = [(job, pool.apply_async(work, (job,))) for job in jobs]
    for job, result in results:
        try:
            message = result.get(timeout=max(limit_s - (time.monotonic() - started), 0.001))
        except multiprocessing.TimeoutError:
            continue
        if message:
            print("!", message, flush=True)
        else:
            ready.add(job)
    pool.terminate()
    print(len(ready), "of", len(jobs), "compiled in", round(time.monotonic() - started, 1), "s")
    return ready


def sweep_case(name: str, rows: int, launches: list[LinearLaunch]) -> dict[str, Any]:
    """Times of one product at one number of rows, the fastest first."""
    product = SHAPES[name]
    operands = make_operands(product, rows, None, torch.bfloat16)
    count = operands.count

    def seconds(call: Any) -> float:
        return time_rotating(call, count)

    plain = product.plain()
    cublas = seconds(lambda i: run_library(plain, operands, i))
    library = seconds(lambda i: run_library(product, operands, i, pdl=True))
    times = []
    for launch in launches:
        try:
            error = error_of(product, operands, launch, pdl=True)
            if not error < WRONG:
                print("! WRONG", name, rows, launch, error)
                continue
            times.append(
                (seconds(lambda i, c=launch: run_ours(product, operands, i, launch=c, pdl=True)),
                 error, launch)
            )  # fmt: skip
        except Exception as failure:  # one candidate's failure must not end the sweep
            print("!", name, rows, launch, str(failure)[-120:])
    times.sort(key=lambda entry: entry[0])
    print(
        f"{name} rows {rows}: cuBLAS {cublas * 1e6:.2f} us, with glue {library * 1e6:.2f}; of "
        f"{len(times)}:",
        flush=True,
    )
    for duration, error, launch in times[:4]:
        rate = product.weight_bytes / duration / 1e12
        print(f"   {duration * 1e6:6.2f} us {rate:.2f} TB/s err {error:.1e} {launch}")
    return {
        "shape": name,
        "rows": rows,
        "cublas_us": cublas * 1e6,
        "library_us": library * 1e6,
        "ours": [(duration * 1e6, error, repr(launch)) for duration, error, launch in times],
    }


def parse_cases(text: str) -> list[Case]:
    """``qkv:1,8 o:1`` as pairs."""
    return [
        (name, int(rows))
        for part in text.split()
        for name, _, many in [part.partition(":")]
        for rows in many.split(",")
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", help="such as 'qkv:1,8 o:1'")
    parser.add_argument("--dots", type=int, default=40, help="candidates with tensor cores a case")
    parser.add_argument("--seeds", type=Path, help="JSON of an earlier sweep: its best come first")
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--compile-s", type=float, default=60.0)
    parser.add_argument("--deadline-s", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    started = time.monotonic()
    earlier: dict[Case, list[LinearLaunch]] = {}
    if arguments.seeds:
        for entry in json.loads(arguments.seeds.read_text()):
            earlier[entry["shape"], entry["rows"]] = [
                eval(text, NAMES) for _, _, text in entry["ours"][:15]
            ]
    launches: dict[Case, list[LinearLaunch]] = {}
    for name, rows in parse_cases(arguments.cases):
        dots = [*earlier.get((name, rows), []), *dot_candidates(SHAPES[name], rows)]
        others = [f(SHAPES[name], rows) for f in (vector_candidates, held_candidates)]
        chosen = [*itertools.chain.from_iterable(others), *dots[: arguments.dots]]
        launches[name, rows] = list(dict.fromkeys(chosen))
    jobs = [(*case, launch) for case, chosen in launches.items() for launch in chosen]
    ready = compile_all(jobs, arguments.processes, arguments.compile_s)
    results: list[dict[str, Any]] = []
    for case, chosen in launches.items():
        if time.monotonic() - started > arguments.deadline_s:
            print("out of time before", case)
            break
        results.append(sweep_case(*case, [c for c in chosen if (*case, c) in ready]))
        if arguments.json:
            arguments.json.write_text(json.dumps(results))
    print("sweep took", round(time.monotonic() - started, 1), "s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
