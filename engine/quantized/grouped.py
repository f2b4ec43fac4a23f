"""Weights as small whole numbers, with a scale and a minimum for each group of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.reference.grouped_linear import scaled, unpack_codes, weave_codes

_PIECE_ELEMENTS = 8 << 20
_HALF_RUN = 16


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """``[rows, columns]`` values ``code · scale + minimum``.

    ``codes``: uint8, ``[rows, columns]`` in 8 bits; in 4 bits ``[rows, columns / 2]``, element
    ``j`` of a run of 32 in the low half of a byte, element ``j + 16`` in the high half, as GGUF's
    own. ``scale``, ``minimum``: ``[rows, columns / group]``, float32 or float16. ``woven``: the
    codes lie as the GPU's products read them instead, see
    ``kernels.reference.grouped_linear.unpack_codes``.
    """

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    bits: int
    group: int
    woven: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the values."""
        rows, groups = self.scale.shape
        return rows, groups * self.group

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scale.nbytes + self.minimum.nbytes

    def to(self, device: torch.device) -> GroupedWeight:
        """The same on ``device``, woven on a GPU."""
        codes, scale, minimum = (part.to(device) for part in (self.codes, self.scale, self.minimum))
        moved = replace(self, codes=codes, scale=scale, minimum=minimum)
        return moved.weave() if device.type == "cuda" else moved

    def weave(self) -> GroupedWeight:
        """The same with its codes as the GPU's products read them."""
        if self.woven:
            return self
        codes = torch.empty_like(self.codes)
        for piece in self._pieces():
            codes[piece] = weave_codes(self.rows(piece).unpacked(), self.bits)
        return replace(self, codes=codes, woven=True)

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
        codes, scale, minimum = (part[wanted] for part in (self.codes, self.scale, self.minimum))
        return replace(self, codes=codes, scale=scale, minimum=minimum)

    def unpacked(self) -> Tensor:
        """The codes one a byte, ``[rows, columns]`` uint8."""
        if self.woven:
            return unpack_codes(self.codes, self.bits)
        if self.bits == 8:
            return self.codes
        halves = torch.unflatten(self.codes, -1, (-1, _HALF_RUN))
        return torch.cat((halves & 15, halves >> 4), -1).flatten(-2)

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The values, ``[rows, columns]``; computed in float32 at least."""
        pieces = self._pieces()
        if len(pieces) == 1:
            return self._expanded(dtype)
        out = torch.empty(self.shape, dtype=dtype, device=self.codes.device)
        for piece in pieces:
            out[piece] = self.rows(piece)._expanded(dtype)
        return out

    def _expanded(self, dtype: torch.dtype) -> Tensor:
        return scaled(self.unpacked(), self.scale, self.minimum, dtype)

    def _pieces(self) -> list[slice]:
        """Rows that are worked on at once; one piece at least."""
        rows, columns = self.shape
        step = max(_PIECE_ELEMENTS // columns, 1)
        return [slice(start, start + step) for start in range(0, max(rows, 1), step)]


def stacked(parts: Sequence[GroupedWeight]) -> GroupedWeight | None:
    """Several weights in one, row after row; None if they are not of one kind."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(
        (part.bits, part.group, part.woven) != (first.bits, first.group, first.woven)
        for part in parts
    ):
        return None
    return replace(
        first,
        codes=torch.cat([part.codes for part in parts]),
        scale=torch.cat([part.scale for part in parts]),
        minimum=torch.cat([part.minimum for part in parts]),
    )


def paired(codes: Tensor) -> Tensor:
    """Codes below 16, one a byte, as ``GroupedWeight`` holds four bits: ``[rows, columns / 2]``."""
    halves = torch.unflatten(codes, -1, (-1, 2, _HALF_RUN))
    return torch.flatten(halves[..., 0, :] | (halves[..., 1, :] << 4), -2)
