"""Checks of shapes and layouts that several operations share."""

from __future__ import annotations

from torch import Tensor


def check_paged(query: Tensor, k_cache: Tensor, v_cache: Tensor) -> None:
    """Refuses queries and a pool that attention over pages cannot work on.

    Args:
        query: ``[rows, heads, head_dim]``, head_dim contiguous.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``, contiguous; ``v_cache`` likewise.

    Raises:
        ValueError: they do not fit; the message has the shapes.
    """
    _, num_heads, head_dim = query.shape
    _, _, num_kv_heads, cache_dim = k_cache.shape
    if cache_dim != head_dim or v_cache.shape != k_cache.shape or num_heads % num_kv_heads:
        raise ValueError(f"query {tuple(query.shape)} and cache {tuple(k_cache.shape)} do not fit")
    if not (k_cache.is_contiguous() and v_cache.is_contiguous()) or query.stride(2) != 1:
        raise ValueError("the caches must be contiguous, and so must the query's last dimension")


def check_batch(block_tables: Tensor, context_lens: Tensor, batch: int) -> None:
    """Refuses tables or lengths of another number of sequences.

    Args:
        block_tables: ``[batch, blocks]``.
        context_lens: ``[batch]``.
        batch: rows of the queries.

    Raises:
        ValueError: they do not fit; the message has the numbers.
    """
    if block_tables.shape[0] != batch or context_lens.shape != (batch,):
        raise ValueError(
            f"{block_tables.shape[0]} tables and {context_lens.shape[0]} lengths for {batch} rows"
        )


def check_gapless(**parts: Tensor | None) -> None:
    """Refuses what a kernel reads element after element and does not lie so.

    Raises:
        ValueError: the message has the name and the strides.
    """
    for name, part in parts.items():
        if part is not None and not part.is_contiguous():
            raise ValueError(f"{name} must be contiguous: strides {part.stride()}")


def output_like(query: Tensor, out: Tensor | None) -> Tensor:
    """``out``, or a new contiguous tensor of the query's shape if it is None.

    Raises:
        ValueError: ``out`` has another shape or is not contiguous.
    """
    if out is None:
        return query.new_empty(query.shape)
    if out.shape != query.shape or not out.is_contiguous():
        raise ValueError(f"out {tuple(out.shape)} must be contiguous, {tuple(query.shape)}")
    return out


def check_rows(x: Tensor, weight: Tensor, name: str) -> Tensor:
    """``x`` as ``[rows, size]``, a view.

    Args:
        x: ``[..., size]``, size contiguous, the other dimensions evenly apart.
        weight: ``[size]``, contiguous.
        name: of ``x``, for the message.

    Raises:
        ValueError: they do not fit; the message has the shapes and strides.
    """
    size = x.shape[-1]
    if weight.shape != (size,) or not weight.is_contiguous():
        raise ValueError(f"{name} {tuple(x.shape)} and weight {tuple(weight.shape)} do not fit")
    return as_rows(x, name)


def as_rows(x: Tensor, name: str) -> Tensor:
    """``x`` ``[..., size]`` as ``[rows, size]``, a view; see ``check_rows``."""
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        raise ValueError(f"the last dimension of {name} must be contiguous: strides {x.stride()}")
    try:
        return x.view(-1, x.shape[-1])
    except RuntimeError as error:
        raise ValueError(
            f"the rows of {name} must be evenly apart: shape {tuple(x.shape)}, strides {x.stride()}"
        ) from error
