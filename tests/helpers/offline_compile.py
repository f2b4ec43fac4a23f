"""Compiles launches of Triton kernels for a GPU that is not there.

``python …/offline_compile.py [CAPABILITY]``, 90 if none is given; for others what is chosen for
desktop GPUs is compiled. Triton's interpreter takes much that its compiler refuses. Prints one JSON
line a launch: the kernel's name, its shared memory in bytes, how many instructions read from there,
how many read global and write shared memory before the kernel waits for the one before it, how many
of ``EXCHANGES`` are in loops, and those of ``INSTRUCTIONS`` that it has.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
# Before Triton is imported: else it interprets.
os.environ.pop("TRITON_INTERPRET", None)

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from kernels import launch_linear

CAPABILITY = int(sys.argv[1]) if len(sys.argv) > 1 else 90
DEPENDENT = CAPABILITY >= 90
DESKTOP_SHARED = 99 * 1024
EXCHANGES = ("ld.shared", "st.shared", "ldmatrix", "stmatrix", "shfl.sync")
INSTRUCTIONS = (
    "wgmma",
    "mma.sync",
    "griddepcontrol.launch_dependents",
    "griddepcontrol.wait",
)


def _exchanges_in_loops(text: str) -> int:
    """How many instructions in loops pass on values from thread to thread."""
    count = 0
    for label in re.finditer(r"^(\$L__BB\w+):", text, re.MULTILINE):
        back = list(re.finditer(rf"bra(\.uni)?\s+{re.escape(label[1])};", text[label.end() :]))
        if back:
            body = text[label.end() : label.end() + back[-1].start()]
            count += sum(body.count(name) for name in EXCHANGES)
    return count


class _NoDriver:
    """What Triton asks of a driver before it compiles."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def _compile_only(kernel: Any, grid: Any) -> Any:
    def compile_it(*args: Any, **options: Any) -> None:
        compiled = kernel.run(*args, grid=grid, warmup=True, **options)
        text = compiled.asm["ptx"]
        found = [name for name in INSTRUCTIONS if name in text]
        before_wait = text.partition("griddepcontrol.wait")[0]
        facts = {
            "kernel": kernel.__name__,
            "shared": compiled.metadata.shared,
            "shared_loads": text.count("ld.shared"),
            "early_loads": before_wait.count("ld.global"),
            "early_shared_stores": before_wait.count("st.shared"),
            "loop_exchanges": _exchanges_in_loops(text),
            "found": found,
        }
        print(json.dumps(facts), flush=True)

    return compile_it


def _products() -> None:
    from kernels.launch_linear import HeldLaunch, fixed_launch
    from kernels.skinny_linear import linear_add_rms_norm, skinny_linear

    kind = torch.bfloat16
    for rows in (1, 7, 16, 32, 64):
        x, weight = torch.zeros((rows, 1024), dtype=kind), torch.zeros((2048, 1024), dtype=kind)
        bias, residual = weight[:, 0].contiguous(), torch.zeros((rows, 2048), dtype=kind)
        skinny_linear(x, weight, bias, residual=residual, norm_weight=weight[0], pdl=DEPENDENT)
        skinny_linear(x, weight, bias, gate="silu", pdl=DEPENDENT)
        linear_add_rms_norm(x, weight, bias, residual, bias, 1e-6, pdl=DEPENDENT)
    skinny_linear(x, weight, launch=fixed_launch(1024, kind), gate="gelu_tanh", pdl=DEPENDENT)
    whole, part = HeldLaunch(16, 16, 1024, 1, 4), HeldLaunch(8, 16, 512, 2, 2)
    skinny_linear(x, weight, bias, residual=residual, launch=whole, pdl=DEPENDENT)
    skinny_linear(x, weight, bias, gate="silu", launch=whole, pdl=DEPENDENT)
    linear_add_rms_norm(x, weight, bias, residual, bias, 1e-6, launch=part, pdl=DEPENDENT)


def _glue() -> None:
    from kernels.copy_blocks import block_caches, copy_blocks
    from kernels.gate_and_mul import gelu_and_mul, silu_and_mul
    from kernels.qkv_rope_store import qkv_rope_store
    from kernels.rms_norm import add_rms_norm, rms_norm

    kind = torch.bfloat16
    x = torch.zeros((3, 576), dtype=kind)
    rms_norm(x, x[0], 1e-6, pdl=DEPENDENT)
    add_rms_norm(x, x, x[0], 1e-6, inplace=True, pdl=DEPENDENT)
    silu_and_mul(x, pdl=DEPENDENT)
    gelu_and_mul(x, pdl=DEPENDENT)
    pool = [torch.zeros((2, 16, 2, 80), dtype=kind) for _ in range(2)]
    cos, qkv = torch.zeros((9, 80), dtype=kind), torch.zeros((3, 10 * 80), dtype=kind)
    places, norm = torch.arange(3), torch.zeros((8, 80), dtype=kind)
    for weights in (None, norm):
        qkv_rope_store(qkv, cos, cos, places, *pool, places, norm=weights, pdl=DEPENDENT)
    copy_blocks(block_caches(pool[:1], pool[1:]), places[:1], places[1:2])


