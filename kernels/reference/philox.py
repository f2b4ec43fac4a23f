"""Counter-based random numbers: Philox4x32-10.

Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import Any

MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words4 = tuple[Any, Any, Any, Any]
"""Tensors or NumPy arrays, int64."""


def philox4x32(counter: Words4, key: tuple[Any, Any]) -> Words4:
    """Ten rounds of Philox4x32.

    Args:
        counter: four words of values 0 … 2³² − 1.
        key: two words, likewise. All six broadcast against each other.

    Returns:
        Four words of the broadcast shape, likewise.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The products wrap in int64; their bits are right, and the masks drop the sign's extension.
        product0, product2 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = ((product2 >> 32) ^ (c1 ^ k0)) & MASK
        c2 = ((product0 >> 32) ^ (c3 ^ k1)) & MASK
        c1, c3 = product2 & MASK, product0 & MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & MASK, (k1 + _KEY_STEPS[1]) & MASK
    return c0, c1, c2, c3
