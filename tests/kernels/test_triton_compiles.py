"""What the engine launches is compiled for a GPU, also where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).parents[1] / "helpers" / "offline_compile.py"


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Kernel, shared memory and instructions of every launch."""
    cache = str(tmp_path_factory.mktemp("triton"))
    environment = {**os.environ, "TRITON_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles(launches: list[dict[str, Any]]) -> None:
    assert {launch["kernel"] for launch in launches} == {
        "skinny_vector_kernel",
        "skinny_dot_kernel",
        "_rms_norm_kernel",
        "_gate_and_mul_kernel",
        "_qkv_rope_store_kernel",
        "_copy_blocks_kernel",
    }


def test_products_of_several_rows_use_tensor_cores(launches: list[dict[str, Any]]) -> None:
    found = [launch["found"] for launch in launches if launch["kernel"] == "skinny_dot_kernel"]
    assert all("mma.sync" in names or "wgmma" in names for names in found)
    assert any("wgmma" in names for names in found)


def test_shared_memory_fits(launches: list[dict[str, Any]]) -> None:
    assert max(launch["shared"] for launch in launches) <= 227 * 1024


def test_dependent_launches_wait_for_what_was_launched_before(
    launches: list[dict[str, Any]],
) -> None:
    for launch in launches:
        if launch["kernel"] != "_copy_blocks_kernel":
            assert "griddepcontrol.launch_dependents" in launch["found"], launch
            assert "griddepcontrol.wait" in launch["found"], launch
