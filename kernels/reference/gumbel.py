"""Gumbel noise that is a function of (seed, output index, token id), and the largest score with it.

The uniform number of a token has 40 bits, drawn in two parts:

- its upper 8 bits: token t takes byte ``t mod 16`` (little-endian) of the Philox call with the
counter
  ``(t div 16, 0, index mod 2³², index div 2³²)``;
- its lower 32 bits: word 0 of the call with the counter ``(t, 1, index mod 2³², index div 2³²)``.

The key is the seed's two halves. One call serves 16 tokens in the first part, and the first part
alone rules out nearly all tokens: only those that could still win need the second. What is drawn
does not depend on which tokens are looked at, or on how.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.reference.philox import MASK, Words4, philox4x32

# Of the 256 values of the upper byte the last one alone reaches far: its noise is at least
# _HOT_NOISE, that of all others less.
_HOT_BYTE = 255
_HOT_NOISE = -math.log(-math.log(255 / 256))
_MAX_NOISE = -math.log(-math.log1p(-(2.0**-41)))


def gumbel_noise(seed: Tensor, output_index: Tensor, token_id: Tensor) -> Tensor:
    """``−log(−log u)``, ``u = (upper · 2³² + lower + ½) / 2⁴⁰``; see above.

    Args:
        seed: ``[n]``, the 64 bits of an unsigned seed, as int64.
        output_index: ``[n]`` int64, place of the drawn token in its answer.
        token_id: ``[n]`` int64.

    Returns:
        ``[n]`` float64: float32 cannot tell the largest values of u from 1.
    """
    key = _key(seed)
    words = torch.stack(philox4x32(_counter(token_id >> 4, 0, output_index), key))
    word = words.gather(0, ((token_id >> 2) & 3)[None])[0]
    upper = (word >> ((token_id & 3) << 3)) & 0xFF
    lower = philox4x32(_counter(token_id, 1, output_index), key)[0]
    return _gumbel(upper, lower)


def upper_bytes(seed: Tensor, output_index: Tensor, vocab_size: int) -> Tensor:
    """The upper 8 bits of every token, for some rows at once.

    Args:
        seed: ``[rows]`` as in ``gumbel_noise``; ``output_index`` likewise.
        vocab_size: tokens.

    Returns:
        ``[rows, vocab_size]`` uint8.
    """
    rows, calls = len(seed), -(-vocab_size // 16)
    call = torch.arange(calls, device=seed.device)
    counter = _counter(call, 0, output_index[:, None])
    words = torch.stack(philox4x32(counter, _key(seed[:, None])), -1)
    # The lower half of each int64, byte by byte, is the vocabulary's own order.
    halves = words.view(torch.int32)[..., 0::2].contiguous()
    return halves.view(torch.uint8).view(rows, calls * 16)[:, :vocab_size]


def gumbel_argmax(scores: Tensor, seed: Tensor, output_index: Tensor) -> list[int]:
    """The token with the largest score + noise in each row.

    Args:
        scores: ``[rows, vocab_size]``, the largest of each row 0; −inf for tokens that must not be
            drawn.
        seed: ``[rows]`` as in ``gumbel_noise``; ``output_index`` likewise.
    """
    upper = upper_bytes(seed, output_index, scores.shape[1])
    best = argmax(scores)
    best_bytes = upper.gather(1, best[:, None])[:, 0].tolist()
    chosen = [
        _contenders(row, row_bytes, byte)
        for row, row_bytes, byte in zip(scores, upper, best_bytes, strict=True)
    ]
    counts = torch.tensor([len(ids) for ids in chosen], device=scores.device)
    rows = torch.arange(len(chosen), device=scores.device).repeat_interleave(counts)
    ids = torch.cat(chosen)
    lower = philox4x32(_counter(ids, 1, output_index[rows]), _key(seed[rows]))[0]
    totals = scores[rows, ids].double() + _gumbel(upper[rows, ids], lower)
    return [
        int(row_ids[row_totals.argmax()])
        for row_ids, row_totals in zip(chosen, torch.split(totals, counts.tolist()), strict=True)
    ]


def _contenders(scores: Tensor, upper: Tensor, best_byte: int) -> Tensor:
    """Tokens of one row that can still win, whatever their lower bits are."""
    hot = indices(upper == _HOT_BYTE)
    hot = hot[scores[hot] > -torch.inf]
    floor = _least_noise(best_byte)
    if len(hot):
        floor = max(floor, float(scores[hot].max()) + _HOT_NOISE)
    hot = hot[scores[hot] >= floor - _MAX_NOISE]
    return torch.cat((hot, indices(scores >= floor - _HOT_NOISE)))


def _least_noise(byte: int) -> float:
    """No noise with this upper byte is smaller."""
    return -math.log(-math.log(byte / 256 if byte else 2.0**-41))


def _gumbel(upper: Tensor, lower: Tensor) -> Tensor:
    uniform = (upper.double() + (lower.double() + 0.5) * 2.0**-32) / 256
    return -torch.log(-torch.log(uniform))


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


def _counter(first: Tensor, second: int, output_index: Tensor) -> Words4:
    constant = torch.tensor(second, device=first.device)
    return first, constant, output_index & MASK, output_index >> 32


def _key(seed: Tensor) -> tuple[Tensor, Tensor]:
    return seed & MASK, (seed >> 32) & MASK
