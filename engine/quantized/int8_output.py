"""The output layer on the CPU with weights in eight bits: oneDNN's product of whole numbers.

It has as many weights as half of a small model's layers, and each step reads all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

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

_FEW_ROWS = 2
"""Tokens up to which this beats oneDNN's product of expanded bfloat16 weights."""

_SHIFT = 128
"""The product wants one side unsigned."""


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
        codes, self._scale = _quantised(weight, wide, breathe)
        # Unsigned x is 128 too large.
        self._shift = codes.sum(1, dtype=torch.int32) * self._scale * -_SHIFT
        self._codes = torch.ops.onednn.qlinear_prepack(codes, None)
        self._zero = torch.zeros(1, dtype=torch.int64)
        self._columns = torch.cat((torch.arange(self.in_features), wide))
        self._worth = torch.ones(len(self._columns))
        self._worth[self.in_features :] = 1 / _FINER
        self._product = torch.ops.onednn.qlinear_pointwise.default
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
        values = x.index_select(1, self._columns) * self._worth
        # The largest is never 0, and not finite if one of the values is not.
        scale = values.abs().amax(1, keepdim=True).clamp_(min=1e-30) / _LARGEST
        values /= scale
        coarse = values.round()
        fine = values.sub_(coarse).mul_(_FINER).round_()
        whole = torch.cat((coarse, fine)).add_(_SHIFT).to(torch.uint8)
        out: Tensor = self._product(
            whole,
            1.0,
            0,
            self._codes,
            self._scale,
            self._zero,
            self._shift,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        rows = x.shape[0]
        return out[:rows].add_(out[rows:], alpha=1 / _FINER).mul_(scale)


def output_bytes(rows: int, columns: int) -> int:
    """Bytes that ``Int8Output`` takes for so many weights, without expanded ones."""
    both = columns + columns // _WIDE_SHARE
    # Codes, scale and shift of a row, number and worth of a column.
    return rows * both + rows * (4 + 4) + both * (8 + 4)


def has_output_product() -> bool:
    """Whether this torch has the product; that it is fast is for the caller to know."""
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    return "onednn" in torch.backends.quantized.supported_engines


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


def _quantised(weight: GroupedWeight, wide: Tensor, breathe: Breathe) -> tuple[Tensor, Tensor]:
    """Codes ``[rows, columns + wide columns]`` int8, and a scale a row, float32."""
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
    return codes, scale
