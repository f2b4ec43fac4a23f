"""How far two computations of the same thing are apart, and how far they may be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bounds:
    """Largest errors of a sound engine.

    ``attention``: of one layer's attention over equal queries, keys and values. ``state``: of keys,
    values and logits after all layers below, computed in steps of another shape.
    """

    attention: float
    state: float


_BOUNDS = {
    torch.float64: Bounds(1e-9, 1e-9),
    torch.float32: Bounds(1e-4, 1e-4),
    # Roundings of 2⁻¹¹ and 2⁻⁸; in ``state`` those of every layer below add up.
    torch.float16: Bounds(4e-3, 4e-2),
    torch.bfloat16: Bounds(3e-2, 3e-1),
}


def bounds_of(dtype: torch.dtype) -> Bounds:
    """The bounds of the model's dtype."""
    return _BOUNDS[dtype]


@dataclass(frozen=True, slots=True)
class Difference:
    """``error``: the largest. ``first_row``: the first row over the bound, -1 if none is."""

    error: float
    first_row: int


def difference(found: Tensor, wanted: Tensor, bound: float) -> Difference:
    """Compares two ``[rows, columns]``.

    Errors are relative to the largest wanted value of their column, or to the root mean square of
    all where that is more: keys have columns a hundred times as large as others and values may be
    small throughout, and neither may hide an error or make one of a rounding.

    Args:
        found: what is judged.
        wanted: what it should be.
        bound: of an error; something that is not a number is over any bound.
    """
    if not len(wanted):
        return Difference(0.0, -1)
    kind = torch.promote_types(wanted.dtype, torch.float32)
    found, wanted = found.to(kind), wanted.to(kind)
    size = torch.maximum(wanted.abs().amax(0), wanted.square().mean().sqrt())
    size = size.clamp(min=torch.finfo(kind).tiny)
    errors = (found - wanted).abs_().div_(size).amax(1).nan_to_num_(nan=float("inf"))
    over = (errors > bound).nonzero().flatten()
    return Difference(float(errors.max()), int(over[0]) if len(over) else -1)
