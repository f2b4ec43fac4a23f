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
    return compiled(90, tmp_path_factory.mktemp("triton"))


def compiled(capability: int, cache: Path, *script: str | Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, *(script or (SCRIPT,)), str(capability)],
        cwd=SCRIPT.parents[2],
        capture_output=True,
        text=True,
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles(launches: list[dict[str, Any]]) -> None:
    assert {launch["kernel"] for launch in launches} == {
        "skinny_vector_kernel",
        "skinny_dot_kernel",
        "skinny_held_kernel",
        "_rms_norm_kernel",
        "_gate_and_mul_kernel",
        "grouped_dot_kernel",
        "grouped_vector_kernel",
        "grouped_tensor_kernel",
        "grouped_expand_kernel",
        "_qkv_rope_store_kernel",
        "_copy_blocks_kernel",
        "_plan_kernel",
        "_paged_decode_kernel",
        "_shared_plan_kernel",
        "_shared_prefix_kernel",
        "_paged_prefill_kernel",
        "_scan_kernel",
        "_count_kernel",
        "_bound_kernel",
        "_draw_kernel",
        "_cut_draw_kernel",
    }


def test_products_of_several_rows_use_tensor_cores(launches: list[dict[str, Any]]) -> None:
    found = [launch["found"] for launch in launches if launch["kernel"] == "skinny_dot_kernel"]
    assert all("mma.sync" in names or "wgmma" in names for names in found)
    assert any("wgmma" in names for names in found)


def test_shared_memory_fits(launches: list[dict[str, Any]]) -> None:
    assert max(launch["shared"] for launch in launches) <= 227 * 1024


def test_a_thread_keeps_what_it_has_read_of_grouped_weights(
    launches: list[dict[str, Any]],
) -> None:
    """Shared memory is for the sums of several warps: one load a row and output."""
    vectors = [launch for launch in launches if launch["kernel"] == "grouped_vector_kernel"]
    assert len(vectors) == 4
    assert max(launch["shared_loads"] for launch in vectors) <= 16
    assert [launch["loop_exchanges"] for launch in vectors] == [0] * 4


def test_codes_become_fragments_of_a_product_where_they_are(launches: list[dict[str, Any]]) -> None:
    """The layouts of codes, scales, rows and sums are one in the compiler's eyes."""
    tensors = [launch for launch in launches if launch["kernel"] == "grouped_tensor_kernel"]
    assert [launch["loop_exchanges"] for launch in tensors] == [0, 0, 0]
    assert all("mma.sync" in launch["found"] for launch in tensors)


def test_weights_that_are_held_go_from_memory_into_the_product(
    launches: list[dict[str, Any]],
) -> None:
    """All are asked for before the wait, and no other thread has to hand them over."""
    held = [launch for launch in launches if launch["kernel"] == "skinny_held_kernel"]
    # Of 16 or (with a gate) 32 outputs by 1024 for 128 threads, of 16 by 512 for 64: 16 bytes each.
    assert [launch["early_loads"] for launch in held[:3]] == [16, 32, 16]
    assert min(launch["early_loads"] for launch in held) >= 16
    assert max(launch["early_shared_stores"] for launch in held) == 0


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 86, 89, 100, 120])
def test_other_gpus_have_the_shared_memory_that_is_chosen_for_them(
    capability: int, tmp_path: Path
) -> None:
    launches = compiled(capability, tmp_path)
    assert {"grouped_dot_kernel", "_paged_decode_kernel", "_paged_prefill_kernel"} <= {
        launch["kernel"] for launch in launches
    }
    assert max(launch["shared"] for launch in launches) <= 99 * 1024
    waits = any("griddepcontrol.wait" in launch["found"] for launch in launches)
    assert waits == (capability >= 90)


SHARED_BEGINNING = """
import torch
from tests.helpers import offline_compile as compiler
from kernels.shared_prefix_decode import shared_prefix_decode

compiler.driver.set_active(compiler._NoDriver())
compiler.JITFunction.__getitem__ = compiler._compile_only
pool = torch.zeros((8, 16, 8, 128))
query, tables = torch.zeros((64, 16, 128)), torch.zeros((64, 4)).long()
members = torch.arange(64)[None]
shared_prefix_decode(query, pool, pool, tables, members[0] + 20, members, torch.tensor([1]), 0.1)
"""


@pytest.mark.slow
def test_shared_beginnings_fit_a_desktop_gpu_in_32_bits(tmp_path: Path) -> None:
    found = {each["kernel"]: each for each in compiled(86, tmp_path, "-c", SHARED_BEGINNING)}
    assert found["_shared_prefix_kernel"]["shared"] <= 99 * 1024


def test_dependent_launches_wait_for_what_was_launched_before(
    launches: list[dict[str, Any]],
) -> None:
    chained = {
        "skinny_vector_kernel",
        "skinny_dot_kernel",
        "skinny_held_kernel",
        "_rms_norm_kernel",
        "_gate_and_mul_kernel",
        "_qkv_rope_store_kernel",
        "grouped_dot_kernel",
        "grouped_vector_kernel",
        "grouped_tensor_kernel",
    }
    for launch in launches:
        if launch["kernel"] in chained:
            assert "griddepcontrol.launch_dependents" in launch["found"], launch
            assert "griddepcontrol.wait" in launch["found"], launch
