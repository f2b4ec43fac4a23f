"""Decode attention where groups of sequences begin with the same blocks (Triton).

The shared beginning is read once for all sequences of a group: its parts have (sequence, head)
pairs as rows. What a sequence has of its own goes through ``paged_decode``, which joins both.
Two launches a layer.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention_tiles import attend_tiles, first_blocks, normalise
from kernels.checks import check_batch, check_paged, output_like
from kernels.dependent_launch import pdl_option
from kernels.device_guard import on_device_of
from kernels.launch import dot_width, fitting_rows
from kernels.paged_decode import launch_decode
from kernels.shared_prefix_plan import SharedPlan, plan_shared_prefix_decode


@triton.jit
def _shared_prefix_kernel(
    query_ptr,  # [batch, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # [batch, blocks]
    member_ptr,  # [groups, width]
    shared_ptr,  # [groups] blocks
    item_ptr,  # int32, see shared_prefix_plan
    partial_ptr,  # [items, width, heads, head_dim] float32
    lse_ptr,  # [items, width, heads] float32, base 2
    scale,
    query_stride_token,
    query_stride_head,
    table_stride,
    WIDTH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    ROW_TILES: tl.constexpr,
    TILE: tl.constexpr,
    EARLY: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program = ((KV head, rows), item); row = (sequence of the group, query head of the KV head).

    Programs that read the same keys are neighbours, so that one of them reads from memory."""
    kv_head = tl.program_id(0) // ROW_TILES
    item = tl.program_id(1)
    word = item_ptr + 4 * (1 + item)
    count = tl.load(item_ptr)
    group = tl.load(word)
    first = tl.load(word + 1)
    last = tl.load(word + 2)
    if item >= count:
        if EARLY:
            # The kernel after this one reads keys and values as soon as all programs here have
            # waited or ended.
            gdc_wait()
        return

    members = member_ptr + group.to(tl.int64) * WIDTH
    table = table_ptr + tl.load(members).to(tl.int64) * table_stride
    length = tl.load(shared_ptr + group).to(tl.int32) * BLOCK_SIZE
    blocks = first_blocks(table, first, 0, length, BLOCK_SIZE, TILE)
    pair = (tl.program_id(0) % ROW_TILES) * ROWS + tl.arange(0, ROWS)
    member = pair // GROUP
    head = kv_head * GROUP + pair % GROUP
    sequence = tl.load(members + member, mask=member < WIDTH, other=-1).to(tl.int64)
    if EARLY:
        # As in paged_decode.
        gdc_wait()
        gdc_launch_dependents()
    dim = tl.arange(0, DIM_POW2)
    in_dim = dim < HEAD_DIM
    mask = (sequence >= 0)[:, None] & in_dim[None, :]
    q = tl.load(
        query_ptr
        + sequence[:, None] * query_stride_token
        + head[:, None] * query_stride_head
        + dim[None, :],
        mask=mask,
        other=0.0,
    )
    if UPCAST:
        q = q.to(tl.float32)
    acc, best, total = attend_tiles(
        q,
        blocks,
        k_cache_ptr + kv_head * HEAD_DIM,
        v_cache_ptr + kv_head * HEAD_DIM,
        table,
        first,
        last,
        0,
        length,
        scale,
        NUM_KV_HEADS * HEAD_DIM,
        HEAD_DIM,
        DIM_POW2,
        BLOCK_SIZE,
        ROWS,
        TILE,
        UPCAST,
        PRECISION,
    )
    result, lse = normalise(acc, best, total)
    cell = (item.to(tl.int64) * WIDTH + member) * NUM_HEADS + head
    tl.store(partial_ptr + cell[:, None] * HEAD_DIM + dim[None, :], result, mask=mask)
    tl.store(lse_ptr + cell, lse, mask=sequence >= 0)


def shared_prefix_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    members: Tensor,
    shared_blocks: Tensor,
    scale: float,
    *,
    max_context: int | None = None,
    plan: SharedPlan | None = None,
    out: Tensor | None = None,
    upcast: bool = False,
) -> Tensor:
    """``paged_decode`` that reads what sequences have in common once a group.

    Args:
        query: ``[batch, heads, head_dim]``, head_dim contiguous.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; 0 for a padded row.
        members: ``[groups, width]`` integers, the batch rows of each group, -1 behind the last.
        shared_blocks: ``[groups]`` integers; see ``plan_shared_prefix_decode``.
        scale: factor on the scores.
        max_context: the longest of ``context_lens``, known to the host; else the tables' width.
        plan: from ``plan_shared_prefix_decode`` of the same inputs, once for all layers of a step;
            as in ``paged_decode`` some other kernel must lie between.
        out: ``[batch, heads, head_dim]``, contiguous, is written; a new tensor if None.
        upcast: multiply in float32 (the interpreter cannot multiply bfloat16).

    Returns:
        ``[batch, heads, head_dim]``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    batch, num_heads, head_dim = query.shape
    block_size, num_kv_heads = k_cache.shape[1:3]
    check_paged(query, k_cache, v_cache)
    check_batch(block_tables, context_lens, batch)
    if shared_blocks.shape != members.shape[:1]:
        raise ValueError(f"{shared_blocks.shape[0]} prefixes for {members.shape[0]} groups")
    result = output_like(query, out)
    if batch == 0:
        return result
    early = plan is not None
    if plan is None:
        plan = plan_shared_prefix_decode(
            context_lens,
            members,
            shared_blocks,
            block_size,
            num_heads,
            num_kv_heads,
            head_dim,
            max_context or block_tables.shape[1] * block_size,
        )
    group, width = num_heads // num_kv_heads, members.shape[1]
    rows = fitting_rows(plan.launch, head_dim, query.element_size(), query.device)
    row_tiles = triton.cdiv(width * group, rows)
    with on_device_of(query):
        _shared_prefix_kernel[(num_kv_heads * row_tiles, plan.capacity)](
            query,
            k_cache,
            v_cache,
            block_tables,
            members,
            shared_blocks,
            plan.items,
            plan.own.partial,
            plan.own.lse,
            scale,
            query.stride(0),
            query.stride(1),
            block_tables.stride(0),
            WIDTH=width,
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=group,
            HEAD_DIM=head_dim,
            DIM_POW2=dot_width(head_dim),
            BLOCK_SIZE=block_size,
            ROWS=rows,
            ROW_TILES=row_tiles,
            TILE=plan.launch.tile,
            EARLY=early and plan.launch.early,
            UPCAST=upcast,
            PRECISION="ieee",
            num_warps=plan.launch.num_warps,
            num_stages=plan.launch.num_stages,
            **pdl_option(early and plan.launch.early),
        )
    launch_decode(
        query,
        k_cache,
        v_cache,
        block_tables,
        result,
        plan.own,
        scale,
        shared=plan.parts,
        upcast=upcast,
    )
    return result
