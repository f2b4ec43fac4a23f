"""The products of a Qwen3-8B layer on a GPU: bfloat16 by the library, 4 and 8 bits by the kernel.

Each product has weights of its own in every layer, so that they come from memory; the layers run
in one CUDA graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.grouped_linear import expand_grouped, grouped_linear
from kernels.launch_grouped import TensorLaunch, VectorLaunch, vector_launch
from tests.benchmarks.graph_timing import capture, replay_median
from tests.benchmarks.linear_sweep import WRONG, Job, compile_all
from tests.benchmarks.options import CannotRunHere, Options

SHAPES = ((6144, 4096), (4096, 4096), (24_576, 4096), (4096, 12_288))
"""Outputs and inner dimension of QKV, output, gate with up, down."""

LAYERS = 8
ROWS = (1, 2, 4, 8, 16, 32, 64, 512)
SWEEP_ROWS = (2, 4, 8, 16, 32, 64)
SWEEP_TILES = {
    # Rows of a program: outputs and numbers of warps that leave a thread enough registers.
    8: [(16, 8), (32, 4), (32, 8), (64, 4)],
    16: [(16, 4), (16, 8), (32, 4), (32, 8)],
    32: [(16, 4), (16, 8), (32, 4), (32, 8)],
}
COMPILE_S = 35.0
PROCESSES = 14

Shape = tuple[int, int]
Launch = TensorLaunch | VectorLaunch
Packed = tuple[Tensor, Tensor, Tensor]
"""Codes, scale and minimum."""


def measure_products(options: Options) -> dict[str, float]:
    """Prints microseconds a layer for each number of rows; if a sweep is asked for, it alone.

    Raises:
        CannotRunHere: there is no GPU.
    """
    if not torch.cuda.is_available():
        raise CannotRunHere("the products are measured on a GPU")
    device = torch.device(options.device)
    if options.sweep:
        return sweep(device)
    layers = 1 if options.small else LAYERS
    result = {}
    for rows in ROWS:
        seconds = {}
        for bits in (16, 8, 4):
            chain = [_product(shape, bits, device) for _ in range(layers) for shape in SHAPES]
            seconds[bits] = _time(chain, rows, device) / layers
            del chain
            torch.cuda.empty_cache()
        for bits in (8, 4):
            result[f"rows_{rows}_{bits}_bits"] = seconds[16] / seconds[bits]
        print(
            f"{rows} rows: bfloat16 {seconds[16] * 1e6:.1f} µs a layer, 8 bits "
            f"{seconds[8] * 1e6:.1f}, 4 bits {seconds[4] * 1e6:.1f} "
            f"(×{seconds[16] / seconds[4]:.2f})"
        )
    return result


def sweep(device: torch.device) -> dict[str, float]:
    """Launches for four bits, beside bfloat16, and the expansion; about a minute in all.

    Prints the best of each shape, and for a layer the sum of the best of its shapes.

    Returns:
        Time of bfloat16 over that sum, by number of rows.
    """
    processes = min(PROCESSES, os.cpu_count() or 1)
    # The slowest to compile first.
    jobs = [(shape, launch) for launch in reversed(_launches()) for shape in SHAPES]
    ready = compile_all(jobs, processes, COMPILE_S, _compile_one)
    packed, plain = dict.fromkeys(SWEEP_ROWS, 0.0), dict.fromkeys(SWEEP_ROWS, 0.0)
    expanding = 0.0
    for shape in SHAPES:
        weights = [_packed(shape, 4, device) for _ in range(LAYERS)]
        seconds = _time_expansion(weights)
        expanding += seconds
        print(f"{shape}: expanded in {seconds * 1e6:.1f} µs")
        dense = [_dense(shape, device) for _ in range(LAYERS)]
        for rows in SWEEP_ROWS:
            library = _time(dense, rows, device) / LAYERS
            found = []
            for launch in _launches():
                if (shape, launch) in ready and _suits(launch, rows):
                    _check(weights[0], rows, launch, device)
                    chain = [_grouped(weight, 4, launch) for weight in weights]
                    found.append((_time(chain, rows, device) / LAYERS, launch))
            found.sort(key=lambda pair: pair[0])
            plain[rows] += library
            packed[rows] += found[0][0] if found else float("inf")
            best = "; ".join(f"{seconds * 1e6:.1f} {launch}" for seconds, launch in found[:4])
            print(f"{shape}, {rows} rows: bfloat16 {library * 1e6:.1f} µs, {best}", flush=True)
        del weights, dense
        torch.cuda.empty_cache()
    print(f"a layer is expanded in {expanding * 1e6:.1f} µs")
    for rows in SWEEP_ROWS:
        print(f"{rows} rows: {packed[rows] * 1e6:.1f} µs, bfloat16 {plain[rows] * 1e6:.1f}")
    return {f"rows_{rows}_4_bits": plain[rows] / packed[rows] for rows in SWEEP_ROWS}


def _launches() -> list[Launch]:
    tiles = [
        TensorLaunch(rows, outputs, warps, ahead)
        for rows, choices in SWEEP_TILES.items()
        for outputs, warps in choices
        for ahead in (False, True)
    ]
    return [vector_launch(2, SHAPES[0][1], 4), VectorLaunch(4, 4, 32, 1), *tiles]


def _suits(launch: Launch, rows: int) -> bool:
    """Whether its tiles are neither much too large nor very many."""
    if isinstance(launch, VectorLaunch):
        return launch.rows == rows
    return launch.rows <= max(2 * rows, 8) and rows <= 2 * launch.rows


def _compile_one(job: Job) -> str:
    shape, launch = job
    device = torch.device("cuda")
    x = torch.zeros((launch.rows, shape[1]), dtype=torch.bfloat16, device=device)
    try:
        _grouped(_packed(shape, 4, device), 4, launch)(x)
        torch.cuda.synchronize()
    except Exception as error:  # a launch that cannot be compiled is none
        return f"{shape} {launch}: {str(error)[-160:]}"
    return ""


def _check(weight: Packed, rows: int, launch: Launch, device: torch.device) -> None:
    """Says so if a product is wrong."""
    inner = weight[0].shape[1] * 2
    x = torch.randn(rows, inner, dtype=torch.bfloat16, device=device)
    expected = F.linear(x.float(), expand_grouped(*weight, 4, torch.float32))
    error = (_grouped(weight, 4, launch)(x).float() - expected).abs() / expected.abs().clamp(min=1)
    if not float(error.max()) <= WRONG:
        print(f"! {launch} with {rows} rows is wrong by {float(error.max())}", flush=True)


def _time_expansion(weights: list[Packed]) -> float:
    graph = capture(lambda: [expand_grouped(*weight, 4, torch.bfloat16) for weight in weights])
    return replay_median(graph) / len(weights)


def _time(chain: list[_Called], rows: int, device: torch.device) -> float:
    inputs = {
        inner: torch.randn(rows, inner, dtype=torch.bfloat16, device=device)
        for inner in {shape[1] for shape in SHAPES}
    }
    graph = capture(lambda: [product(inputs[product.inner]) for product in chain])
    return replay_median(graph)


class _Called:
    """A product that knows its inner dimension."""

    def __init__(self, inner: int, call: Callable[[Tensor], Tensor]) -> None:
        self.inner = inner
        self._call = call

    def __call__(self, x: Tensor) -> Tensor:
        return self._call(x)


def _product(shape: Shape, bits: int, device: torch.device) -> _Called:
    if bits == 16:
        return _dense(shape, device)
    return _grouped(_packed(shape, bits, device), bits)


def _dense(shape: Shape, device: torch.device) -> _Called:
    weight = torch.randn(shape, dtype=torch.bfloat16, device=device)
    return _Called(shape[1], lambda x: F.linear(x, weight))


def _packed(shape: Shape, bits: int, device: torch.device) -> Packed:
    rows, inner = shape
    size = (rows, inner * bits // 8)
    codes = torch.randint(0, 256, size, dtype=torch.uint8, device=device)
    scale = torch.rand(rows, inner // 32, device=device).half() / 1000
    return codes, scale, scale * -(2.0 ** (bits - 1))


def _grouped(weight: Packed, bits: int, launch: Launch | None = None) -> _Called:
    codes, scale, minimum = weight
    return _Called(
        codes.shape[1] * 8 // bits,
        lambda x: grouped_linear(x, codes, scale, minimum, bits=bits, launch=launch),
    )
