"""Copying whole blocks inside the pool, in all layers with one launch (Triton)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.device_guard import on_device_of
from kernels.launch_glue import MAX_COPY_PAIRS, copy_launch
from kernels.reference.copy_blocks import copy_blocks as copy_in_layer

_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class BlockCaches:
    """The pool's tensors, and where they lie. Made once: their addresses do not change.

    ``addresses``: ``[tensors]`` int64 on the device.
    """

    k_caches: tuple[Tensor, ...]
    v_caches: tuple[Tensor, ...]
    addresses: Tensor

    @property
    def block_words(self) -> int:
        """32-bit words of one block of one tensor."""
        block = self.k_caches[0][0]
        return block.numel() * block.element_size() // _WORD_BYTES


def block_caches(k_caches: Sequence[Tensor], v_caches: Sequence[Tensor]) -> BlockCaches:
    """Notes the addresses of all layers' caches.

    Args:
        k_caches: ``[num_blocks, block_size, kv_heads, head_dim]`` each, contiguous, all of one
            shape and dtype; ``v_caches`` likewise.

    Raises:
        ValueError: they differ, are not contiguous, or a block is no whole number of words.
    """
    caches = (*k_caches, *v_caches)
    first = caches[0]
    for cache in caches:
        alike = (cache.shape, cache.dtype, cache.device) == (first.shape, first.dtype, first.device)
        if not alike or not cache.is_contiguous():
            raise ValueError("the caches must be contiguous and of one shape, dtype and device")
    if first[0].numel() * first.element_size() % _WORD_BYTES:
        raise ValueError(f"blocks of {first[0].numel()} {first.dtype} are no whole words")
    addresses = torch.tensor([cache.data_ptr() for cache in caches], dtype=torch.int64)
    return BlockCaches(tuple(k_caches), tuple(v_caches), addresses.to(first.device))


@triton.jit(do_not_specialize=["pairs"])
def _copy_blocks_kernel(
    address_ptr,  # [tensors] int64
    source_ptr,  # [pairs], source_stride apart
    destination_ptr,  # [pairs], destination_stride apart
    pairs,
    source_stride,
    destination_stride,
    WORDS: tl.constexpr,
    PAIRS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program = (tile of a block, tensor), for all pairs: it alone touches those words."""
    cache = tl.load(address_ptr + tl.program_id(1)).to(tl.pointer_type(tl.int32))
    pair = tl.arange(0, PAIRS)
    word = tl.program_id(0) * TILE + tl.arange(0, TILE)
    source = tl.load(source_ptr + pair * source_stride, mask=pair < pairs, other=0).to(tl.int64)
    destination = tl.load(
        destination_ptr + pair * destination_stride, mask=pair < pairs, other=0
    ).to(tl.int64)
    inside = (pair < pairs)[:, None] & (word < WORDS)[None, :]
    content = tl.load(cache + source[:, None] * WORDS + word[None, :], mask=inside)
    # A block may be both source and destination: all threads have read before one writes.
    tl.debug_barrier()
    tl.store(cache + destination[:, None] * WORDS + word[None, :], content, mask=inside)


def copy_blocks(caches: BlockCaches, source: Tensor, destination: Tensor) -> None:
    """Copies block ``source[i]`` over block ``destination[i]`` in every tensor of the pool; all
    sources are read first.

    Args:
        caches: from ``block_caches``.
        source: ``[pairs]`` int64 block ids; ``destination`` likewise, without repetition.

    Raises:
        ValueError: as many sources as destinations are expected.
    """
    if source.shape != destination.shape or source.dim() != 1:
        raise ValueError(f"{tuple(source.shape)} sources, {tuple(destination.shape)} destinations")
    pairs = len(source)
    if pairs == 0:
        return
    if pairs > MAX_COPY_PAIRS:
        for k_cache, v_cache in zip(caches.k_caches, caches.v_caches, strict=True):
            copy_in_layer(k_cache, v_cache, source, destination)
        return
    words = caches.block_words
    launch = copy_launch(pairs, words)
    with on_device_of(caches.addresses):
        _copy_blocks_kernel[(-(-words // launch.tile), len(caches.addresses))](
            caches.addresses,
            source,
            destination,
            pairs,
            source.stride(0),
            destination.stride(0),
            WORDS=words,
            PAIRS=launch.pairs,
            TILE=launch.tile,
            num_warps=launch.num_warps,
        )
