"""Attention of consecutive tokens of some sequences over their paged keys and values (Triton).

Keys and values are always read from the pages, so a chunk with a cached prefix takes the same path
as one without. The query heads of one KV head are rows of one tile, as in ``paged_decode``. All
chunks of a step go in one launch, which follows a list of tiles made on the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.causal_tiles import attend_causal
from kernels.checks import check_gapless, check_paged, output_like
from kernels.device_guard import on_device_of
from kernels.launch import PrefillLaunch, dot_width, prefill_launch
from kernels.prefill_join import join_rows
from kernels.prefill_tiles import TILE_WORDS

_TILE_WORDS = tl.constexpr(TILE_WORDS)


@triton.jit(do_not_specialize=["single_start", "single_tokens"])
def _paged_prefill_kernel(
    query_ptr,  # [tokens, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # block ids of all chunks
    tile_ptr,  # [tiles, 8] int32, see prefill_tiles; not read if SINGLE
    out_ptr,  # [tokens, heads, head_dim], contiguous
    partial_ptr,  # [tiles, kv_heads, ROWS, DIM_POW2] float32, see prefill_join
    lse_ptr,  # [tiles, kv_heads, ROWS] float32, base 2
    counter_ptr,  # [tiles, kv_heads] int32, zeros; are zeros again afterwards
    scale,
    single_start,
    single_tokens,
    query_stride_token,
    query_stride_head,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    SINGLE: tl.constexpr,
    SPLIT: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program = (KV head, tile); row = (token, query head of the KV head)."""
    kv_head = tl.program_id(0)
    if SINGLE:
        # Late rows have the most keys: they go first.
        first_pair = (tl.num_programs(1) - 1 - tl.program_id(1)) * ROWS
        first_row = 0
        num_tokens = single_tokens
        start = single_start
        table = table_ptr
    else:
        word = tile_ptr + tl.program_id(1) * _TILE_WORDS
        first_row = tl.load(word)
        num_tokens = tl.load(word + 1)
        start = tl.load(word + 2)
        table = table_ptr + tl.load(word + 3)
        first_pair = tl.load(word + 4)
    low = 0
    high = 0x7FFFFFFF
    parts = 1
    first_part = 0
    if SPLIT:
        low = tl.load(word + 5)
        high = tl.load(word + 6)
        parts = tl.load(word + 7) % 64
        first_part = tl.load(word + 7) // 64
    if first_pair >= num_tokens * GROUP:
        return
    pair = first_pair + tl.arange(0, ROWS)
    token = pair // GROUP
    head = kv_head * GROUP + pair % GROUP
    position = start + token
    dim = tl.arange(0, DIM_POW2)
    mask = (token < num_tokens)[:, None] & (dim < HEAD_DIM)[None, :]
    row = (first_row + token).to(tl.int64)
    q = tl.load(
        query_ptr
        + row[:, None] * query_stride_token
        + head[:, None] * query_stride_head
        + dim[None, :],
        mask=mask,
        other=0.0,
    )
    if UPCAST:
        q = q.to(tl.float32)

    first_position = start + first_pair // GROUP
    last_position = start + tl.minimum((first_pair + ROWS - 1) // GROUP, num_tokens - 1)
    # Keys up to the first row's own are seen by every row: whole tiles of them need no mask.
    plain_end = (first_position + 1) // TILE
    tiles = tl.cdiv(last_position + 1, TILE)
    context = start + num_tokens
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_POW2], tl.float32)
    k_head = k_cache_ptr + kv_head * HEAD_DIM
    v_head = v_cache_ptr + kv_head * HEAD_DIM
    plain = 0
    lowest = 0
    if WINDOW > 0:
        lowest = tl.maximum(first_position - WINDOW + 1, 0)
        edge = lowest // TILE
        plain = tl.cdiv(tl.maximum(last_position - WINDOW + 1, 0), TILE)
        plain = tl.minimum(plain, tiles)
        best, total, acc = attend_causal(
            q, best, total, acc, k_head, v_head, table, position, lowest, context,
            tl.maximum(edge, low), tl.minimum(plain, high), scale, NUM_KV_HEADS * HEAD_DIM,
            HEAD_DIM, DIM_POW2, BLOCK_SIZE, TILE, WINDOW, True, UPCAST, PRECISION,
        )  # fmt: skip
        plain_end = tl.maximum(plain_end, plain)
    best, total, acc = attend_causal(
        q, best, total, acc, k_head, v_head, table, position, lowest, context,
        tl.maximum(plain, low), tl.minimum(plain_end, high), scale, NUM_KV_HEADS * HEAD_DIM,
        HEAD_DIM, DIM_POW2, BLOCK_SIZE, TILE, WINDOW, False, UPCAST, PRECISION,
    )  # fmt: skip
    best, total, acc = attend_causal(
        q, best, total, acc, k_head, v_head, table, position, lowest, context,
        tl.maximum(plain_end, low), tl.minimum(tiles, high), scale, NUM_KV_HEADS * HEAD_DIM,
        HEAD_DIM, DIM_POW2, BLOCK_SIZE, TILE, WINDOW, True, UPCAST, PRECISION,
    )  # fmt: skip

    # The window of a padded row may lie behind all keys, a part hold none that a row sees.
    divisor = tl.where(total > 0.0, total, 1.0)
    result = acc / divisor[:, None]
    place = (row * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
    if parts == 1:
        tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=mask)
    if SPLIT and parts > 1:
        lse = tl.where(total > 0.0, best + tl.log2(divisor), float("-inf"))
        cell = (tl.program_id(1) * NUM_KV_HEADS + kv_head) * ROWS + tl.arange(0, ROWS)
        tl.store(lse_ptr + cell, lse)
        tl.store(partial_ptr + cell[:, None] * DIM_POW2 + dim[None, :], result)
        # All threads' stores come before the count, and the count before the joiner's loads.
        tl.debug_barrier()
        counter = counter_ptr + first_part * NUM_KV_HEADS + kv_head
        done = tl.atomic_add(counter, 1, sem="acq_rel")
        if done == parts - 1:
            tl.store(counter, 0)
            start_cell = first_part * NUM_KV_HEADS * ROWS
            whole = join_rows(
                partial_ptr + start_cell * DIM_POW2, lse_ptr + start_cell, parts, kv_head,
                NUM_KV_HEADS, ROWS, DIM_POW2,
            )  # fmt: skip
            tl.store(out_ptr + place, whole.to(out_ptr.dtype.element_ty), mask=mask)


