"""All that lies between the packed query, key and value product and attention."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.reference.rms_norm import head_rms_norm
from kernels.reference.rope import rope
from kernels.reference.store_kv import store_kv


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
) -> Tensor:
    """Normalises (if asked) and rotates queries and keys, and stores keys and values.

    Args:
        qkv: ``[tokens, (heads + 2 · kv_heads) · head_dim]``, queries, keys, values.
        cos: ``[num_positions, rotary_dim]`` as ``rope_table`` makes it; ``sin`` likewise, signed.
            The dimensions of a head from ``rotary_dim`` on stay as they are.
        positions: ``[tokens]`` integers.
        k_cache: ``[num_blocks, block_size, kv_heads, head_dim]``; ``v_cache`` likewise.
        slot_mapping: ``[tokens]`` integers, ``block_id · block_size + offset``; −1 stores nothing.
        norm: ``[heads + kv_heads, head_dim]``, weights of each query's and key's normalisation;
            None: they are not normalised.
        eps: of the normalisation.

    Returns:
        The queries, ``[tokens, heads, head_dim]``.
    """
    _, _, num_kv_heads, head_dim = k_cache.shape
    heads = qkv.view(len(qkv), -1, head_dim)
    rotated, value = heads[:, :-num_kv_heads], heads[:, -num_kv_heads:]
    if norm is not None:
        rotated = head_rms_norm(rotated, norm, eps)
    rotary_dim = cos.shape[-1]
    turned = rope(rotated[..., :rotary_dim], cos[positions][:, None], sin[positions][:, None])
    rotated = torch.cat((turned, rotated[..., rotary_dim:]), -1)
    query, key = rotated[:, :-num_kv_heads], rotated[:, -num_kv_heads:]
    store_kv(key, value, k_cache, v_cache, slot_mapping)
    return query
