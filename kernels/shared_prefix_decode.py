"""Decode attention where groups of sequences begin with the same blocks (Triton).

The shared beginning is read once for all sequences of a group: its parts have (sequence, head)
pairs as rows. What a sequence has of its own goes through ``paged_decode``, which joins both.
Two launches a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention_tiles import attend_tiles, first_blocks, normalise
from kernels.checks import check_paged
from kernels.decode_plan import DecodePlan, plan_decode
from kernels.dependent_launch import pdl_option
from kernels.device_guard import on_device_of
from kernels.launch import DecodeLaunch, SharedLaunch, next_power_of_2, shared_launch
from kernels.paged_decode import SharedParts, launch_decode


@triton.jit
def _shared_plan_kernel(
    member_ptr,  # [groups, width], -1 where there is none
    shared_ptr,  # [groups] blocks
    item_ptr,  # [1 + capacity, 4] int32: group, first tile, end tile; word 0: how many
    place_ptr,  # [batch, 2] int32: row of the first shared part, number of them
    start_ptr,  # [batch] int32: tokens that are shared
    groups,
    spread,
    min_tiles,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
    GROUPS_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    MOST_POW2: tl.constexpr,
):
    """Program = sequence; the first ones lay out a group's items too."""
    own = tl.program_id(0)
    row = tl.arange(0, GROUPS_POW2)
    blocks = tl.load(shared_ptr + row, mask=row < groups, other=0).to(tl.int32)
    tiles = tl.cdiv(blocks * BLOCK_SIZE, TILE)
    size = tl.maximum(tl.cdiv(tl.sum(tiles, 0), spread), min_tiles)
    items = tl.cdiv(tiles, size)
    first_items = tl.cumsum(items, 0) - items

    column = tl.arange(0, WIDTH_POW2)
    inside = (row < groups)[:, None] & (column < WIDTH)[None, :]
    member = tl.load(member_ptr + row[:, None] * WIDTH + column[None, :], mask=inside, other=-1).to(
        tl.int32
    )
    found = member == own
    in_group = tl.sum(found.to(tl.int32), 1)
    first_row = tl.sum(in_group * first_items, 0) * WIDTH
    first_row += tl.sum(tl.sum(found.to(tl.int32) * column[None, :], 1), 0)
    parts = tl.sum(in_group * items, 0)
    tokens = tl.sum(in_group * blocks, 0) * BLOCK_SIZE
    tl.store(place_ptr + 2 * own, first_row)
    tl.store(place_ptr + 2 * own + 1, parts)
    tl.store(start_ptr + own, tokens)
    if own == 0:
        tl.store(item_ptr, tl.sum(items, 0))
    if own < groups:
        mine = row == own
        items_own = tl.sum(tl.where(mine, items, 0), 0)
        tiles_own = tl.sum(tl.where(mine, tiles, 0), 0)
        part = tl.arange(0, MOST_POW2)
        word = item_ptr + 4 * (1 + tl.sum(tl.where(mine, first_items, 0), 0) + part)
        stored = part < items_own
        divisor = tl.maximum(items_own, 1)
        tl.store(word, own + tl.zeros_like(part), mask=stored)
        tl.store(word + 1, tiles_own * part // divisor, mask=stored)
        tl.store(word + 2, tiles_own * (part + 1) // divisor, mask=stored)


@triton.jit
def _shared_prefix_kernel(
    query_ptr,  # [batch, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # [batch, blocks]
    member_ptr,  # [groups, width]
    shared_ptr,  # [groups] blocks
    item_ptr,  # int32, see _shared_plan_kernel
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
        return

    members = member_ptr + group.to(tl.int64) * WIDTH
    table = table_ptr + tl.load(members).to(tl.int64) * table_stride
    length = tl.load(shared_ptr + group).to(tl.int32) * BLOCK_SIZE
    blocks = first_blocks(table, first, 0, length, BLOCK_SIZE, TILE)
    if EARLY:
        # As in paged_decode.
        gdc_wait()
        gdc_launch_dependents()
    pair = (tl.program_id(0) % ROW_TILES) * ROWS + tl.arange(0, ROWS)
    member = pair // GROUP
    head = kv_head * GROUP + pair % GROUP
    sequence = tl.load(members + member, mask=member < WIDTH, other=-1).to(tl.int64)
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


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """A step's groups cut into items, and the plan of what each sequence has of its own."""

    own: DecodePlan
    items: Tensor
    parts: SharedParts
    capacity: int
    launch: SharedLaunch


def plan_shared_prefix_decode(
    context_lens: Tensor,
    members: Tensor,
    shared_blocks: Tensor,
    block_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    max_context: int,
    *,
    launch: SharedLaunch | None = None,
    own_launch: DecodeLaunch | None = None,
) -> SharedPlan:
    """Cuts the shared beginnings and the rest of a step's contexts into items.

    Args:
        context_lens: ``[batch]`` integers, tokens to attend to, the new one included.
        members: ``[groups, width]`` integers, the batch rows of each group, -1 behind the last;
            contiguous. No row is in two groups.
        shared_blocks: ``[groups]`` integers, blocks at the beginning that all rows of the group
            have in common; each is full, and none holds a row's new token. 0 for a padded group.
        block_size: tokens a block.
        num_heads: query heads.
        num_kv_heads: heads of keys and values.
        head_dim: of both.
        max_context: no length is above it.
        launch: how the shared beginnings are cut; chosen by ``launch.shared_launch`` if None.
        own_launch: how the rest is cut.
    """
    batch, device = context_lens.shape[0], context_lens.device
    groups, width = members.shape
    if groups > batch:
        raise ValueError(f"{groups} groups of {batch} sequences")
    if not members.is_contiguous():
        raise ValueError("the members must be contiguous")
    chosen = launch or shared_launch(width, num_heads, num_kv_heads, head_dim, device)
    most_tiles = max(1, triton.cdiv(max_context, chosen.tile))
    most = min(chosen.spread, triton.cdiv(most_tiles, chosen.min_tiles))
    capacity = min(groups * most, groups + chosen.spread)
    words = 4 * (1 + capacity)
    memory = torch.empty(words + 3 * batch, dtype=torch.int32, device=device)
    rows = capacity * width * num_heads
    floats = torch.empty(rows * (head_dim + 1), dtype=torch.float32, device=device)
    places, starts = memory[words : words + 2 * batch], memory[words + 2 * batch :]
    with on_device_of(context_lens):
        _shared_plan_kernel[(batch,)](
            members,
            shared_blocks,
            memory,
            places,
            starts,
            groups,
            chosen.spread,
            chosen.min_tiles,
            WIDTH=width,
            WIDTH_POW2=next_power_of_2(width),
            GROUPS_POW2=next_power_of_2(groups),
            BLOCK_SIZE=block_size,
            TILE=chosen.tile,
            MOST_POW2=next_power_of_2(most),
            num_warps=1,
        )
    own = plan_decode(
        context_lens,
        num_heads,
        num_kv_heads,
        head_dim,
        max_context,
        starts=starts,
        launch=own_launch,
    )
    parts = SharedParts(places, floats[: rows * head_dim], floats[rows * head_dim :], width)
    return SharedPlan(own, memory[:words], parts, capacity, chosen)


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
    if block_tables.shape[0] != batch or context_lens.shape != (batch,):
        raise ValueError(
            f"{block_tables.shape[0]} tables and {context_lens.shape[0]} lengths for {batch} rows"
        )
    if shared_blocks.shape != members.shape[:1]:
        raise ValueError(f"{shared_blocks.shape[0]} prefixes for {members.shape[0]} groups")
    result = query.new_empty(query.shape) if out is None else out
    if result.shape != query.shape or not result.is_contiguous():
        raise ValueError(f"out {tuple(result.shape)} must be contiguous, {tuple(query.shape)}")
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
    row_tiles = triton.cdiv(width * group, plan.launch.rows)
    with on_device_of(query):
        _shared_prefix_kernel[(num_kv_heads * row_tiles, plan.capacity)](
            query,
            k_cache,
            v_cache,
            block_tables,
            members,
            shared_blocks,
            plan.items,
            plan.parts.partial,
            plan.parts.lse,
            scale,
            query.stride(0),
            query.stride(1),
            block_tables.stride(0),
            WIDTH=width,
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=group,
            HEAD_DIM=head_dim,
            DIM_POW2=next_power_of_2(head_dim),
            BLOCK_SIZE=block_size,
            ROWS=plan.launch.rows,
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
