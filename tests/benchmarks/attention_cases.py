"""Inputs of the attention kernels: paged pools of noise, large enough to be read from memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.benchmarks.graph_timing import rotations


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, KV heads and their size, of a model."""

    name: str
    query: int
    kv: int
    dim: int

    def kv_bytes(self, itemsize: int) -> int:
        """Keys and values of a token in one layer."""
        return 2 * self.kv * self.dim * itemsize


QWEN3_06B = Heads("Qwen3-0.6B", 16, 8, 128)
QWEN3_8B = Heads("Qwen3-8B", 32, 8, 128)
SMOLLM2 = Heads("SmolLM2-135M", 9, 3, 64)


@dataclass(frozen=True, slots=True)
class PagedCase:
    """A pool and the tables of several rotations over it.

    ``tables[i]``: ``[batch, blocks]`` int32, all blocks different, in no order. ``query``:
    ``[rows, heads, head_dim]``. ``caches``: K and V, each
    ``[num_blocks, block_size, kv_heads, head_dim]``. ``lengths``: ``[batch]`` int32, all
    ``context``.
    """

    heads: Heads
    query: Tensor
    caches: tuple[Tensor, Tensor]
    tables: Sequence[Tensor]
    lengths: Tensor
    context: int

    @property
    def scale(self) -> float:
        return self.heads.dim**-0.5

    @property
    def block_size(self) -> int:
        return self.caches[0].shape[1]

    def gathered(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a rotation as a dense batch, ``[batch, kv_heads, context, dim]``."""
        keys, values = (
            cache[self.tables[index].long()].flatten(1, 2)[:, : self.context].transpose(1, 2)
            for cache in self.caches
        )
        return keys.contiguous(), values.contiguous()


def paged_case(
    heads: Heads,
    batch: int,
    context: int,
    rows: int,
    *,
    block_size: int,
    device: torch.device,
    dtype: torch.dtype,
    shared: int = 0,
    num_rotations: int = 0,
) -> PagedCase:
    """A pool with as many rotations as it takes, a shuffled table for each sequence.

    Args:
        heads: of the model.
        batch: sequences.
        context: tokens of each, whole blocks or not.
        rows: query rows in all.
        block_size: tokens a block.
        device: where.
        dtype: of queries, keys and values.
        shared: leading tokens that all sequences have in common, whole blocks.
        num_rotations: rotations; 0: as many as it takes to be read from memory.
    """
    blocks, common = -(-context // block_size), shared // block_size
    each = common + batch * (blocks - common)
    count = num_rotations or rotations(each * block_size * heads.kv_bytes(dtype.itemsize))
    shape = (each * count, block_size, heads.kv, heads.dim)
    caches = tuple(torch.empty(shape, dtype=dtype, device=device).normal_() for _ in range(2))
    order = torch.randperm(each * count, device=device).int().view(count, each)
    tables = []
    for ids in order:
        table = ids[common:].view(batch, blocks - common)
        tables.append(torch.cat((ids[:common].expand(batch, -1), table), 1).contiguous())
    query = torch.randn((rows, heads.query, heads.dim), dtype=dtype, device=device)
    lengths = torch.full((batch,), context, dtype=torch.int32, device=device)
    return PagedCase(heads, query, (caches[0], caches[1]), tables, lengths, context)
