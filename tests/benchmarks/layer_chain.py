"""Times whole layers without attention, as a CUDA graph: ``python …/layer_chain.py``.

Norm, packed product, rotation and KV write, output product, norm, gated product, down product of
the Qwen3-0.6B shape, each with weights of its own, one layer after the other. A launch that is
fastest alone need not be so between others: with a sweep's result its best are tried in turn;
without, the launches that ``launch_linear.py`` chooses are timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from kernels.launch_linear import LinearLaunch, linear_launch
from kernels.qkv_rope_store import qkv_rope_store
from kernels.reference.rope import rope_table
from kernels.rms_norm import rms_norm
from tests.benchmarks.glue_cases import (
    EPS,
    LAYER,
    SHAPES,
    Operands,
    make_operands,
    run_library,
    run_ours,
)
from tests.benchmarks.graph_timing import capture, replay_median
from tests.benchmarks.linear_sweep import NAMES

LAYERS = 28
HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128

Plan = Mapping[str, LinearLaunch | None]
Choices = dict[tuple[str, int], list[LinearLaunch | None]]


class Chain:
    """The layers of one number of rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        kind = torch.bfloat16
        self.operands = {name: make_operands(SHAPES[name], rows, LAYERS, kind) for name in LAYER}
        inv_freq = 1e6 ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        self.tables = [table.cuda() for table in rope_table(inv_freq, 4096, kind)]
        shape = (rows // 16 + 2, 16, KV_HEADS, HEAD_DIM)
        self.pool = [torch.zeros(shape, dtype=kind, device="cuda") for _ in range(2)]
        self.slots = torch.arange(rows, device="cuda")
        self.head_norm = torch.rand((HEADS + KV_HEADS, HEAD_DIM), dtype=kind, device="cuda")

    def run(self, plan: Plan | None, pdl: bool) -> Tensor:
        """All layers; with cuBLAS where there is no plan."""
        first = self.operands["o"]
        hidden, normed = first.residual, rms_norm(first.residual, first.next_norm_weight, EPS)
        for layer in range(LAYERS):
            qkv, _ = self._product("qkv", layer, normed, hidden, plan, pdl)
            query = qkv_rope_store(
                qkv, *self.tables, self.slots, *self.pool, self.slots,
                norm=self.head_norm, eps=EPS, pdl=pdl,
            )  # fmt: skip
            hidden, normed = self._product("o", layer, query.flatten(1), hidden, plan, pdl)
            gated, _ = self._product("gate_up", layer, normed, hidden, plan, pdl)
            hidden, normed = self._product("down", layer, gated, hidden, plan, pdl)
        return normed

    def _product(
        self, name: str, layer: int, x: Tensor, residual: Tensor, plan: Plan | None, pdl: bool
    ) -> tuple[Tensor, Tensor]:
        operands: Operands = self.operands[name].with_rows(x, residual)
        if plan is None or plan[name] is None:
            return run_library(SHAPES[name], operands, layer, pdl=pdl)
        return run_ours(SHAPES[name], operands, layer, launch=plan[name], pdl=pdl)

    def time(self, plan: Plan | None, pdl: bool) -> float:
        """Seconds a layer."""
        return replay_median(capture(lambda: self.run(plan, pdl))) / LAYERS


def improve(
    chain: Chain, choices: Mapping[str, list[LinearLaunch | None]]
) -> tuple[dict[str, LinearLaunch | None], float]:
    """Changes one product's launch at a time, as long as that helps."""
    plan = {name: choices[name][0] for name in LAYER}
    best = chain.time(plan, True)
    for name in LAYER:
        for other in choices[name][1:]:
            changed = {**plan, name: other}
            duration = chain.time(changed, True)
            if duration < best:
                plan, best = changed, duration
    return plan, best


def report(rows: int, choices: Mapping[str, list[LinearLaunch | None]]) -> None:
    chain = Chain(rows)
    library, library_pdl = chain.time(None, False), chain.time(None, True)
    plan, best = improve(chain, choices)
    plain = chain.time(plan, False)
    ours, again, theirs = chain.run(plan, True), chain.run(plan, True), chain.run(None, False)
    difference = float((ours.float() - theirs.float()).abs().max())
    row: dict[str, Any] = {
        "rows": rows,
        "us_a_layer": round(best * 1e6, 2),
        "without_pdl": round(plain * 1e6, 2),
        "cublas": round(library * 1e6, 2),
        "cublas_pdl_glue": round(library_pdl * 1e6, 2),
        "difference": round(difference, 3),
        "same_bits": torch.equal(ours, again),
        "plan": {name: repr(launch) for name, launch in plan.items()},
    }
    print(json.dumps(row), flush=True)


def swept(path: Path, tried: int) -> Choices:
    """The best launches of a sweep, and the library."""
    return {
        (entry["shape"], entry["rows"]): [
            *(eval(text, NAMES) for _, _, text in entry["ours"][:tried]),
            None,
        ]
        for entry in json.loads(path.read_text())
    }


def chosen(name: str, rows: int) -> LinearLaunch | None:
    case = SHAPES[name]
    return linear_launch(
        rows,
        case.outputs,
        case.inner,
        case.gated,
        case.joined,
        torch.bfloat16,
        torch.device("cuda", 0),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path, nargs="?", help="JSON of linear_sweep.py")
    parser.add_argument("--rows", default="1,8,64,2,16,32,128,256")
    parser.add_argument("--tried", type=int, default=5, help="launches of each product")
    parser.add_argument("--deadline-s", type=float, default=60.0)
    arguments = parser.parse_args()
    started = time.monotonic()
    found: Choices = {}
    if arguments.sweep is not None:
        found = swept(arguments.sweep, arguments.tried)
    for rows in map(int, arguments.rows.split(",")):
        if time.monotonic() - started > arguments.deadline_s:
            print("out of time before", rows)
            break
        if arguments.sweep is None:
            report(rows, {name: [chosen(name, rows)] for name in LAYER})
        elif all((name, rows) in found for name in LAYER):
            report(rows, {name: found[name, rows] for name in LAYER})
    print("took", round(time.monotonic() - started, 1), "s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
