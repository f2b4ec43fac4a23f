"""Tuning choices of ``grouped_linear``; ``tests/benchmarks/QUANTIZED.md`` has what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.launch import MIN_DOT_ROWS, next_power_of_2

GROUPED_ROWS = 64
"""With more rows than this the weight is expanded for the library's product."""

UNPAIRED_ROWS = 8
"""Likewise for rows that cannot be read in pairs, such as those of float32."""

EXPANDED_ELEMENTS = 64 << 20
"""Weights that are expanded at once."""

VECTOR_ROWS = 2
"""With more rows than this tensor cores are used."""

_RUN_BITS = 128
_WARP_RUNS = 4
_MIN_TENSOR_ROWS = 8
_MAX_TENSOR_ROWS = 32
_WIDE_OUTPUTS = 8192
_LONG_ROUND = 128


@dataclass(frozen=True, slots=True)
class GroupedLaunch:
    """``rows``: of ``x``, a program. ``outputs``: of the product, a program. ``depth``: inner
    elements a step of the loop, a multiple of 32.
    """

    rows: int
    outputs: int
    depth: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class VectorLaunch:
    """Without tensor cores. ``rows``: of ``x``, a program: 1, 2 or 4. ``outputs``: of the product,
    a program. ``runs``: of 16 bytes of codes, a round of the loop; a thread has one of them.
    """

    rows: int
    outputs: int
    runs: int
    num_warps: int

    def is_even(self, rows: int, outputs: int, inner: int, bits: int) -> bool:
        """Whether no program reaches over an edge."""
        row_runs = inner * bits // _RUN_BITS
        return not (rows % self.rows or outputs % self.outputs or row_runs % self.runs)


@dataclass(frozen=True, slots=True)
class TensorLaunch:
    """On tensor cores, codes straight from memory. ``rows``: of ``x``, a program: 8, 16, 32 or 64.
    ``outputs``: of the product, a program: 16, 32 or 64. ``num_warps``: each has its own part of
    the inner dimension, four runs of 16 bytes of codes at a time. ``ahead``: it asks for the next
    four before it multiplies, and for the first before the kernel before has ended.
    """

    rows: int
    outputs: int
    num_warps: int
    ahead: bool

    def is_even(self, inner: int, bits: int) -> bool:
        """Whether no warp reaches over the end of a row."""
        return inner * bits // _RUN_BITS % (_WARP_RUNS * self.num_warps) == 0


def few_rows_launch(rows: int, outputs: int, inner: int, bits: int) -> VectorLaunch | TensorLaunch:
    """How a product is cut up whose rows can be read in pairs.

    Args:
        rows: of ``x``, up to ``GROUPED_ROWS``.
        outputs: of the product.
        inner: columns of the weight.
        bits: of a code.
    """
    if rows <= VECTOR_ROWS:
        return vector_launch(rows, inner, bits)
    return tensor_launch(rows, outputs, inner, bits)


def tensor_launch(rows: int, outputs: int, inner: int, bits: int) -> TensorLaunch:
    """Likewise, on tensor cores: nearly the best of a sweep over a Qwen3-8B layer on an H200."""
    tile = min(max(next_power_of_2(rows), _MIN_TENSOR_ROWS), _MAX_TENSOR_ROWS)
    wide = outputs >= _WIDE_OUTPUTS
    # A thread has more registers with more rows, and a multiprocessor fewer warps to wait with.
    warps = 4 if wide or tile == _MAX_TENSOR_ROWS else 8
    if tile == _MIN_TENSOR_ROWS or rows > _MAX_TENSOR_ROWS or (wide and tile == _MAX_TENSOR_ROWS):
        each = 32
    else:
        each = 16
    # With many programs there is always one that need not wait.
    ahead = not wide and tile != 2 * _MIN_TENSOR_ROWS
    rounds = -(-inner * bits // (_RUN_BITS * _WARP_RUNS))
    return TensorLaunch(tile, each, min(warps, next_power_of_2(rounds)), ahead)


def vector_launch(rows: int, inner: int, bits: int) -> VectorLaunch:
    """Without tensor cores: the best of a sweep over a Qwen3-8B layer on an H200.

    Args:
        rows: of ``x``, up to ``VECTOR_ROWS``.
        inner: columns of the weight.
        bits: of a code.
    """
    row_runs = inner * bits // _RUN_BITS
    if rows > 1:
        return VectorLaunch(2, 8, 64, 2)
    if row_runs >= _LONG_ROUND:
        # A thread has one or two runs of a round.
        return VectorLaunch(1, 8, _LONG_ROUND, 2 if row_runs == _LONG_ROUND else 4)
    # The widest of those that waste least.
    warps = min((4, 2, 1), key=lambda count: -(-row_runs // (32 * count)) * count)
    return VectorLaunch(1, 8, 32 * warps, warps)


def grouped_launch(outputs: int, bits: int) -> GroupedLaunch:
    """How a product is cut up whose rows cannot be read in pairs.

    Args:
        outputs: of the product.
        bits: of a code.
    """
    each = 32 if outputs >= _WIDE_OUTPUTS else 16
    return GroupedLaunch(MIN_DOT_ROWS, each, 256 if bits == 4 else 128, 4, 4)


def fixed_grouped_launch(bits: int) -> GroupedLaunch:
    """The same tiles for any number of rows, so that a row's last bits do not depend on it."""
    return GroupedLaunch(MIN_DOT_ROWS, 16, 256 if bits == 4 else 128, 4, 4)