def paged_prefill(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    start: int,
    scale: float,
    *,
    window: int | None = None,
    out: Tensor | None = None,
    launch: PrefillLaunch | None = None,
    upcast: bool = False,
) -> Tensor:
    """Causal attention of a chunk over everything up to each token, the chunk's own KV included.

    Args:
        query: ``[tokens, heads, head_dim]``, positions ``start ... start + tokens - 1``.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise;
            the chunk's own keys and values are already stored.
        block_table: ``[blocks]`` integer ids; entries past the chunk's last block are not read.
        start: position of the first query; what lies before it was computed earlier.
        scale: factor on the scores.
        window: a query sees the last so many tokens, its own included; None for all.
        out: ``[tokens, heads, head_dim]``, contiguous, is written; a new tensor if None.
        launch: rows and tiles; chosen by ``launch.prefill_launch`` if None.
        upcast: multiply in float32 (the interpreter cannot multiply bfloat16).

    Returns:
        ``[tokens, heads, head_dim]``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    num_tokens, num_heads, head_dim = query.shape
    block_size, num_kv_heads = k_cache.shape[1:3]
    check_paged(query, k_cache, v_cache)
    if block_table.shape[0] * block_size < start + num_tokens:
        raise ValueError(
            f"{block_table.shape[0]} blocks of {block_size} do not hold {start + num_tokens} tokens"
        )
    check_gapless(block_table=block_table)
    result = output_like(query, out)
    if num_tokens:
        group = num_heads // num_kv_heads
        launch = launch or prefill_launch(
            num_tokens, group, head_dim, query.element_size(), query.device
        )
        count = triton.cdiv(num_tokens * group, launch.rows)
        single = (start, num_tokens)
        _launch(query, k_cache, v_cache, block_table, None, count, single, result, scale, window,
                launch, upcast)  # fmt: skip
    return result


def paged_prefill_batch(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_ids: Tensor,
    tiles: Tensor,
    scale: float,
    launch: PrefillLaunch,
    *,
    window: int | None = None,
    out: Tensor | None = None,
    counters: Tensor | None = None,
    upcast: bool = False,
) -> Tensor:
    """``paged_prefill`` of several chunks in one launch.

    Args:
        query: ``[rows, heads, head_dim]``; the chunks' rows lie where the tiles say.
        k_cache: as in ``paged_prefill``; ``v_cache`` likewise.
        block_ids: ``[blocks]`` integers, the chunks' tables behind each other.
        tiles: ``tile_list`` for ``launch`` on the query's device.
        scale: factor on the scores.
        launch: from ``launch.prefill_launch``.
        window: as in ``paged_prefill``; ``upcast`` likewise.
        out: ``[rows, heads, head_dim]``, contiguous; the chunks' rows are written, others left as
            they are. A new tensor if None.
        counters: ``[tiles, kv_heads]`` int32 or more, zeros, and zeros again when the kernel has
            ended, where ``launch`` has a ``spread``; new ones if None.

    Returns:
        ``out``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    check_paged(query, k_cache, v_cache)
    if tiles.dim() != 2 or tiles.shape[1] != TILE_WORDS or tiles.dtype != torch.int32:
        raise ValueError(f"tiles {tuple(tiles.shape)} of {tiles.dtype}, expected [tiles, 8] int32")
    check_gapless(block_ids=block_ids, tiles=tiles, counters=counters)
    result = output_like(query, out)
    if len(tiles):
        if launch.spread and counters is None:
            counters = torch.zeros(
                (len(tiles), k_cache.shape[2]), dtype=torch.int32, device=query.device
            )
        if counters is not None and counters.numel() < len(tiles) * k_cache.shape[2]:
            raise ValueError(f"{tuple(counters.shape)} counters for {len(tiles)} tiles")
        _launch(query, k_cache, v_cache, block_ids, tiles, len(tiles), (0, 0), result, scale,
                window, launch, upcast, counters)  # fmt: skip
    return result


