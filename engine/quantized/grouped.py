"""Weights as small whole numbers, with a scale and a minimum for each group of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.reference.grouped_linear import HALF_RUN, expand_grouped, unpack_codes

_PIECE_ELEMENTS = 8 << 20


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """``[rows, columns]`` values ``code · scale + minimum``.

    ``codes``: uint8, ``[rows, columns]`` in 8 bits; in 4 bits ``[rows, columns / 2]``, element
    ``j`` of a run of 32 in the low half of a byte, element ``j + 16`` in the high half, as GGUF's
    own. ``scale``, ``minimum``: ``[rows, columns / group]``, float32 or float16.
    """

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    bits: int
    group: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the values."""
        rows, groups = self.scale.shape
        return rows, groups * self.group

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scale.nbytes + self.minimum.nbytes

    def to(self, device: torch.device) -> GroupedWeight:
        """The same on ``device``."""
        codes, scale = self.codes.to(device), self.scale.to(device)
        return GroupedWeight(codes, scale, self.minimum.to(device), self.bits, self.group)

    def narrowed(self) -> GroupedWeight:
        """The same with scales in float16 where they fit: at most 2⁻¹¹ of a value is lost, and
        nothing of a Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0, whose scales are float16 in the file.
        """
        scale, minimum = self.scale.half(), self.minimum.half()
        if not bool(scale.isfinite().all() and minimum.isfinite().all()):
            return self
        return replace(self, scale=scale, minimum=minimum)

    def rows(self, wanted: slice | Tensor) -> GroupedWeight:
        """Some rows."""
        codes, scale = self.codes[wanted], self.scale[wanted]
        return GroupedWeight(codes, scale, self.minimum[wanted], self.bits, self.group)

    def unpacked(self) -> Tensor:
        """The codes one a byte, ``[rows, columns]`` uint8."""
        return unpack_codes(self.codes, self.bits)

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The values, ``[rows, columns]``; computed in float32 at least."""
        rows, columns = self.shape
        step = max(_PIECE_ELEMENTS // columns, 1)
        if rows <= step:
            return self._expanded(dtype)
        out = torch.empty((rows, columns), dtype=dtype, device=self.codes.device)
        for start in range(0, rows, step):
            piece = slice(start, start + step)
            out[piece] = self.rows(piece)._expanded(dtype)
        return out

    def _expanded(self, dtype: torch.dtype) -> Tensor:
        return expand_grouped(self.codes, self.scale, self.minimum, self.bits, dtype)


def stacked(parts: Sequence[GroupedWeight]) -> GroupedWeight | None:
    """Several weights in one, row after row; None if they are not of one kind."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any((part.bits, part.group) != (first.bits, first.group) for part in parts):
        return None
    return GroupedWeight(
        torch.cat([part.codes for part in parts]),
        torch.cat([part.scale for part in parts]),
        torch.cat([part.minimum for part in parts]),
        first.bits,
        first.group,
    )


def paired(codes: Tensor) -> Tensor:
    """Codes below 16, one a byte, as ``GroupedWeight`` holds four bits: ``[rows, columns / 2]``."""
    halves = torch.unflatten(codes, -1, (-1, 2, HALF_RUN))
    return torch.flatten(halves[..., 0, :] | (halves[..., 1, :] << 4), -2)
