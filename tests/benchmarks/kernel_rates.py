"""kernels: what part of the memory's bandwidth each kernel reaches, beside its peers on the same
tensors: torch's attention on gathered keys and values, and FlashAttention-3 where it can be loaded.
"""

from __future__ import annotations

import importlib.util
import lzma
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import torch

from tests.benchmarks.options import CannotRunHere, Options
from tests.benchmarks.report import Row, emit, print_table

Call = Callable[[int], object]
"""Runs one kernel on rotation ``i`` of its inputs."""

_FA3_LIBRARY = "_vllm_fa3_C.abi3.so"


def measure(options: Options) -> Row:
    """Every case; a case that fails is a row that says why, and the others go on.

    Raises:
        CannotRunHere: neither a GPU nor the small size, which runs in Triton's interpreter.
    """
    if not options.on_gpu:
        if not options.small:
            raise CannotRunHere("kernels needs a GPU (--device cuda); --small tries it without one")
        # Before anything imports Triton.
        os.environ.setdefault("TRITON_INTERPRET", "1")
    from tests.benchmarks import kernel_cases

    device = torch.device(options.device)
    peer = load_fa3(options.peers) if options.peers is not None and options.on_gpu else None
    rows: list[Row] = []
    for make in kernel_cases.cases(options, device, peer):
        rows += [emit({"workload": "kernels", **row}) for row in _run(make, options)]
        if options.on_gpu:
            torch.cuda.empty_cache()
    print_table(rows)
    failed = sum("failed" in row for row in rows)
    return {
        "workload": "kernels",
        "device": torch.cuda.get_device_name(device) if options.on_gpu else "interpreter",
        "fa3": peer is not None,
        "failed": failed,
        "not_measured": sorted(_our_kernels() - {row.get("kernel") for row in rows}),
        "rows": rows,
    }


def load_fa3(folder: Path) -> ModuleType:
    """FlashAttention-3 from ``fa3_peer.py`` beside its compiled extension, which may be packed.

    Raises:
        FileNotFoundError: they are not in the folder.
    """
    library, packed = folder / _FA3_LIBRARY, folder / f"{_FA3_LIBRARY}.xz"
    if not library.exists():
        with lzma.open(packed) as source:
            library.write_bytes(source.read())
    spec = importlib.util.spec_from_file_location("fa3_peer", folder / "fa3_peer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _our_kernels() -> set[str]:
    """Names of the Triton kernels' host functions: those of their files."""
    folder = Path(__file__).resolve().parents[2] / "kernels"
    return {path.stem for path in folder.glob("*.py") if "@triton.jit" in path.read_text("utf-8")}


def _run(make: Callable[[], tuple[Row, int, dict[str, Call]]], options: Options) -> Iterator[Row]:
    """The rows of one case: its own kernel first, then each peer's time over ours."""
    try:
        facts, rotated, calls = make()
    except Exception as error:
        yield {"op": f"{make}", "failed": f"{error!r:.300}"}
        return
    ours, expected = None, None
    for name, call in calls.items():
        row = dict(facts) | {"kernel": name}
        work = {unit: row.pop(unit) for unit in ("bytes", "flop") if unit in row}
        try:
            given = call(0)
            if isinstance(given, torch.Tensor):
                # Whoever computes something else is not a peer.
                values = given.float().flatten()
                expected = values if expected is None else expected
                row["max_difference"] = float((values - expected).abs().max())
            seconds = _seconds(call, rotated, options)
        except Exception as error:
            yield row | {"failed": f"{error!r:.300}"}
            continue
        ours = ours or seconds
        row |= {"us": seconds * 1e6, "times_ours": seconds / ours}
        if "bytes" in work:
            row["TB_s"] = work["bytes"] / seconds / 1e12
        if "flop" in work:
            row["TFLOP_s"] = work["flop"] / seconds / 1e12
        yield row


def _seconds(call: Call, rotated: int, options: Options) -> float:
    """Median seconds of one call."""
    if options.on_gpu:
        from tests.benchmarks.graph_timing import time_rotating

        return time_rotating(call, rotated, options.repeats or 50)
    times = []
    for index in range(2):
        start = time.perf_counter()
        call(index % rotated)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
