"""Attention of one new token a sequence over its paged keys and values (Triton).

One launch: each item of the step's plan (``decode_plan``) keeps a running softmax over its part of
a context, and the program that finishes a sequence's last part joins all of them. The query heads
of one KV head are rows of one tile; where tiles begin does not depend on the block size.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention_tiles import attend_tiles, first_blocks, join_parts, normalise
from kernels.checks import check_batch, check_paged, output_like
from kernels.decode_plan import ITEM_WORDS, DecodePlan, plan_decode
from kernels.dependent_launch import pdl_option
from kernels.device_guard import on_device_of
from kernels.launch import dot_width, next_power_of_2


# Compiled once, whatever the number of shared rows is divisible by.
@triton.jit(do_not_specialize=["shared_rows"])
def _paged_decode_kernel(
    query_ptr,  # [batch, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # [batch, blocks]
    plan_ptr,  # int32, see ITEM_WORDS
    counter_ptr,  # [batch, kv_heads] int32
    out_ptr,  # [batch, heads, head_dim], contiguous
    partial_ptr,  # [shared rows + items, heads, head_dim] float32
    lse_ptr,  # [shared rows + items, heads] float32, base 2
    member_ptr,  # [batch, 2] int32: row of the first shared part, number of shared parts
    shared_rows,
    scale,
    query_stride_token,
    query_stride_head,
    table_stride,
    shared_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_POW2: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SLICED: tl.constexpr,  # there are more items than programs in one dimension
    SHARED: tl.constexpr,
    EARLY: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program = (KV head, item); rows = the query heads of the KV head."""
    kv_head = tl.program_id(0)
    item = tl.program_id(1)
    if SLICED:
        item += tl.program_id(2) * tl.num_programs(1)
    word = plan_ptr + (1 + item) * ITEM_WORDS
    count = tl.load(plan_ptr)
    sequence = tl.load(word).to(tl.int64)
    first = tl.load(word + 1)
    last = tl.load(word + 2)
    first_item = tl.load(word + 3).to(tl.int64)
    parts = tl.load(word + 4)
    lowest = tl.load(word + 5)
    length = tl.load(word + 6)
    if item >= count:
        return
    # Asked for here: who joins would wait for it.
    shared_row = tl.zeros([], tl.int64)
    shared_parts = 0
    if SHARED:
        shared_row = tl.load(member_ptr + 2 * sequence).to(tl.int64)
        shared_parts = tl.load(member_ptr + 2 * sequence + 1)

    table = table_ptr + sequence * table_stride
    blocks = first_blocks(table, first, lowest, length, BLOCK_SIZE, TILE)
    if EARLY:
        # Plan and tables are older than the kernel before this one, whose end is waited for here.
        # With shared parts it is the one that computes them, and has let this one start only when
        # queries, keys and values were there: its end matters to those who join.
        if not SHARED:
            gdc_wait()
        gdc_launch_dependents()
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_POW2)
    in_dim = dim < HEAD_DIM
    head = kv_head * GROUP + row
    mask = (row < GROUP)[:, None] & in_dim[None, :]
    q = tl.load(
        query_ptr
        + sequence * query_stride_token
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
        lowest,
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
    if parts == 1 and not SHARED:
        place = (sequence * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
        tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        cell = (item + shared_rows).to(tl.int64) * NUM_HEADS + head
        tl.store(partial_ptr + cell[:, None] * HEAD_DIM + dim[None, :], result, mask=mask)
        tl.store(lse_ptr + cell, lse, mask=row < GROUP)
        # All threads' stores come before the count, and the count before the joiner's loads.
        tl.debug_barrier()
        done = tl.atomic_add(counter_ptr + sequence * NUM_KV_HEADS + kv_head, 1, sem="acq_rel")
        # The count goes on from layer to layer.
        if done % parts == parts - 1:
            member = tl.arange(0, GROUP_POW2)
            in_group = member < GROUP
            if SHARED and EARLY:
                gdc_wait()
            sums, joined, divisor = join_parts(
                partial_ptr,
                lse_ptr,
                (first_item + shared_rows) * NUM_HEADS + kv_head * GROUP,
                parts,
                NUM_HEADS,
                shared_row * NUM_HEADS + kv_head * GROUP,
                shared_parts,
                shared_stride,
                member,
                in_group,
                GROUP_POW2,
                HEAD_DIM,
                DIM_POW2,
                CHUNK,
                SHARED,
            )
            whole, _ = normalise(sums, joined, divisor)
            place = (sequence * NUM_HEADS + kv_head * GROUP + member)[:, None] * HEAD_DIM
            tl.store(
                out_ptr + place + dim[None, :],
                whole.to(out_ptr.dtype.element_ty),
                mask=in_group[:, None] & in_dim[None, :],
            )


@dataclass(frozen=True, slots=True)
class SharedParts:
    """Where a plan's ``partial`` has the parts of a shared beginning, to be joined with each
    sequence's own.

    ``members``: ``[batch, 2]`` int32, a sequence's row of its first shared part and the number of
    them, 0 for a sequence without. ``stride``: rows from one part of a sequence to the next.
    """

    members: Tensor
    stride: int


def paged_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    *,
    max_context: int | None = None,
    window: int | None = None,
    plan: DecodePlan | None = None,
    out: Tensor | None = None,
    splits: int | None = None,
    deterministic: bool = False,
    upcast: bool = False,
) -> Tensor:
    """``softmax(scale * q k^T) v`` of each sequence's new token over its whole context.

    Args:
        query: ``[batch, heads, head_dim]``, head_dim contiguous.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.
        block_tables: ``[batch, blocks]`` integer ids; entries past a sequence's last block are not
            read.
        context_lens: ``[batch]`` tokens to attend to, the new one included; 0 for a padded row,
            whose output is 0.
        scale: factor on the scores.
        max_context: the longest of ``context_lens``, known to the host; else the tables' width.
        window: a query sees the last so many tokens, its own included; None for all.
        plan: from ``plan_decode`` of the same lengths, once for all layers of a step; then
            ``max_context``, ``window``, ``splits`` and ``deterministic`` are the plan's. At least
            one kernel that does not start early must lie between the plan and the first use.
        out: ``[batch, heads, head_dim]``, contiguous, is written; a new tensor if None.
        splits: parts of every context; chosen by ``launch.decode_launch`` if None.
        deterministic: a sequence's output depends on its own length alone, bit for bit.
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
    if plan is not None and plan.batch != batch:
        raise ValueError(f"a plan of {plan.batch} sequences for {batch} rows")
    result = output_like(query, out)
    if batch == 0:
        return result
    early = plan is not None
    if plan is None:
        plan = plan_decode(
            context_lens,
            num_heads,
            num_kv_heads,
            head_dim,
            max_context or block_tables.shape[1] * block_size,
            window=window,
            splits=splits,
            deterministic=deterministic,
        )
    launch_decode(
        query, k_cache, v_cache, block_tables, result, plan, scale, early=early, upcast=upcast
    )
    return result


def launch_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    out: Tensor,
    plan: DecodePlan,
    scale: float,
    *,
    shared: SharedParts | None = None,
    early: bool = True,
    upcast: bool = False,
) -> None:
    """Computes a plan's items and joins them, with ``shared`` parts if there are, which another
    kernel has computed; see ``paged_decode``.

    Args:
        out: ``[batch, heads, head_dim]``, contiguous; is written.
        early: the launch may begin before the kernel before it ends: that is not the plan's.
    """
    num_heads, head_dim = query.shape[1:]
    block_size, num_kv_heads = k_cache.shape[1:3]
    group = num_heads // num_kv_heads
    launch, slices = plan.launch, plan.slices
    early = early and launch.early
    with on_device_of(query):
        _paged_decode_kernel[(num_kv_heads, plan.capacity // slices, slices)](
            query,
            k_cache,
            v_cache,
            block_tables,
            plan.items,
            plan.counters,
            out,
            plan.partial,
            plan.lse,
            shared.members if shared else plan.items,
            plan.shared_rows,
            scale,
            query.stride(0),
            query.stride(1),
            block_tables.stride(0),
            shared.stride * num_heads if shared else 0,
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=group,
            GROUP_POW2=next_power_of_2(group),
            HEAD_DIM=head_dim,
            DIM_POW2=dot_width(head_dim),
            BLOCK_SIZE=block_size,
            ROWS=launch.rows,
            TILE=launch.tile,
            CHUNK=launch.join_chunk,
            SLICED=slices > 1,
            SHARED=shared is not None,
            EARLY=early,
            UPCAST=upcast,
            PRECISION="ieee",
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
            **pdl_option(early),
        )
