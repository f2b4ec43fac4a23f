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
from kernels.checks import check_paged, output_like
from kernels.device_guard import on_device_of
from kernels.launch import PrefillLaunch, next_power_of_2, prefill_launch
from kernels.prefill_tiles import TILE_WORDS

_TILE_WORDS = tl.constexpr(TILE_WORDS)


@triton.jit
def _paged_prefill_kernel(
    query_ptr,  # [tokens, heads, head_dim]
    k_cache_ptr,  # [num_blocks, block_size, kv_heads, head_dim], contiguous
    v_cache_ptr,
    table_ptr,  # block ids of all chunks
    tile_ptr,  # [tiles, 8] int32, see prefill_tiles; not read if SINGLE
    out_ptr,  # [tokens, heads, head_dim], contiguous
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
            q, best, total, acc, k_head, v_head, table, position, lowest, context, edge, plain,
            scale, NUM_KV_HEADS * HEAD_DIM, HEAD_DIM, DIM_POW2, BLOCK_SIZE, TILE, WINDOW, True,
            UPCAST, PRECISION,
        )  # fmt: skip
        plain_end = tl.maximum(plain_end, plain)
    best, total, acc = attend_causal(
        q, best, total, acc, k_head, v_head, table, position, lowest, context, plain, plain_end,
        scale, NUM_KV_HEADS * HEAD_DIM, HEAD_DIM, DIM_POW2, BLOCK_SIZE, TILE, WINDOW, False, UPCAST,
        PRECISION,
    )  # fmt: skip
    best, total, acc = attend_causal(
        q, best, total, acc, k_head, v_head, table, position, lowest, context, plain_end, tiles,
        scale, NUM_KV_HEADS * HEAD_DIM, HEAD_DIM, DIM_POW2, BLOCK_SIZE, TILE, WINDOW, True, UPCAST,
        PRECISION,
    )  # fmt: skip

    if WINDOW > 0:
        # The window of a padded row may lie behind all keys; nothing of it is stored.
        total = tl.where(total > 0.0, total, 1.0)
    result = acc / total[:, None]
    place = (row * NUM_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
    tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=mask)


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
    upcast: bool = False,
) -> Tensor:
    """``paged_prefill`` of several chunks in one launch.

    Args:
        query: ``[rows, heads, head_dim]``; the chunks' rows lie where the tiles say.
        k_cache: as in ``paged_prefill``; ``v_cache`` likewise.
        block_ids: ``[blocks]`` integers, the chunks' tables behind each other.
        tiles: ``tile_list`` for ``launch.rows`` on the query's device.
        scale: factor on the scores.
        launch: from ``launch.prefill_launch``.
        window: as in ``paged_prefill``; ``upcast`` likewise.
        out: ``[rows, heads, head_dim]``, contiguous; the chunks' rows are written, others left as
            they are. A new tensor if None.

    Returns:
        ``out``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    check_paged(query, k_cache, v_cache)
    if tiles.dim() != 2 or tiles.shape[1] != TILE_WORDS or tiles.dtype != torch.int32:
        raise ValueError(f"tiles {tuple(tiles.shape)} of {tiles.dtype}, expected [tiles, 8] int32")
    result = output_like(query, out)
    if len(tiles):
        _launch(query, k_cache, v_cache, block_ids, tiles, len(tiles), (0, 0), result, scale,
                window, launch, upcast)  # fmt: skip
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
) -> None:
    num_heads, head_dim = query.shape[1:]
    block_size, num_kv_heads = k_cache.shape[1:3]
    with on_device_of(query):
        _paged_prefill_kernel[(num_kv_heads, count)](
            query,
            k_cache,
            v_cache,
            block_ids,
            block_ids if tiles is None else tiles,
            out,
            scale,
            *single,
            query.stride(0),
            query.stride(1),
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            GROUP=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            DIM_POW2=next_power_of_2(head_dim),
            BLOCK_SIZE=block_size,
            ROWS=launch.rows,
            TILE=launch.tile,
            WINDOW=window or 0,
            SINGLE=tiles is None,
            UPCAST=upcast,
            PRECISION="ieee",
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
