"""Tuning choices of ``skinny_linear``: which kernel multiplies, and in what tiles."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch

from kernels.launch import MIN_DOT_ROWS, next_power_of_2

SKINNY_ROWS = 128
"""With more rows than this the library is faster."""

_LIBRARY_ELEMENTS = 16_000_000
"""Weights from which the library reaches the memory's speed by itself."""

_VECTOR_ROWS = 2
_VECTOR_INNER = 4096
_VECTOR_PROGRAMS = 512
_VECTOR_WEIGHTS = 64
_SPLIT_PROGRAMS = 256
_MOST_SPLITS = 4
_HELD_ROWS = 16
_HELD_DEPTH = 1024
_HELD_PROGRAMS = 48
_MOST_HELD_SPLITS = 8
_JOINED_OUTPUTS = 32
_FRAGMENTS = (8, 0)


@dataclass(frozen=True, slots=True)
class VectorLaunch:
    """Multiply-adds without tensor cores. ``outputs``: of the product, a program."""

    outputs: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class DotLaunch:
    """Tensor cores, a pipelined loop over the inner dimension.

    ``rows``: of ``x``, a program. ``outputs``: of the product, a program. ``depth``: inner elements
    a step of the loop. ``splits``: programs that share one tile of the result.
    ``weight_first``: the weight is the product's left operand.
    """

    rows: int
    outputs: int
    depth: int
    splits: int
    num_warps: int
    num_stages: int
    weight_first: bool


@dataclass(frozen=True, slots=True)
class HeldLaunch:
    """Tensor cores, all weights of a program in registers before the wait for the kernel before.

    ``rows``: of ``x``, a program, 8 or 16. ``outputs``: of the product, a program. ``depth``: inner
    elements of a program, 32 at least for each of ``num_warps``. ``splits``: programs that share
    one tile of the result and together have the inner dimension.
    """

    rows: int
    outputs: int
    depth: int
    splits: int
    num_warps: int


LinearLaunch = VectorLaunch | DotLaunch | HeldLaunch


@functools.cache
def shared_bytes(device: torch.device) -> int:
    """Shared memory that one program can have; without limit elsewhere (the interpreter)."""
    if device.type != "cuda":
        return 1 << 30
    properties = torch.cuda.get_device_properties(device)
    # Not in torch's own type information.
    return int(getattr(properties, "shared_memory_per_block_optin"))  # noqa: B009


@functools.cache
def multiplies_fragments(device: torch.device) -> bool:
    """Whether a thread's registers go into the product as ``skinny_held`` arranges them: on tensor
    cores from compute capability 8.0 on, and in the interpreter. For older ones the compiler has no
    such instruction: all weights would go through shared memory, more of it than there is.
    """
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= _FRAGMENTS


