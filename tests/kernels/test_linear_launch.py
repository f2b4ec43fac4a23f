"""Which kernel multiplies on which GPU, without the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernels import launch_linear
from kernels.launch_linear import DotLaunch, HeldLaunch, linear_launch

ROOT = Path(__file__).parents[2]
CARD = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """No other test meets what was noted about a card that is not there."""
    launch_linear.multiplies_fragments.cache_clear()
    yield
    launch_linear.multiplies_fragments.cache_clear()


@pytest.mark.parametrize(
    ("capability", "kind"), [((7, 5), DotLaunch), ((8, 0), HeldLaunch), ((12, 0), HeldLaunch)]
)
@pytest.mark.parametrize(("rows", "gated", "joined"), [(4, True, False), (16, False, True)])
def test_weights_are_held_where_the_product_takes_them_from_registers(
    capability: tuple[int, int],
    kind: type,
    rows: int,
    gated: bool,
    joined: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    monkeypatch.setattr(launch_linear, "shared_bytes", lambda _device: 64 * 1024)
    assert type(linear_launch(rows, 576, 576, gated, joined, torch.float16, CARD)) is kind


OLDER_CARD = """
import torch
from tests.helpers import offline_compile as compiler
from kernels import launch_linear
from kernels.skinny_linear import linear_add_rms_norm, skinny_linear

compiler.driver.set_active(compiler._NoDriver())
compiler.JITFunction.__getitem__ = compiler._compile_only
launch_linear.shared_bytes = lambda _device: 64 * 1024
torch.cuda.get_device_capability = lambda _device: (7, 5)
card, kind = torch.device("cuda", 0), torch.float16
weight = torch.zeros((1024, 576), dtype=kind)
for rows in (3, 8, 16):
    x, residual = torch.zeros((rows, 576), dtype=kind), torch.zeros((rows, 1024), dtype=kind)
    launch = launch_linear.linear_launch(rows, 512, 576, True, False, kind, card)
    skinny_linear(x, weight, gate="silu", launch=launch)
    launch = launch_linear.linear_launch(rows, 1024, 576, False, False, kind, card)
    skinny_linear(x, weight, residual=residual, launch=launch)
    launch = launch_linear.linear_launch(rows, 1024, 576, False, True, kind, card)
    linear_add_rms_norm(x, weight, None, residual, weight[:, 0].contiguous(), 0.0, launch=launch)
"""


@pytest.mark.slow
def test_products_of_a_few_rows_fit_a_card_without_such_instructions(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", OLDER_CARD, "75"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    launches = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(launches) == 12
    assert max(launch["shared"] for launch in launches) <= 64 * 1024
