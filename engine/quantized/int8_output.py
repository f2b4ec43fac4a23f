"""The output layer on the CPU with weights in eight bits: FBGEMM's product of whole numbers.

It has as many weights as half of a small model's layers, and each step reads all of them.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.linear import Linear, make_linear
from engine.loading.progress import Breathe, no_breath
from engine.quantized.grouped import GroupedWeight

_PIECE_ELEMENTS = 4 << 20
_LARGEST = 127
_FINER = 254
"""A code of what rounding has left over is worth so much less."""

_WIDE_SHARE = 8
"""One column of so many has a second code."""

_FEW_ROWS = 4
"""Tokens up to which this beats oneDNN's product of expanded bfloat16 weights."""

_SHIFT = 128
"""The product takes one side as unsigned bytes, of which this one stands for 0."""


class Int8Output:
    """``Linear`` over weights of eight bits with a scale a row: bfloat16 ``x``, exact sums, logits
    in float32, because bfloat16 ones are off by more than all that follows.

    ``x`` is rounded to two whole numbers, the second of what the first has left over, with a scale
    for each token: about 15 bits, more than bfloat16 has, and nothing in it depends on the other
    tokens of a step. A scale a row instead of one for 32 weights costs most where ``x`` has its few
    large values. They are in columns in which the weights are large too, so the largest eighth of
    the columns keeps what rounding has left over. The error is then about half of what bfloat16
    logits cost; see ``tests/benchmarks/QUANTIZED.md``.

    Args:
        weight: of any groups and bits.
        keep_expanded: hold the weights in bfloat16 too, for more tokens.
        breathe: called for each few million values that are converted.
    """

    def __init__(
        self,
        weight: GroupedWeight,
        keep_expanded: bool = False,
        breathe: Breathe = no_breath,
    ) -> None:
        self.out_features, self.in_features = weight.shape
        wide = _wide_columns(weight, breathe)
        self._weight = _packed(_quantised(weight, wide, breathe))
        self._columns = torch.cat((torch.arange(self.in_features), wide))
        self._worth = torch.full((len(self._columns),), float(_LARGEST))
        self._worth[self.in_features :] /= _FINER
        self._product = _product()
        self._many: Linear | None = None
        if keep_expanded:
            self._many = make_linear(weight.expand(torch.bfloat16))

    @property
    def nbytes(self) -> int:
        many = 0 if self._many is None else self._many.nbytes
        return output_bytes(self.out_features, self.in_features) + many

    def __call__(self, x: Tensor) -> Tensor:
        if self._many is not None and x.shape[0] > _FEW_ROWS:
            return self._many(x).float()
        return self._whole_product(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual).to(residual.dtype)

    def _whole_product(self, x: Tensor) -> Tensor:
        # The largest is never 0, and not finite if one of the values is not.
        largest = torch.linalg.vector_norm(x, math.inf, 1, True, dtype=torch.float32)
        values = x.index_select(1, self._columns) * self._worth
        values /= largest.clamp_(min=1e-30)
        coarse = values.round()
        # To be rounded by the product.
        fine = values.sub_(coarse).mul_(_FINER)
        out: Tensor = self._product(torch.cat((coarse, fine)), 1.0, _SHIFT, self._weight)
        rows = x.shape[0]
        return out[:rows].add_(out[rows:], alpha=1 / _FINER).mul_(largest)


def output_bytes(rows: int, columns: int) -> int:
    """Bytes that ``Int8Output`` takes for so many weights, without expanded ones."""
    both = columns + columns // _WIDE_SHARE
    # Codes; scale, zero and sum of a row; number and worth of a column.
    return rows * both + rows * (4 + 4 + 4) + both * (8 + 4)


@functools.cache
def has_output_product() -> bool:
    """Whether this torch has the product and this CPU's sums do not overflow in 16 bits, as those
    of a CPU without VNNI do.
    """
    try:
        codes = torch.full((1, 64), _LARGEST, dtype=torch.int8)
        weight = _packed(_scaled(codes, torch.ones(1)))
        most = _product()(torch.full((1, 64), float(_LARGEST)), 1.0, _SHIFT, weight)
    except (AttributeError, RuntimeError):
        return False
    return bool(most == 64 * _LARGEST**2)


def _product() -> Any:
    """``(x, scale, zero, weight)``: ``x`` float32, rounded to multiples of the scale."""
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default


def _scaled(codes: Tensor, scale: Tensor) -> Tensor:
    """``[rows, columns]`` int8 with a scale a row, as one of torch's quantised tensors."""
    with warnings.catch_warnings():
        # That torch will not have such tensors for ever; ``has_output_product`` will see it.
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(codes), dtype=torch.int64)
        return torch._make_per_channel_quantized_tensor(codes, scale.double(), zeros, 0)


def _packed(weight: Tensor) -> Any:
    """A quantised tensor as the product wants it."""
    return torch.ops.quantized.linear_prepack(weight, None)


def _pieces(weight: GroupedWeight, breathe: Breathe) -> Iterator[tuple[slice, Tensor]]:
    """The values a few million at a time, float32."""
    rows, columns = weight.shape
    step = max(_PIECE_ELEMENTS // columns, 1)
    for start in range(0, rows, step):
        breathe()
        piece = slice(start, start + step)
        yield piece, weight.rows(piece).expand(torch.float32)


def _wide_columns(weight: GroupedWeight, breathe: Breathe) -> Tensor:
    """The columns with the largest weights, int64, in order."""
    squares = sum(values.square().sum(0) for _, values in _pieces(weight, breathe))
    assert isinstance(squares, Tensor), "a weight has rows"
    largest = squares.topk(weight.shape[1] // _WIDE_SHARE).indices
    return largest.sort().values


def _quantised(weight: GroupedWeight, wide: Tensor, breathe: Breathe) -> Tensor:
    """``[rows, columns + wide columns]`` with a scale a row, of which ``_LARGEST`` is left out."""
    rows, columns = weight.shape
    codes = torch.empty((rows, columns + len(wide)), dtype=torch.int8)
    scale = torch.empty(rows)
    for piece, values in _pieces(weight, breathe):
        scale[piece] = values.abs().amax(1).clamp_(min=1e-30) / _LARGEST
        values /= scale[piece, None]
        coarse = values.round()
        codes[piece, :columns] = coarse.to(torch.int8)
        rest = values.sub_(coarse).index_select(1, wide).mul_(_FINER).round_()
        codes[piece, columns:] = rest.to(torch.int8)
    return _scaled(codes, scale / _LARGEST)