def linear_launch(
    rows: int,
    outputs: int,
    inner: int,
    gated: bool,
    joined: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> LinearLaunch | None:
    """How a product of this shape is cut up; None: the library is faster.

    Found with ``tests/benchmarks/linear_sweep.py`` and ``chain_search.py`` on an H200; what came of
    it is in ``glue_rates.py``.

    Args:
        rows: of ``x``.
        outputs: of the product, after the gate.
        inner: its inner dimension.
        gated: two products for each output.
        joined: the parts of a split product will be added by the kernel that comes next.
        dtype: of the operands.
        device: where they lie.
    """
    factor = 2 if gated else 1
    if outputs * inner * factor > _LIBRARY_ELEMENTS:
        return None
    if rows <= _VECTOR_ROWS and inner <= _VECTOR_INNER:
        return _vector_launch(outputs, inner * factor)
    if rows > SKINNY_ROWS or dtype.itemsize != 2:
        return None
    if multiplies_fragments(device):
        held = _held_launch(rows, outputs, inner, gated, joined)
        if held is not None:
            return held
    chosen = _joined_launch(rows, outputs, inner) if joined else _whole_launch(rows, gated)
    return fitted(chosen, factor, shared_bytes(device))


def fitted(launch: DotLaunch, factor: int, limit: int) -> DotLaunch:
    """The same with no more stages than fit into shared memory.

    Args:
        launch: of 16-bit operands.
        factor: products for each output.
        limit: bytes.
    """
    stage = (launch.rows + launch.outputs * factor) * launch.depth * 2
    return replace(launch, num_stages=max(2, min(launch.num_stages, limit // stage)))


def _held_launch(
    rows: int, outputs: int, inner: int, gated: bool, joined: bool
) -> HeldLaunch | None:
    """None where there are too many rows, or more weights than fit into registers."""
    if rows > _HELD_ROWS:
        return None
    tile = 8 if rows <= 8 else 16
    if not joined:
        depth = max(next_power_of_2(inner), _HELD_DEPTH // 4)
        if depth > 2 * _HELD_DEPTH:
            return None
        if not gated:
            each, warps = 16, 4
        elif rows <= 4:
            # Twice as deep they would be more than the registers hold.
            each, warps = (32 if depth <= _HELD_DEPTH else 16), 8
        else:
            each, warps = (8, 2) if rows <= 8 else (16, 4)
        return HeldLaunch(tile, each, depth, 1, _held_warps(warps, depth))
    for depth in (_HELD_DEPTH, _HELD_DEPTH // 2, _HELD_DEPTH // 4):
        splits = -(-inner // depth)
        if -(-outputs // _JOINED_OUTPUTS) * splits >= _HELD_PROGRAMS:
            break
    if splits > _MOST_HELD_SPLITS:
        return None
    return HeldLaunch(
        tile, _JOINED_OUTPUTS, depth, splits, _held_warps(8 if splits <= 2 else 4, depth)
    )


def _held_warps(warps: int, depth: int) -> int:
    """As many threads for each weight as ``warps`` are for ``_HELD_DEPTH``."""
    return max(1, min(8, warps * depth // _HELD_DEPTH))


def _whole_launch(rows: int, gated: bool) -> DotLaunch:
    if rows <= 8:
        return (
            DotLaunch(8, 16, 128, 1, 1, 6, True) if gated else DotLaunch(8, 32, 64, 1, 2, 8, True)
        )
    if rows <= 16 and gated:
        return DotLaunch(16, 16, 128, 1, 1, 5, False)
    if rows <= 16:
        return DotLaunch(16, 16, 128, 1, 2, 6, True)
    # 64 rows cost what 32 cost: the larger tile takes the faster instruction.
    if rows <= 64:
        return DotLaunch(64, 32, 128, 1, 4, 5, False)
    return DotLaunch(64, 64, 64, 1, 4, 6, True) if gated else DotLaunch(64, 64, 128, 1, 4, 4, False)


def _vector_launch(outputs: int, inner: int) -> VectorLaunch:
    """About 512 programs, whose threads hold 64 weights each."""
    each = 1 << max((outputs // _VECTOR_PROGRAMS).bit_length() - 1, 0)
    threads = each * next_power_of_2(inner) // _VECTOR_WEIGHTS
    return VectorLaunch(each, max(1, min(8, threads // 32)))


def _joined_launch(rows: int, outputs: int, inner: int) -> DotLaunch:
    if rows <= 8:
        launch = DotLaunch(8, 16, 128, 1, 1, 5, True)
    elif rows <= 16:
        launch = DotLaunch(16, 16, 64, 1, 1, 8, True)
    elif rows <= 32:
        launch = DotLaunch(32, 16, 128, 1, 4, 5, True)
    elif rows <= 64:
        launch = DotLaunch(64, 32, 128, 1, 4, 5, False)
    else:
        launch = DotLaunch(64, 64, 128, 1, 4, 4, False)
    tiles = -(-outputs // launch.outputs)
    wanted = min(_MOST_SPLITS, next_power_of_2(-(-_SPLIT_PROGRAMS // tiles)))
    # A part has two steps of the loop at least.
    possible = max(1, inner // (2 * launch.depth))
    return replace(launch, splits=min(wanted, possible))


def fixed_launch(inner: int, dtype: torch.dtype) -> DotLaunch:
    """The same tiles for any number of rows, so that a row's last bits do not depend on it.

    Args:
        inner: inner dimension of the product.
        dtype: of the operands.
    """
    depth = 64 if inner < 1024 or dtype.itemsize > 2 else 128
    return DotLaunch(MIN_DOT_ROWS, 32, depth, 1, 4, 4, True)
