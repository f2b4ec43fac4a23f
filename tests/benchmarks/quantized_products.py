"""The products of a Qwen3-8B layer on a GPU: bfloat16 by the library, 4 and 8 bits by the kernel.

Each product has weights of its own in every layer, so that they come from memory; the layers run
in one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.grouped_linear import grouped_linear
from kernels.launch_grouped import VectorLaunch
from tests.benchmarks.graph_timing import capture, replay_median
from tests.benchmarks.options import CannotRunHere, Options

SHAPES = ((6144, 4096), (4096, 4096), (24_576, 4096), (4096, 12_288))
"""Outputs and inner dimension of QKV, output, gate with up, down."""

LAYERS = 8
ROWS = (1, 2, 4, 8, 16, 32, 64, 512)
SWEEP = [
    VectorLaunch(1, outputs, 32 * warps * each, warps)
    for outputs in (4, 8, 16)
    for warps in (1, 2, 4, 8)
    for each in (1, 2)
]


def measure_products(options: Options) -> dict[str, float]:
    """Prints microseconds a layer for each number of rows, then, if asked for, the launches from
    the best on: each is compiled for each shape, which takes minutes.

    Raises:
        CannotRunHere: there is no GPU.
    """
    if not torch.cuda.is_available():
        raise CannotRunHere("the products are measured on a GPU")
    device = torch.device(options.device)
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
    if options.sweep:
        sweep(device)
    return result


def sweep(device: torch.device) -> None:
    """Every launch of ``SWEEP`` on one row of each shape, four bits, the fastest five."""
    for shape in SHAPES:
        found = []
        for launch in SWEEP:
            chain = [_grouped(shape, 4, device, launch) for _ in range(LAYERS)]
            found.append((_time(chain, 1, device) / LAYERS, launch))
        for seconds, launch in sorted(found, key=lambda pair: pair[0])[:5]:
            rate = shape[0] * shape[1] * 0.625 / seconds / 1e12
            print(f"{shape}: {seconds * 1e6:.1f} µs, {rate:.2f} TB/s, {launch}")


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


def _product(shape: tuple[int, int], bits: int, device: torch.device) -> _Called:
    return _dense(shape, device) if bits == 16 else _grouped(shape, bits, device)


def _dense(shape: tuple[int, int], device: torch.device) -> _Called:
    weight = torch.randn(shape, dtype=torch.bfloat16, device=device)
    return _Called(shape[1], lambda x: F.linear(x, weight))


def _grouped(
    shape: tuple[int, int], bits: int, device: torch.device, launch: VectorLaunch | None = None
) -> _Called:
    rows, inner = shape
    size = (rows, inner * bits // 8)
    codes = torch.randint(0, 256, size, dtype=torch.uint8, device=device)
    scale = torch.rand(rows, inner // 32, device=device).half() / 1000
    minimum = scale * -(2.0 ** (bits - 1))
    return _Called(
        inner,
        lambda x: grouped_linear(x, codes, scale, minimum, bits=bits, launch=launch),
    )
