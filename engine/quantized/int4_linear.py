"""Products with grouped four-bit weights on the CPU, through torch's own packed product."""

from __future__ import annotations

import threading

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.linear import Linear, make_linear
from engine.loading.progress import Breathe, no_breath
from engine.quantized.grouped import GroupedWeight

GROUP = 32
"""The packed product knows groups of 32 and more; Q6_K's of 16 it does not."""

_BLOCK_ROWS = 64
"""Rows of the weight whose codes lie together, as torch packs them where there is AVX-512."""

_PIECE_ELEMENTS = 4 << 20
_FEW_ROWS = {4: 4, 8: 2}
"""Bits -> tokens up to which the packed product beats oneDNN's of expanded bfloat16 weights; see
``tests/benchmarks/QUANTIZED.md``.
"""

_SOME_ROWS = {4: 64, 8: 64}
"""Bits -> tokens up to which it beats expanding the weights for this one product."""


class Int4Linear:
    """``Linear`` over torch's four-bit packed product: bfloat16 ``x``, sums in float32.

    A value is ``(code − 8) · scale + zero`` with both in bfloat16, as that product wants it, so
    that a weight is off by at most 2⁻⁹ of its group's scale and zero, about what bfloat16 does to
    expanded weights. Eight bits are two four-bit weights beside each other, the upper halves with
    16 times the scale, and ``x`` twice: exact but for the same rounding of the scale.

    The packed product takes as long for each token more, so that many tokens are multiplied with
    expanded weights: those of ``many`` if that is given, else expanded once a call.

    Args:
        weight: groups of 32.
        bias: ``[out_features]`` bfloat16.
        keep_expanded: hold the weights in bfloat16 too, for many tokens.
        breathe: called for each few million values that are packed.
    """

    def __init__(
        self,
        weight: GroupedWeight,
        bias: Tensor | None = None,
        keep_expanded: bool = False,
        breathe: Breathe = no_breath,
    ) -> None:
        assert packs(weight)
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self._bits = weight.bits
        self._codes, self._scales = _pack(weight, breathe)
        # Half the overhead of the same function in torch.ops.
        self._product = torch._weight_int4pack_mm_for_cpu
        self._many: Linear | None = None
        self._most_rows = _SOME_ROWS[weight.bits]
        if keep_expanded:
            self._many = make_linear(self.expanded().contiguous(), bias)
            self._most_rows = _FEW_ROWS[weight.bits]

    @property
    def nbytes(self) -> int:
        own = self._codes.nbytes + self._scales.nbytes
        bias = 0 if self._bias is None else self._bias.nbytes
        return own + (bias if self._many is None else self._many.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] > self._most_rows:
            return self._expanded_product(x)
        if self._bits == 8:
            x = torch.cat((x, x), -1)
        out: Tensor = self._product(x.contiguous(), self._codes, GROUP, self._scales)
        return out if self._bias is None else out.add_(self._bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        if x.shape[0] <= self._most_rows:
            return self(x).add_(residual)
        if self._many is not None:
            return self._many.add(x, residual)
        return self._expanded_product(x).add_(residual)

    def _expanded_product(self, x: Tensor) -> Tensor:
        if self._many is not None:
            return self._many(x)
        return F.linear(x, self.expanded(), self._bias)

    def expanded(self) -> Tensor:
        """The weights in bfloat16, ``[out_features, in_features]``: a view whose columns are
        contiguous, of memory that is valid until this thread's next call of any ``Int4Linear``.
        """
        columns = _expand(self._codes, self._scales)
        if self._bits == 8:
            upper, lower = columns.chunk(2)
            columns = upper.add_(lower)
        return columns.T


class ExpandingLinear:
    """``Linear`` that expands its weights at each product: the least memory, any dtype and device,
    and the values of the file to the last bit.
    """

    def __init__(self, weight: GroupedWeight, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight = weight
        self._bias = bias

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight.expand(x.dtype), self._bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


class StackedLinear:
    """Products whose weights could not be put into one, their results side by side.

    Args:
        parts: over the same ``in_features``.
    """

    def __init__(self, parts: list[Linear]) -> None:
        self.in_features = parts[0].in_features
        self.out_features = sum(part.out_features for part in parts)
        self._parts = parts

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self._parts], -1)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


def packs(weight: GroupedWeight) -> bool:
    """Whether ``Int4Linear`` can hold this weight."""
    return packs_shape(weight.shape[0], weight.group)


def packs_shape(rows: int, group: int) -> bool:
    """The same of a weight with so many rows and groups of this size."""
    return group == GROUP and rows % _BLOCK_ROWS == 0


