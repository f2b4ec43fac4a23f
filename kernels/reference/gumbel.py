"""Exact draws from scores by Gumbel noise, on two levels.

The vocabulary is cut into groups of ``GROUP`` consecutive tokens (the last may be shorter). With
L(g) the logarithm of the sum of exp(score) over group g:

1. the group is the one with the largest L(g) + noise(g, domain ``GROUPS``);
2. its token is the one with the largest score(t) + noise(t, domain ``TOKENS``) in that group.

Of equals the first. As adding Gumbel noise and taking the largest draws by softmax, a token's
probability is exp L(g) / Σ exp L · exp(score) / exp L(g): its softmax over all tokens. Only the
groups and one group's tokens need noise, and L is all that is needed of the other scores.

L is computed in float32. That rounding shifts a group's probability by a millionth of itself; what
float32, or bfloat16, makes of the logits themselves shifts it by as much or more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.reference.philox import MASK, philox4x32

GROUP = 128
"""Part of what a seed means: another size draws other tokens."""
TOKENS, GROUPS = 0, 1
"""Domains: second counter word of the noise."""


def gumbel_noise(seed: Tensor, output_index: Tensor, place: Tensor, domain: int) -> Tensor:
    """``−log(−log u)``, ``u = (n + ½) / 2⁵²``; a function of the arguments alone.

    The upper 32 bits of n are word 0 of the Philox call with the counter ``(place, domain, index
    mod 2³², index div 2³²)`` and the seed's halves as key; the lower 20 are the upper ones of word
    1. u is exact in float64, and neither 0 nor 1.

    Args:
        seed: the 64 bits of an unsigned seed, as int64.
        output_index: int64, place of the drawn token in its answer.
        place: int64, a token's id or a group's number.
        domain: which of these.

    Returns:
        float64, of the shape that the arguments broadcast to; one dimension at least.
    """
    words = (seed, output_index, place)
    seed, output_index, place = (word if word.ndim else word[None] for word in words)
    if place.device.type == "cpu":
        # NumPy takes a third of torch's time for some hundred numbers (128 µs against 370 for 384).
        # It warns where products of single numbers overflow, not of arrays.
        bits = _bits(seed.numpy(), output_index.numpy(), place.numpy(), domain)
        uniform = torch.from_numpy(bits).double()
    else:
        uniform = _bits(seed, output_index, place, domain).double()
    return uniform.add_(0.5).mul_(2.0**-52).log_().neg_().log_().neg_()


def _bits(seed: Any, output_index: Any, place: Any, domain: int) -> Any:
    counter = (place, domain, output_index & MASK, output_index >> 32)
    upper, lower, _, _ = philox4x32(counter, (seed & MASK, (seed >> 32) & MASK))
    return (upper << 20) + (lower >> 12)


def draw_tokens(scores: Tensor, seed: Tensor, output_index: Tensor) -> list[int]:
    """One token a row, by its softmax; see above.

    Args:
        scores: ``[rows, vocab_size]``, the largest of each row 0; −inf for tokens that must not be
            drawn.
        seed: ``[rows]`` as in ``gumbel_noise``; ``output_index`` likewise.
    """
    vocab = scores.shape[1]
    seed, output_index = seed[:, None], output_index[:, None]
    totals = group_sums(scores).log().double()
    numbers = torch.arange(totals.shape[1], device=scores.device)
    totals += gumbel_noise(seed, output_index, numbers, GROUPS)
    first = argmax(totals)[:, None] * GROUP
    tokens = first + torch.arange(min(GROUP, vocab), device=scores.device)
    inside = scores.gather(1, tokens.clamp(max=vocab - 1)).double()
    inside.masked_fill_(tokens >= vocab, -torch.inf)
    inside += gumbel_noise(seed, output_index, tokens, TOKENS)
    return (first[:, 0] + argmax(inside)).tolist()


def group_sums(scores: Tensor) -> Tensor:
    """Sum of exp(score) of each group, ``[rows, groups]``.

    What is so far below 0 that its exp is none could not be drawn: the noise of 52 bits reaches
    from −3.6 to 36.8.
    """
    weights = scores.exp()
    rows, vocab = scores.shape
    whole = vocab // GROUP * GROUP
    sums = weights[:, :whole].view(rows, vocab // GROUP, GROUP).sum(-1)
    if whole == vocab:
        return sums
    return torch.cat((sums, weights[:, whole:].sum(-1, keepdim=True)), 1)


def argmax(scores: Tensor) -> Tensor:
    """``[rows]`` places of each row's largest entry, the first of equals; NaN counts as largest."""
    if scores.device.type == "cpu":
        # A tenth of the time of torch's argmax on 49,152 entries (4 µs against 42).
        return torch.from_numpy(scores.numpy().argmax(-1))
    return scores.argmax(-1)


def indices(mask: Tensor) -> Tensor:
    """Where a ``[n]`` mask is true, in order."""
    if mask.device.type == "cpu":
        # A quarter of the time of torch's nonzero on 49,152 entries.
        return torch.from_numpy(mask.numpy().nonzero()[0])
    return mask.nonzero().flatten()
