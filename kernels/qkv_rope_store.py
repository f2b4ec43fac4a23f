"""All that lies between the packed query, key and value product and attention, in one launch
(Triton).

Per-head normalisation of queries and keys, rotary embedding, and the write of keys and values to
the paged pool.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import next_starts, pdl_option
from kernels.device_guard import on_device_of
from kernels.launch import next_power_of_2
from kernels.launch_glue import RopeLaunch, rope_launch


@triton.jit
def _qkv_rope_store_kernel(
    qkv_ptr,  # [tokens, (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM], rows stride apart
    cos_ptr,  # [num_positions, ROTARY_DIM], contiguous
    sin_ptr,
    position_ptr,  # [tokens]
    slot_ptr,  # [tokens]
    norm_ptr,  # [Q_HEADS + KV_HEADS, HEAD_DIM], contiguous
    query_ptr,  # [tokens, Q_HEADS, HEAD_DIM], contiguous
    k_cache_ptr,  # [num_blocks * block_size, KV_HEADS, HEAD_DIM], contiguous
    v_cache_ptr,
    eps,
    stride,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_POW2: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HEADS: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,  # see next_starts
):
    """Program = (token, some of its heads: queries, keys and values in a row)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    dim = tl.arange(0, DIM_POW2)
    in_dim = (dim < HEAD_DIM)[None, :]
    in_rotary = dim < ROTARY_DIM
    HALF: tl.constexpr = ROTARY_DIM // 2
    partner = tl.where(dim < HALF, dim + HALF, dim - HALF)
    is_query = head < Q_HEADS
    is_rotated = head < Q_HEADS + KV_HEADS
    turned = is_rotated[:, None] & in_rotary[None, :]
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()
    if NORM:
        norm_row = norm_ptr + head[:, None] * HEAD_DIM
        whole = is_rotated[:, None] & in_dim
        scale = tl.load(norm_row + dim[None, :], mask=whole, other=0.0).to(tl.float32)
        partner_scale = tl.load(norm_row + partner[None, :], mask=turned, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    position = tl.load(position_ptr + token).to(tl.int64)
    # 64 bits before the multiplication: a large pool has more than 2**31 elements.
    slot = tl.load(slot_ptr + token).to(tl.int64)
    row = qkv_ptr + token * stride + head[:, None] * HEAD_DIM
    inside = (head < Q_HEADS + 2 * KV_HEADS)[:, None] & in_dim
    x = tl.load(row + dim[None, :], mask=inside, other=0.0).to(tl.float32)
    other = tl.load(row + partner[None, :], mask=turned, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + position * ROTARY_DIM + dim, mask=in_rotary, other=1.0)
    sin = tl.load(sin_ptr + position * ROTARY_DIM + dim, mask=in_rotary, other=0.0)
    y = x
    if NORM:
        factor = tl.rsqrt(tl.sum(x * x, 1) / HEAD_DIM + eps)[:, None]
        y = x * factor * scale
        other = other * factor * partner_scale
    y = y * cos.to(tl.float32)[None, :] + other * sin.to(tl.float32)[None, :]
    y = tl.where(is_rotated[:, None], y, x).to(query_ptr.dtype.element_ty)

    place = (token * Q_HEADS + head)[:, None] * HEAD_DIM + dim[None, :]
    tl.store(query_ptr + place, y, mask=is_query[:, None] & in_dim)
    written = inside & (dim < tl.where(slot >= 0, HEAD_DIM, 0))[None, :]
    key = slot * KV_HEADS + (head - Q_HEADS)
    is_key = is_rotated & (head >= Q_HEADS)
    place = key[:, None] * HEAD_DIM + dim[None, :]
    tl.store(k_cache_ptr + place, y, mask=written & is_key[:, None])
    place = (key - KV_HEADS)[:, None] * HEAD_DIM + dim[None, :]
    tl.store(v_cache_ptr + place, y, mask=written & (head >= Q_HEADS + KV_HEADS)[:, None])


def qkv_rope_store(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    launch: RopeLaunch | None = None,
    pdl: bool = False,
) -> Tensor:
    """Normalises (if asked) and rotates queries and keys, and stores keys and values.

    Computed in float32. Of the pool only the slots of the mapping change.

    Args:
        qkv: ``[tokens, (heads + 2 · kv_heads) · head_dim]``, queries, keys, values; rows
            contiguous.
        cos: ``[num_positions, rotary_dim]`` as ``rope_table`` makes it; ``sin`` likewise, signed.
            The dimensions of a head from ``rotary_dim`` on stay as they are.
        positions: ``[tokens]`` integers.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.
        slot_mapping: ``[tokens]`` integers, ``block_id · block_size + offset``; −1 stores nothing.
        norm: ``[heads + kv_heads, head_dim]``, weights of each query's and key's normalisation;
            None: they are not normalised.
        eps: of the normalisation.
        launch: how to cut it up; chosen by ``rope_launch`` if None.
        pdl: start before the kernel before has ended (programmatic dependent launch).

    Returns:
        The queries, ``[tokens, heads, head_dim]``.

    Raises:
        ValueError: shapes or layouts do not fit.
    """
    tokens, width = qkv.shape
    _, _, kv_heads, head_dim = k_cache.shape
    num_heads = width // head_dim - 2 * kv_heads
    _check(qkv, cos, sin, positions, k_cache, v_cache, slot_mapping, norm)
    query = qkv.new_empty((tokens, num_heads, head_dim))
    if tokens == 0:
        return query
    launch = launch or rope_launch(num_heads + 2 * kv_heads, head_dim)
    with on_device_of(qkv):
        _qkv_rope_store_kernel[(tokens, -(-(num_heads + 2 * kv_heads) // launch.heads))](
            qkv,
            cos,
            sin,
            positions,
            slot_mapping,
            qkv if norm is None else norm,
            query,
            k_cache,
            v_cache,
            eps,
            qkv.stride(0),
            Q_HEADS=num_heads,
            KV_HEADS=kv_heads,
            HEAD_DIM=head_dim,
            DIM_POW2=next_power_of_2(head_dim),
            ROTARY_DIM=cos.shape[-1],
            HEADS=launch.heads,
            NORM=norm is not None,
            PDL=next_starts(pdl, len(qkv)),
            num_warps=launch.num_warps,
            **pdl_option(pdl),
        )
    return query


def _check(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    norm: Tensor | None,
) -> None:
    tokens, width = qkv.shape
    _, _, kv_heads, head_dim = k_cache.shape
    if v_cache.shape != k_cache.shape or width % head_dim or width <= 2 * kv_heads * head_dim:
        raise ValueError(
            f"rows of {width} elements and caches {tuple(k_cache.shape)}, {tuple(v_cache.shape)} "
            "do not fit"
        )
    rotary_dim = cos.shape[-1]
    if cos.dim() != 2 or sin.shape != cos.shape or rotary_dim % 2 or rotary_dim > head_dim:
        raise ValueError(
            f"tables {tuple(cos.shape)}, {tuple(sin.shape)} and heads of {head_dim} do not fit"
        )
    if positions.shape != (tokens,) or slot_mapping.shape != (tokens,):
        raise ValueError(
            f"{tuple(positions.shape)} positions, {tuple(slot_mapping.shape)} slots "
            f"for {tokens} tokens"
        )
    rotated = (width // head_dim - kv_heads, head_dim)
    if norm is not None and norm.shape != rotated:
        raise ValueError(f"norm weights {tuple(norm.shape)}, {rotated} are expected")
    contiguous = (
        cos,
        sin,
        positions,
        k_cache,
        v_cache,
        slot_mapping,
        cos if norm is None else norm,
    )
    if qkv.stride(1) != 1 or not all(part.is_contiguous() for part in contiguous):
        raise ValueError("rows, tables, positions, slots and caches must be contiguous")