def has_packed_product() -> bool:
    """Whether this torch has the packed product, in the order of codes that ``_expand`` reads."""
    if not hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu"):
        return False
    codes = torch.arange(2 * _BLOCK_ROWS * GROUP, dtype=torch.int32).view(-1, GROUP)
    codes = (codes * 7 + codes // 16) % 16
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    scales = torch.tensor([1.0, 8.0], dtype=torch.bfloat16).expand(1, len(codes), 2).contiguous()
    return torch.equal(_expand(packed, scales).T, codes.to(torch.bfloat16))


def _pack(weight: GroupedWeight, breathe: Breathe) -> tuple[Tensor, Tensor]:
    """Codes ``[rows, columns / 2]`` uint8 in torch's order, and scales and zeros
    ``[columns / 32, rows, 2]`` bfloat16; of eight bits twice the columns, upper halves first.
    """
    wide = weight.scale.float()
    scale = wide.to(torch.bfloat16).float()
    # The minimum follows the rounded scale: a value near 0 is off by as little as it is large.
    minimum = weight.minimum.float() * torch.where(wide == 0, 1.0, scale / wide)
    if weight.bits == 4:
        scales = torch.stack((scale, minimum + 8 * scale), -1).to(torch.bfloat16)
    else:
        # 16 scale (u − 8) + z + scale (l − 8) + z', where z' also takes what rounding z has lost.
        zero = (minimum + 128 * scale).to(torch.bfloat16).float()
        rest = minimum + 136 * scale - zero
        parts = (torch.stack((16 * scale, zero), -1), torch.stack((scale, rest), -1))
        scales = torch.cat(parts, 1).to(torch.bfloat16)
    out = None
    step = max(_PIECE_ELEMENTS // weight.shape[1] // _BLOCK_ROWS, 1) * _BLOCK_ROWS
    for start in range(0, weight.shape[0], step):
        breathe()
        codes = weight.rows(slice(start, start + step)).unpacked()
        if weight.bits == 8:
            codes = torch.cat((codes >> 4, codes & 15), -1)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        if out is None:
            # Whole from the beginning: pieces that are joined would be there twice.
            out = packed.new_empty((weight.shape[0], *packed.shape[1:]))
        out[start : start + step] = packed
    assert out is not None, "a weight has rows"
    return out, scales.transpose(0, 1).contiguous()


class _Scratch(threading.local):
    """Each thread's own; see ``kernels.reference.gather_rows`` for why memory is kept."""

    def __init__(self) -> None:
        self._parts = (torch.empty(0), torch.empty(0), torch.empty(0))

    def take(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, and twice values, of so many weights."""
        if len(self._parts[0]) < count:
            # Ordinary tensors, that may be written to in inference mode and out of it.
            with torch.inference_mode(False):
                self._parts = (
                    torch.empty(count, dtype=torch.uint8),
                    torch.empty(count, dtype=torch.bfloat16),
                    torch.empty(count, dtype=torch.bfloat16),
                )
        codes, first, second = self._parts
        return codes[:count], first[:count], second[:count]


_scratch = _Scratch()


def _expand(packed: Tensor, scales: Tensor) -> Tensor:
    """The values, transposed: ``[columns, rows]`` bfloat16, valid until the next call.

    For 64 rows the packed bytes are ``[columns, 32]``: row ``j`` in the low half of a byte and row
    ``j + 32`` in the high one. They are only put in order at the end, because elementwise
    operations are fast on what is contiguous.
    """
    rows, half = packed.shape
    columns, blocks, half_block = 2 * half, rows // _BLOCK_ROWS, _BLOCK_ROWS // 2
    groups = columns // GROUP
    codes, values, ordered = _scratch.take(rows * columns)
    pairs = packed.view(blocks, columns, half_block)
    halves = codes.view(2, blocks, columns, half_block)
    torch.bitwise_and(pairs, 15, out=halves[0])
    torch.bitwise_right_shift(pairs, 4, out=halves[1])
    values.copy_(codes).sub_(8)
    by_half = scales.view(groups, blocks, 2, half_block, 2).permute(4, 2, 1, 0, 3).contiguous()
    scale, zero = by_half.unsqueeze(-2)
    grouped = values.view(2, blocks, groups, GROUP, half_block)
    torch.addcmul(zero, grouped, scale, out=grouped)
    in_place = values.view(2, blocks, columns, half_block).permute(2, 1, 0, 3)
    ordered.view(columns, blocks, 2, half_block).copy_(in_place)
    return ordered.view(columns, rows)
