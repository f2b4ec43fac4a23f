"""Memory of one call of ``sample``, in few allocations."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.launch import SampleLaunch
from kernels.reference.gumbel import GROUP
from kernels.reference.sample import Sampled

PIVOTS = 8
ROUNDS = 4
STATE_WORDS = 8
_ALIGNED_WORDS = 4
"""Pieces begin at multiples of 16 bytes: a kernel is compiled apart for pointers that do not."""


class SampleBuffers:
    """Results and what the launches of one call hand on to each other.

    What a call does not need has no elements.

    Args:
        rows: of the logits.
        vocab: tokens of a row.
        launch: how rows are cut.
        device: of the logits.
        filtered: whether the search for thresholds needs memory too.
        logprobs: whether the raw logits' sums do.
    """

    def __init__(
        self,
        rows: int,
        vocab: int,
        launch: SampleLaunch,
        device: torch.device,
        filtered: bool,
        logprobs: bool,
    ) -> None:
        self.chunks = -(-vocab // launch.chunk)
        self.groups = -(-vocab // GROUP)
        self.launch = launch
        self.tokens = torch.empty(rows, dtype=torch.int64, device=device)
        cells = rows * self.groups
        raw = cells if logprobs else 0
        sums = rows * self.chunks * PIVOTS
        cut = [rows * self.chunks, 4 * rows, rows, sums, sums, rows * launch.list_size]
        cut.append(STATE_WORDS * rows)
        sizes = [rows, rows, cells, cells, raw, raw, *(size * filtered for size in cut)]
        places = [-(-size // _ALIGNED_WORDS) * _ALIGNED_WORDS for size in sizes]
        words = torch.empty(sum(places), dtype=torch.float32, device=device)
        pieces = (
            piece[:size] for piece, size in zip(torch.split(words, places), sizes, strict=True)
        )
        self.best: Tensor = next(pieces)
        self.logprobs: Tensor = next(pieces)
        self.group_best: Tensor = next(pieces)
        self.group_sum: Tensor = next(pieces)
        self.raw_best: Tensor = next(pieces)
        self.raw_sum: Tensor = next(pieces)
        self.chunk_best: Tensor = next(pieces)
        self.cursors: Tensor = next(pieces).view(torch.int32)
        self.bounds: Tensor = next(pieces)
        self.masses: Tensor = next(pieces)
        self.numbers: Tensor = next(pieces).view(torch.int32)
        self.list: Tensor = next(pieces)
        self.state: Tensor = next(pieces)

    def result(self) -> Sampled:
        return Sampled(self.tokens, self.best, self.logprobs)
