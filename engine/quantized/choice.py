"""How a model's quantised weights are kept, and how many bytes that takes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.api.events import WeightsKept
from engine.api.params import EngineConfig
from engine.linear import can_pack
from engine.loading.stored import StoredTensor, needed_tensors
from engine.models.config import ModelConfig
from engine.models.families import family_of
from engine.quantized.gguf_blocks import BLOCK_BYTES
from engine.quantized.int4_linear import packs_shape
from engine.quantized.int8_output import output_bytes
from engine.quantized.make import has_fast_product, is_eight_bit_output
from kernels.launch_grouped import EXPANDED_ELEMENTS

BOTH_CAP_BYTES = 1 << 30
BOTH_SHARE = 0.25
"""Weights in bfloat16 stay beside the packed ones, for prompts, if they take no more than this and
no more than this share of the free memory."""

_FOUR_BITS = frozenset({"Q4_0", "Q4_1", "Q4_K"})
_DEVICE_MARGIN = 1.25
"""On a GPU so many times the expanded weights have to be free: the cache needs the rest."""

PACKED_FROM_BYTES = 4_000_000_000
"""Expanded weights from which a GPU's time is that of reading them; see QUANTIZED.md among the
benchmarks.
"""


def choose_kept(
    settings: EngineConfig,
    is_gguf: bool,
    num_parameters: int,
    device: torch.device,
    dtype: torch.dtype,
    free: int,
) -> WeightsKept:
    """How the weights will be kept.

    By itself the engine packs them where that is faster, which it is on a CPU with bfloat16 and for
    large models on a GPU, or where they fit in no other way.

    Args:
        settings: ``weights`` says what is wished.
        is_gguf: whether the model is a GGUF file; others are not quantised.
        num_parameters: of the model.
        device: where it will lie.
        dtype: of the model.
        free: bytes of the device's memory.
    """
    if not is_gguf or settings.weights == "expanded":
        return WeightsKept.EXPANDED
    if settings.weights == "packed":
        return WeightsKept.PACKED
    expanded_bytes = num_parameters * dtype.itemsize
    if device.type == "cuda":
        fits = expanded_bytes * _DEVICE_MARGIN <= free
        slower = settings.deterministic or dtype.itemsize != 2
        stays = fits and (slower or expanded_bytes < PACKED_FROM_BYTES)
        return WeightsKept.EXPANDED if stays else WeightsKept.PACKED
    if settings.deterministic or not has_fast_product(device, dtype):
        return WeightsKept.EXPANDED
    room = min(BOTH_CAP_BYTES, int(free * BOTH_SHARE))
    return WeightsKept.BOTH if expanded_bytes <= room else WeightsKept.PACKED


def kept_bytes(
    tensors: Iterable[StoredTensor],
    config: ModelConfig,
    kept: WeightsKept,
    device: torch.device,
    dtype: torch.dtype,
) -> int:
    """Bytes that weights from a GGUF file take, packed or both ways.

    Args:
        tensors: as they lie in the file.
        config: the model's shape.
        kept: not ``EXPANDED``.
        device: where they lie.
        dtype: of the model.
    """
    family = family_of(config)
    embedding = f"{family.embedding}.weight"
    output = embedding if config.tie_word_embeddings else f"{family.lm_head}.weight"
    total = 0
    for tensor in needed_tensors(tensors, config):
        if tensor.type not in BLOCK_BYTES or len(tensor.shape) != 2:
            total += tensor.num_elements * dtype.itemsize
            twice = tensor.name == embedding and config.tie_word_embeddings
            if twice and can_pack(device, dtype):
                total += tensor.num_elements * dtype.itemsize
            continue
        is_embedding = tensor.name == embedding
        if is_embedding:
            total += _grouped_bytes(tensor, dtype)
        # On a GPU a tied output layer multiplies with the embedding itself.
        if not is_embedding or (config.tie_word_embeddings and device.type == "cpu"):
            if tensor.name == output and is_eight_bit_output(_bits(tensor), device, dtype):
                total += output_bytes(*tensor.shape)
                total += _expanded_bytes(tensor, kept, dtype)
            else:
                total += _product_bytes(tensor, kept, device, dtype)
    return total


def expansion_bytes(
    config: ModelConfig, kept: WeightsKept, device: torch.device, dtype: torch.dtype
) -> int:
    """Bytes of the weights that a product of many rows expands at once on a GPU; none elsewhere."""
    if kept is not WeightsKept.PACKED or device.type != "cuda":
        return 0
    largest = max(config.vocab_size, 2 * config.intermediate_size) * config.hidden_size
    return min(EXPANDED_ELEMENTS, largest) * dtype.itemsize


def _bits(tensor: StoredTensor) -> int:
    return 4 if tensor.type in _FOUR_BITS else 8


def _grouped_bytes(tensor: StoredTensor, dtype: torch.dtype) -> int:
    bits = _bits(tensor)
    group = 16 if tensor.type == "Q6_K" else 32
    scale_bytes = 2 if dtype.itemsize == 2 else 4
    return tensor.num_elements * bits // 8 + tensor.num_elements // group * 2 * scale_bytes


def _product_bytes(
    tensor: StoredTensor, kept: WeightsKept, device: torch.device, dtype: torch.dtype
) -> int:
    if not has_fast_product(device, dtype):
        return _grouped_bytes(tensor, dtype)
    if not packs_shape(tensor.shape[0], 16 if tensor.type == "Q6_K" else 32):
        return tensor.num_elements * dtype.itemsize
    halves = 1 if _bits(tensor) == 4 else 2
    packed = halves * tensor.num_elements * 5 // 8
    return packed + _expanded_bytes(tensor, kept, dtype)


def _expanded_bytes(tensor: StoredTensor, kept: WeightsKept, dtype: torch.dtype) -> int:
    """Of the weights in the model's dtype beside the packed ones."""
    return tensor.num_elements * dtype.itemsize if kept is WeightsKept.BOTH else 0
