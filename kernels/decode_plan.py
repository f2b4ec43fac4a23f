"""Who attends to what in a decode step: the contexts of a batch cut into items of equal work.

The item list is made on the device from the lengths that a step really has, by one small kernel a
step, for all layers. So a CUDA graph captured for wide tables cuts short contexts as finely as one
for narrow tables, and one long context beside many short ones is spread over the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.device_guard import on_device_of
from kernels.launch import DecodeLaunch, decode_launch, next_power_of_2

ITEM_WORDS = tl.constexpr(8)
"""int32 words of an item: sequence, first tile, end tile, the sequence's first item, its number of
items, lowest token, length. Word 0 of the plan is the number of items; the list begins at word 8,
the largest first, the items of one sequence behind one another.
"""

MOST_PROGRAMS = 65_535
"""Of a launch in each of its dimensions but the first."""

# As large as the others is a part of at most a quarter and two tiles more than a program's share.
_EVEN_SIXTEENTHS = tl.constexpr(20)
_EVEN_TILES = tl.constexpr(2)


# Compiled once for a power of two of sequences, whatever their number is divisible by.
@triton.jit(do_not_specialize=["batch", "spread", "part_share"])
def _plan_kernel(
    length_ptr,  # [batch]
    start_ptr,  # [batch] tokens at the beginning to leave out, or unused
    plan_ptr,  # int32, see ITEM_WORDS
    counter_ptr,  # [batch, kv_heads] int32
    batch,
    spread,
    part_share,
    min_tiles,
    BATCH_POW2: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KV_HEADS_POW2: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
    FIXED_TILES: tl.constexpr,
    MOST_POW2: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_START: tl.constexpr,
):
    """Program = sequence; each reads all lengths."""
    own = tl.program_id(0)
    row = tl.arange(0, BATCH_POW2)
    length = tl.load(length_ptr + row, mask=row < batch, other=0).to(tl.int32)
    lowest = tl.zeros_like(length)
    if HAS_START:
        lowest = tl.load(start_ptr + row, mask=row < batch, other=0).to(tl.int32)
    if WINDOW > 0:
        lowest = tl.maximum(lowest, length - WINDOW)
    first_tile = lowest // TILE
    tiles = tl.where(length > lowest, tl.cdiv(length, TILE) - first_tile, 0)
    if SPLITS > 0:
        wanted = tl.minimum(tiles, SPLITS)
    elif FIXED_TILES > 0:
        wanted = tl.cdiv(tiles, FIXED_TILES)
    else:
        whole = tl.maximum(tl.sum(tiles, 0), 1)
        # Joining takes as long as there are parts, a part as long as it has tiles.
        most = (tl.sqrt(tiles.to(tl.float32)) * 4.0).to(tl.int32)
        most = tl.minimum(most, tl.cdiv(tiles, min_tiles))
        # All parts at once, rounded down: one that does not fit would run alone at the end.
        wanted = tl.minimum(tl.maximum(tiles * spread // whole, 1), most)
        largest = tl.max(tl.cdiv(tiles, tl.maximum(wanted, 1)), 0) - _EVEN_TILES
        even = largest * spread * 16 <= whole * _EVEN_SIXTEENTHS
        fits = even & (tl.sum(wanted, 0) <= spread)
        # Or in several waves: small parts at the end fill what the large ones leave.
        largest = tl.maximum(tl.cdiv(whole * part_share, 16 * spread), 1)
        wanted = tl.where(fits, wanted, tl.minimum(tl.cdiv(tiles, largest), most))
    # A padded row has one item too: its output is written.
    items = tl.where(row < batch, tl.maximum(wanted, 1), 0)
    mine = row == own
    items_own = tl.sum(tl.where(mine, items, 0), 0)
    tiles_own = tl.sum(tl.where(mine, tiles, 0), 0)
    # What is begun last ends last: the largest first, as in longest-processing-time scheduling.
    size = tl.cdiv(tiles, tl.maximum(items, 1))
    size_own = tl.cdiv(tiles_own, items_own)
    before = (size > size_own) | ((size == size_own) & (row < own))
    first_item = tl.sum(tl.where(before, items, 0), 0)
    tile_own = tl.sum(tl.where(mine, first_tile, 0), 0)
    part = tl.arange(0, MOST_POW2)
    inside = part < items_own
    word = plan_ptr + (1 + first_item + part) * ITEM_WORDS
    tl.store(word, own + tl.zeros_like(part), mask=inside)
    tl.store(word + 1, tile_own + tiles_own * part // items_own, mask=inside)
    tl.store(word + 2, tile_own + tiles_own * (part + 1) // items_own, mask=inside)
    tl.store(word + 3, first_item + tl.zeros_like(part), mask=inside)
    tl.store(word + 4, items_own + tl.zeros_like(part), mask=inside)
    tl.store(word + 5, tl.sum(tl.where(mine, lowest, 0), 0) + tl.zeros_like(part), mask=inside)
    tl.store(word + 6, tl.sum(tl.where(mine, length, 0), 0) + tl.zeros_like(part), mask=inside)
    if own == 0:
        tl.store(plan_ptr, tl.sum(items, 0))
    head = tl.arange(0, KV_HEADS_POW2)
    tl.store(counter_ptr + own * KV_HEADS + head, tl.zeros_like(head), mask=head < KV_HEADS)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """The items of one step and the memory in which their parts meet; the same for every layer.

    ``items``: int32, see ``ITEM_WORDS``; at most ``capacity`` of them. ``counters``:
    ``[batch, kv_heads]`` int32, parts that are done. ``partial``: ``[shared_rows + capacity,
    heads, head_dim]`` float32, ``lse``: ``[shared_rows + capacity, heads]`` float32, base 2, of
    parts that come from elsewhere and of the plan's own. ``window``: tokens that a query sees, 0
    for all.
    """

    items: Tensor
    counters: Tensor
    partial: Tensor
    lse: Tensor
    capacity: int
    batch: int
    launch: DecodeLaunch
    window: int
    shared_rows: int = 0

    @property
    def slices(self) -> int:
        """Into how many equal ones the items are cut for the launch: parts that must not depend on
        other sequences can be more than it takes in one dimension (64 contexts of a million).
        """
        return _slices(self.capacity)


def _slices(capacity: int) -> int:
    return max(1, -(-capacity // MOST_PROGRAMS))


def plan_decode(
    context_lens: Tensor,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    max_context: int,
    *,
    window: int | None = None,
    starts: Tensor | None = None,
    splits: int | None = None,
    deterministic: bool = False,
    launch: DecodeLaunch | None = None,
    shared_rows: int = 0,
) -> DecodePlan:
    """Cuts a step's contexts into items.

    Args:
        context_lens: ``[batch]`` integers, tokens to attend to, the new one included; 0 for a
            padded row.
        num_heads: query heads.
        num_kv_heads: heads of keys and values.
        head_dim: of both.
        max_context: no length is above it.
        window: a query sees the last so many tokens, its own included; None for all.
        starts: ``[batch]`` integers, tokens at the beginning of each context to leave out.
        splits: so many parts of every context (as far as it has tiles).
        deterministic: the parts are a function of a sequence's own length and start only.
        launch: tiles and warps; chosen by ``launch.decode_launch`` if None.
        shared_rows: rows of ``partial`` that are kept for what another kernel computes.
    """
    batch = context_lens.shape[0]
    device = context_lens.device
    chosen = launch or decode_launch(num_heads, num_kv_heads, head_dim, device, batch)
    most_parts = triton.cdiv(16 * chosen.spread, chosen.part_share)
    most_tiles = max(1, triton.cdiv(max_context, chosen.tile)) + 1
    if splits:
        most = splits
    elif deterministic:
        most = triton.cdiv(most_tiles, chosen.fixed_tiles)
    else:
        most = min(most_parts, triton.cdiv(most_tiles, chosen.min_tiles))
    capacity = batch * most
    if not splits and not deterministic:
        capacity = min(capacity, batch + most_parts)
    slices = _slices(capacity)
    capacity = triton.cdiv(capacity, slices) * slices
    words = (1 + capacity) * 8
    memory = torch.empty(words + batch * num_kv_heads, dtype=torch.int32, device=device)
    cells = (shared_rows + capacity) * num_heads
    floats = torch.empty(cells * (head_dim + 1), dtype=torch.float32, device=device)
    cut = cells * head_dim
    plan = DecodePlan(
        items=memory[:words],
        counters=memory[words:],
        partial=floats[:cut],
        lse=floats[cut:],
        capacity=capacity,
        batch=batch,
        launch=chosen,
        window=window or 0,
        shared_rows=shared_rows,
    )
    if batch == 0:
        return plan
    with on_device_of(context_lens):
        _plan_kernel[(batch,)](
            context_lens,
            context_lens if starts is None else starts,
            plan.items,
            plan.counters,
            batch,
            chosen.spread,
            chosen.part_share,
            chosen.min_tiles,
            BATCH_POW2=next_power_of_2(batch),
            KV_HEADS=num_kv_heads,
            KV_HEADS_POW2=next_power_of_2(num_kv_heads),
            TILE=chosen.tile,
            SPLITS=splits or 0,
            FIXED_TILES=chosen.fixed_tiles if deterministic else 0,
            MOST_POW2=next_power_of_2(most),
            WINDOW=plan.window,
            HAS_START=starts is not None,
            num_warps=1 if batch <= 64 else 4,
        )
    return plan
