"""Looks for the launches that make whole layers of 3 to 16 rows fast: ``python …/chain_search.py``.

Times chains of ``layer_chain.py`` with one product's launch changed at a time: those that hold the
weights in registers, and today's with other splits; each with the next kernel let start after the
wait or at the start. One JSON line for each number of rows has today's plan and the best one, timed
in turns, and the best launches of every product with the microseconds a layer that they were found
at.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from kernels import dependent_launch
from kernels.dependent_launch import AFTER_WAIT, AT_START
from kernels.launch_linear import DotLaunch, LinearLaunch
from tests.benchmarks.glue_cases import LAYER, SHAPES, make_operands
from tests.benchmarks.layer_chain import Chain, chosen
from tests.benchmarks.linear_sweep import WRONG, Job, compile_all, compile_one, error_of
from tests.benchmarks.linear_sweep import held_candidates as held

Plan = dict[str, LinearLaunch | None]
Found = dict[str, list[tuple[float, LinearLaunch | None]]]
SPLITS = (1, 2, 3, 4, 6, 8)
KEPT = 4
"""Launches of a product that are tried again when the others have changed."""


@contextmanager
def next_starting(when: int) -> Iterator[None]:
    """Every kernel lets the next one start so, however many rows it has."""
    few = dependent_launch._FEW_ROWS
    dependent_launch._FEW_ROWS = range(1 << 30) if when == AFTER_WAIT else range(0)
    try:
        yield
    finally:
        dependent_launch._FEW_ROWS = few


def candidates(name: str, rows: int) -> list[LinearLaunch]:
    """Today's launch first."""
    today, product = chosen(name, rows), SHAPES[name]
    found: list[LinearLaunch] = [] if today is None else [today]
    if isinstance(today, DotLaunch):
        for splits in SPLITS if product.joined else (1,):
            other = replace(today, splits=splits)
            if product.inner >= 2 * today.depth * splits:
                found.append(other)
    return list(dict.fromkeys([*found, *held(product, rows)]))


def compile_started(job: Job) -> str:
    """``compile_one`` of product, rows, launch, and when the next kernel starts."""
    *case, when = job
    with next_starting(when):
        return compile_one(tuple(case))


def right(name: str, rows: int, launches: list[LinearLaunch]) -> list[LinearLaunch]:
    """Those whose results are those of float32 but for rounding."""
    operands = make_operands(SHAPES[name], rows, 1, torch.bfloat16)
    errors = [error_of(SHAPES[name], operands, launch, pdl=True) for launch in launches]
    for launch, error in zip(launches, errors, strict=True):
        if not error < WRONG:
            print("! WRONG", name, rows, launch, error)
    return [launch for launch, error in zip(launches, errors, strict=True) if error < WRONG]


def search(
    chain: Chain, choices: Mapping[str, list[LinearLaunch]], ends: float
) -> tuple[Plan, float, Found]:
    """The best plan, its seconds a layer, and the best launches of each product."""
    plan: Plan = {name: chosen(name, chain.rows) for name in LAYER}
    best = chain.time(plan, True)
    found: Found = {}
    for again in (False, True):
        for name in LAYER:
            wanted = [launch for _, launch in found[name][:KEPT]] if again else choices[name]
            times: list[tuple[float, LinearLaunch | None]] = []
            for launch in wanted:
                if time.monotonic() > ends:
                    print("out of time in", name, chain.rows)
                    break
                duration = chain.time({**plan, name: launch}, True)
                times.append((duration, launch))
                if duration < best:
                    plan, best = {**plan, name: launch}, duration
            found[name] = sorted(times, key=lambda entry: entry[0]) or found.get(name, [])
    return plan, best, found


def in_turns(chain: Chain, plans: list[tuple[int, Plan]], turns: int = 5) -> list[float]:
    """Median seconds a layer of each (when the next starts, plan)."""
    times: list[list[float]] = [[] for _ in plans]
    for _ in range(turns):
        for (when, plan), seen in zip(plans, times, strict=True):
            with next_starting(when):
                seen.append(chain.time(plan, True))
    return [statistics.median(seen) for seen in times]


def report(rows: int, ready: set[Job], ends: float) -> None:
    chain = Chain(rows)
    today: Plan = {name: chosen(name, rows) for name in LAYER}
    plans, details = [(AFTER_WAIT, today)], {}
    for when in (AFTER_WAIT, AT_START):
        with next_starting(when):
            choices = {name: right(name, rows, among(ready, name, rows, when)) for name in LAYER}
            plan, _, found = search(chain, choices, ends)
        plans.append((when, plan))
        details[when] = {
            name: [(round(seconds * 1e6, 2), repr(launch)) for seconds, launch in times[:5]]
            for name, times in found.items()
        }
    times = in_turns(chain, plans)
    best = min(range(1, len(plans)), key=lambda i: times[i])
    when, plan = plans[best]
    with next_starting(when):
        ours, again = chain.run(plan, True), chain.run(plan, True)
    theirs, before = chain.run(None, False), chain.run(today, True)
    row = {
        "rows": rows,
        "today_us_a_layer": round(times[0] * 1e6, 2),
        "after_wait": round(times[1] * 1e6, 2),
        "at_start": round(times[2] * 1e6, 2),
        "difference_from_cublas": round(float((ours.float() - theirs.float()).abs().max()), 3),
        "of_today": round(float((before.float() - theirs.float()).abs().max()), 3),
        "same_bits": torch.equal(ours, again),
        "today": {name: repr(launch) for name, launch in today.items()},
        "best": {name: repr(launch) for name, launch in plan.items()},
    }
    print(json.dumps(row), flush=True)
    for start, products in details.items():
        for name, launches in products.items():
            print("  ", "after wait" if start == AFTER_WAIT else "at start", name, *launches)


def tile(rows: int) -> int:
    """The number of rows that compiles the same kernels."""
    return 8 if rows <= 8 else 16


def among(ready: set[Job], name: str, rows: int, when: int) -> list[LinearLaunch]:
    compiled = tile(rows)
    return [c for c in candidates(name, rows) if (name, compiled, c, when) in ready]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="16,8,4")
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--compile-s", type=float, default=60.0)
    parser.add_argument("--deadline-s", type=float, default=112.0)
    arguments = parser.parse_args()
    started = time.monotonic()
    sizes = [int(part) for part in arguments.rows.split(",")]
    jobs = [
        (name, rows, launch, when)
        for when in (AFTER_WAIT, AT_START)
        for rows in dict.fromkeys(map(tile, sizes))
        for name in LAYER
        for launch in candidates(name, rows)
    ]
    ready = compile_all(jobs, arguments.processes, arguments.compile_s, compile_started)
    for i, rows in enumerate(sizes):
        now = time.monotonic()
        left = started + arguments.deadline_s - now
        if left < 5:
            print("out of time before", rows)
            break
        # The sizes to come get as much time each.
        report(rows, ready, now + left * 0.8 / (len(sizes) - i))
        torch.cuda.empty_cache()
    print("took", round(time.monotonic() - started, 1), "s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
