"""Decode attention where groups of sequences begin with the same blocks."""

from __future__ import annotations

from torch import Tensor

from kernels.reference.paged_decode import paged_decode


def shared_prefix_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    members: Tensor,
    shared_blocks: Tensor,
    scale: float,
) -> Tensor:
    """``paged_decode``: groups change what is read how often, never what comes out.

    Args:
        query: ``[batch, heads, head_dim]``; the pool, tables, lengths and scale as in
            ``paged_decode``.
        members: ``[groups, width]`` integers, the batch rows of each group, −1 behind the last.
        shared_blocks: ``[groups]`` integers, blocks at the beginning that the rows of the group
            have in common.

    Raises:
        ValueError: rows of a group that do not begin with the same blocks.
    """
    for rows, blocks in zip(members.tolist(), shared_blocks.tolist(), strict=True):
        tables = block_tables[[row for row in rows if row >= 0], :blocks]
        if len(tables) and not bool((tables == tables[0]).all()):
            raise ValueError(f"rows {rows} do not have their first {blocks} blocks in common")
    return paged_decode(query, k_cache, v_cache, block_tables, context_lens, scale)
