"""Memory of one call of ``sample``, in few allocations."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.launch import SampleLaunch
from kernels.reference.sample import Sampled

PIVOTS = 8
ROUNDS = 4
STATE_WORDS = 8
_ALIGNED_WORDS = 4
"""Pieces begin at multiples of 16 bytes: a kernel is compiled apart for pointers that do not."""


class SampleBuffers:
    """Results and what the launches of one call hand on to each other.

    Args:
        rows: of the logits.
        chunks: that a row is cut into, each of ``launch.chunk`` tokens.
        device: of the logits.
        filtered: whether the search for thresholds needs memory too.
    """

    def __init__(
        self, rows: int, chunks: int, launch: SampleLaunch, device: torch.device, filtered: bool
    ) -> None:
        self.chunks = chunks
        self.launch = launch
        cells = rows * chunks
        behind = cells + cells % 2
        doubles = torch.empty(behind + rows, dtype=torch.float64, device=device)
        self.winner = doubles[:cells]
        self.tokens = doubles[behind:].view(torch.int64)
        sizes = [cells, cells, 2 * cells, cells, 4 * rows, rows, rows, rows, rows]
        if filtered:
            sums = cells * PIVOTS
            sizes += [sums, sums, rows * launch.list_size, STATE_WORDS * rows]
        places = [-(-size // _ALIGNED_WORDS) * _ALIGNED_WORDS for size in sizes]
        words = torch.empty(sum(places), dtype=torch.float32, device=device)
        pieces = (
            piece[:size] for piece, size in zip(torch.split(words, places), sizes, strict=True)
        )
        self.chunk_best: Tensor = next(pieces)
        self.chunk_token: Tensor = next(pieces).view(torch.int32)
        self.chunk_lse: Tensor = next(pieces)
        self.winner_token: Tensor = next(pieces).view(torch.int32)
        self.cursors: Tensor = next(pieces).view(torch.int32)
        self.done: Tensor = next(pieces).view(torch.int32)
        self.best: Tensor = next(pieces)
        self.logprobs: Tensor = next(pieces)
        self.bounds: Tensor = next(pieces)
        if filtered:
            self.masses: Tensor = next(pieces)
            self.numbers: Tensor = next(pieces).view(torch.int32)
            self.list: Tensor = next(pieces)
            self.state: Tensor = next(pieces)

    def result(self) -> Sampled:
        return Sampled(self.tokens, self.best, self.logprobs)
