"""Which ``Linear`` quantised weights get where no fused operations are."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from engine.linear import Linear, can_pack
from engine.loading.progress import Breathe, no_breath
from engine.quantized.grouped import GroupedWeight
from engine.quantized.int4_linear import ExpandingLinear, Int4Linear, has_packed_product, packs
from engine.quantized.int8_output import has_output_product


@functools.cache
def has_fast_product(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there is a product with packed weights that beats the one with expanded weights."""
    return can_pack(device, dtype) and has_packed_product()


def keeps_grouped(weight: GroupedWeight, dtype: torch.dtype) -> bool:
    """Whether to keep the weight as it is.

    Where the packed product is, it decides: a weight that it cannot hold (Q6_K, whose groups are of
    16) would be expanded at each product, which takes longer than the product.
    """
    return not has_fast_product(weight.codes.device, dtype) or packs(weight)


def is_eight_bit_output(bits: int, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether an output layer with codes of so many bits becomes an ``Int8Output``."""
    return bits == 8 and has_fast_product(device, dtype) and has_output_product()


def make_grouped_linear(
    weight: GroupedWeight,
    bias: Tensor | None,
    dtype: torch.dtype,
    keep_expanded: bool,
    breathe: Breathe = no_breath,
) -> Linear:
    """The fastest ``Linear`` for these weights.

    Args:
        weight: one that ``keeps_grouped`` keeps.
        bias: ``[out_features]``.
        dtype: of ``x``.
        keep_expanded: the weights may be held in ``dtype`` too.
        breathe: called now and then while they are packed.
    """
    if has_fast_product(weight.codes.device, dtype):
        return Int4Linear(weight, bias, keep_expanded, breathe)
    return ExpandingLinear(weight, bias)
