"""Compiles launches of Triton kernels for a GPU that is not there: ``python …/offline_compile.py``.

Triton's interpreter takes much that its compiler refuses. Prints one JSON line a launch: the
kernel's name, its shared memory in bytes and those of ``INSTRUCTIONS`` that it has.
"""

from __future__ import annotations

import json
import os
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

CAPABILITY = 90
INSTRUCTIONS = (
    "wgmma",
    "mma.sync",
    "griddepcontrol.launch_dependents",
    "griddepcontrol.wait",
)


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
        shared = compiled.metadata.shared
        print(json.dumps({"kernel": kernel.__name__, "shared": shared, "found": found}), flush=True)

    return compile_it


def _products() -> None:
    from kernels.launch_linear import fixed_launch
    from kernels.skinny_linear import linear_add_rms_norm, skinny_linear

    kind = torch.bfloat16
    for rows in (1, 7, 16, 32, 64):
        x, weight = torch.zeros((rows, 1024), dtype=kind), torch.zeros((2048, 1024), dtype=kind)
        bias, residual = weight[:, 0].contiguous(), torch.zeros((rows, 2048), dtype=kind)
        skinny_linear(x, weight, bias, residual=residual, norm_weight=weight[0], pdl=True)
        skinny_linear(x, weight, bias, gate="silu", pdl=True)
        linear_add_rms_norm(x, weight, bias, residual, bias, 1e-6, pdl=True)
    skinny_linear(x, weight, launch=fixed_launch(1024, kind), gate="gelu_tanh", pdl=True)


def _glue() -> None:
    from kernels.copy_blocks import block_caches, copy_blocks
    from kernels.gate_and_mul import gelu_and_mul, silu_and_mul
    from kernels.qkv_rope_store import qkv_rope_store
    from kernels.rms_norm import add_rms_norm, rms_norm

    kind = torch.bfloat16
    x = torch.zeros((3, 576), dtype=kind)
    rms_norm(x, x[0], 1e-6, pdl=True)
    add_rms_norm(x, x, x[0], 1e-6, inplace=True, pdl=True)
    silu_and_mul(x, pdl=True)
    gelu_and_mul(x, pdl=True)
    pool = [torch.zeros((2, 16, 2, 80), dtype=kind) for _ in range(2)]
    cos, qkv = torch.zeros((9, 80), dtype=kind), torch.zeros((3, 10 * 80), dtype=kind)
    places, norm = torch.arange(3), torch.zeros((8, 80), dtype=kind)
    for weights in (None, norm):
        qkv_rope_store(qkv, cos, cos, places, *pool, places, norm=weights, pdl=True)
    copy_blocks(block_caches(pool[:1], pool[1:]), places[:1], places[1:2])


def main() -> None:
    driver.set_active(_NoDriver())
    JITFunction.__getitem__ = _compile_only
    _products()
    _glue()


if __name__ == "__main__":
    main()
