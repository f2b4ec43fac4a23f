"""Counter-based random numbers: Philox4x32-10 (Salmon and others, "Parallel random numbers: as easy
as 1, 2, 3", 2011)."""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(counter: Tensor, key: Tensor) -> Tensor:
    """Ten rounds of Philox4x32.

    Args:
        counter: ``[4, n]`` int64, each word 0 … 2³² − 1.
        key: ``[2, n]`` or ``[2, 1]`` int64, likewise.

    Returns:
        ``[4, n]`` int64 words, 0 … 2³² − 1.
    """
    device = counter.device
    multiplier = torch.tensor(_MULTIPLIERS, device=device)[:, None]
    step = torch.tensor(_KEY_STEPS, device=device)[:, None]
    # Words 0 and 2 are multiplied, words 1 and 3 mixed in: two lanes a step.
    even, odd = counter[0::2], counter[1::2]
    for _ in range(_ROUNDS):
        # The product wraps in int64; its bits are right, and the masks drop the sign's extension.
        product = even * multiplier
        high = (product >> 32).flip(0)
        even = high.bitwise_xor_(odd).bitwise_xor_(key).bitwise_and_(_MASK)
        odd = product.bitwise_and_(_MASK).flip(0)
        key = (key + step) & _MASK
    return torch.stack((even[0], odd[0], even[1], odd[1]))


def gumbel_noise(seed: Tensor, output_index: Tensor, token_id: Tensor) -> Tensor:
    """Standard Gumbel noise of one (seed, output index, token) each; all ``[n]`` int64.

    Token t takes word ``t mod 4`` of the counter ``(t div 4, 0, index mod 2³², index div 2³²)``
    under the seed's two halves as key, so that a kernel gets four neighbouring tokens from one
    call.

    Args:
        seed: the 64 bits of an unsigned seed, as int64.
        output_index: place of the drawn token in its answer.
        token_id: entry of the vocabulary.

    Returns:
        ``[n]`` float32, ``−log(−log u)`` with ``u = (word + ½) / 2³²``.
    """
    zero = torch.zeros_like(token_id)
    counter = torch.stack((token_id >> 2, zero, output_index & _MASK, output_index >> 32))
    key = torch.stack((seed & _MASK, (seed >> 32) & _MASK))
    words = philox4x32(counter, key).gather(0, (token_id & 3)[None])[0]
    # In float64: 32 random bits do not fit into a float32, and u must never become 1.
    uniform = (words.to(torch.float64) + 0.5) * 2.0**-32
    return -torch.log(-torch.log(uniform)).to(torch.float32)