def _launch(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_ids: Tensor,
    tiles: Tensor | None,
    count: int,
    single: tuple[int, int],
    out: Tensor,
    scale: float,
    window: int | None,
    launch: PrefillLaunch,
    upcast: bool,
    counters: Tensor | None = None,
) -> None:
    num_heads, head_dim = query.shape[1:]
    block_size, num_kv_heads = k_cache.shape[1:3]
    width = dot_width(head_dim)
    splits = tiles is not None and launch.spread > 0
    cells = count * num_kv_heads * launch.rows if splits else 0
    floats = torch.empty(cells * (width + 1), dtype=torch.float32, device=query.device)
    with on_device_of(query):
        _paged_prefill_kernel[(num_kv_heads, count)](
            query,
            k_cache,
            v_cache,
            block_ids,
            block_ids if tiles is None else tiles,
            out,
            floats,
            floats[cells * width :],
            floats if counters is None else counters,
            scale,
            *single,
            query.stride(0),
            query.stride(1),
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            DIM_POW2=width,
            BLOCK_SIZE=block_size,
            ROWS=launch.rows,
            TILE=launch.tile,
            WINDOW=window or 0,
            SINGLE=tiles is None,
            SPLIT=splits,
            UPCAST=upcast,
            PRECISION="ieee",
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