def _attention() -> None:
    from kernels.launch import PrefillLaunch
    from kernels.paged_decode import paged_decode
    from kernels.paged_prefill import paged_prefill, paged_prefill_batch
    from kernels.shared_prefix_decode import shared_prefix_decode

    kind = torch.bfloat16
    pool = torch.zeros((8, 16, 8, 128), dtype=kind)
    query, tables = torch.zeros((3, 16, 128), dtype=kind), torch.zeros((3, 4), dtype=torch.int64)
    lengths = torch.tensor([20, 30, 40])
    paged_decode(query, pool, pool, tables, lengths, 0.1)
    paged_decode(query, pool, pool, tables, lengths, 0.1, window=16)
    members, shared = torch.tensor([[0, 1]]), torch.tensor([1])
    shared_prefix_decode(query, pool, pool, tables, lengths, members, shared, 0.1)
    paged_prefill(query, pool, pool, tables[0], 20, 0.1)
    tiles = torch.zeros((2, 8), dtype=torch.int32)
    for rows, window in ((64, None), (64, 16), (128, None)):
        launch = PrefillLaunch(rows, 64, 8 if rows > 64 else 4, 3, spread=8 if rows < 128 else 0)
        paged_prefill_batch(query, pool, pool, tables.view(-1), tiles, 0.1, launch, window=window)


def _grouped() -> None:
    from kernels.grouped_linear import expand_grouped, grouped_linear
    from kernels.launch_grouped import (
        VECTOR_ROWS,
        fixed_grouped_launch,
        tensor_launch,
        vector_launch,
    )

    kind = torch.bfloat16
    for bits, group, rows, outputs in (
        (4, 32, 1, 8192),
        (4, 32, 2, 2048),
        (8, 32, 1, 2040),
        (8, 16, 2, 8192),
        (4, 32, 64, 8192),
        (8, 32, 16, 2048),
        (8, 16, 5, 2040),
    ):
        codes = torch.zeros((outputs, 1024 * bits // 8), dtype=torch.uint8)
        scale = torch.zeros((outputs, 1024 // group), dtype=torch.float16)
        x = torch.zeros((rows, 1024), dtype=kind)
        residual = torch.zeros((rows, outputs), dtype=kind)
        if rows <= VECTOR_ROWS:
            launches = [vector_launch(rows, 1024, bits), fixed_grouped_launch(bits)]
            expand_grouped(codes, scale, scale, bits, kind)
        else:
            launches = [tensor_launch(rows, outputs, 1024, bits)]
        for launch in launches:
            grouped_linear(
                x,
                codes,
                scale,
                scale,
                bits=bits,
                residual=residual,
                launch=launch,
                pdl=DEPENDENT,
            )


def _largest() -> None:
    """What takes the most shared memory: wide heads, many rows, 32 bits."""
    from kernels.launch import prefill_launch
    from kernels.paged_decode import paged_decode
    from kernels.paged_prefill import paged_prefill_batch

    tiles = torch.zeros((2, 8), dtype=torch.int32)
    for head_dim, kind in ((128, torch.bfloat16), (256, torch.bfloat16), (64, torch.float32)):
        pool = torch.zeros((8, 16, 8, head_dim), dtype=kind)
        query, tables = torch.zeros((3, 16, head_dim), dtype=kind), torch.zeros((3, 4)).long()
        paged_decode(query, pool, pool, tables, torch.tensor([20, 30, 40]), 0.1)
        launch = prefill_launch(2048, 2, head_dim, kind.itemsize, query.device)
        paged_prefill_batch(query, pool, pool, tables.view(-1), tiles, 0.1, launch)


def _drawing() -> None:
    from kernels.reference.sample import RowParameters, pack
    from kernels.sample import sample

    logits = torch.zeros((2, 5000), dtype=torch.bfloat16)
    rows = [RowParameters(seed=1, output_index=0, temperature=1.0, top_p=0.9)] * 2
    parameters = torch.from_numpy(pack(rows))
    for filtered in (False, True):
        sample(logits, parameters, filtered=filtered, logprobs=filtered)


def main() -> None:
    driver.set_active(_NoDriver())
    JITFunction.__getitem__ = _compile_only
    if CAPABILITY != 90:
        launch_linear.shared_bytes = lambda _device: DESKTOP_SHARED
        for part in (_products, _grouped, _largest):
            part()
        return
    for part in (_products, _glue, _grouped, _attention, _drawing):
        part()


if __name__ == "__main__":
    main()
