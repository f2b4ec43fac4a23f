"""How a step's shared beginnings are cut into items, once for all layers (Triton)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.decode_plan import DecodePlan, plan_decode
from kernels.device_guard import on_device_of
from kernels.launch import (
    DecodeLaunch,
    SharedLaunch,
    next_power_of_2,
    own_launch,
    shared_launch,
)
from kernels.paged_decode import SharedParts


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
    launch_of_own: DecodeLaunch | None = None,
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
        launch_of_own: how the rest is cut; chosen by ``launch.own_launch`` if None.
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
        launch=launch_of_own or own_launch(num_heads, num_kv_heads, head_dim, device),
        shared_rows=capacity * width,
    )
    parts = SharedParts(places, width)
    return SharedPlan(own, memory[:words], parts, capacity, chosen)
