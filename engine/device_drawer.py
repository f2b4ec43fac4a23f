"""What each request's tokens are drawn with on a device, and how often it has said each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.request import Request
from engine.sampler import row_parameters
from kernels.reference.sample import PROMPT_COUNT, Parameter, RowParameters, Sampled, pack

DRAW_WORDS = len(Parameter)
PLACE = int(Parameter.OUTPUT_INDEX)
MOST_LOGPROBS = 20
"""As many likeliest tokens as anybody may ask for."""

NOTHING_DRAWN: NDArray[np.int64] = pack([RowParameters(seed=0, output_index=0, temperature=0.0)])[0]
"""The words of a row whose token nobody wants."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """``tokens``: ``[rows]`` int64, −1 where there is none to be had. ``logprobs``: None, or
    ``[rows, 1 + 2 · likeliest]`` float32: the drawn token's, the likeliest tokens' ids, theirs.
    """

    tokens: Tensor
    logprobs: Tensor | None


class Sample(Protocol):
    """``kernels.sample.sample`` or its reference."""

    def __call__(
        self,
        logits: Tensor,
        parameters: Tensor,
        counts: Tensor | None = None,
        *,
        filtered: bool = True,
        logprobs: bool = False,
    ) -> Sampled:
        """See ``kernels.reference.sample.sample``."""


class DeviceDrawer:
    """Draws tokens without waiting for the device.

    ``generation`` counts how often the memory of the counts was replaced.

    Args:
        sample: the kernel.
        vocab_size: tokens.
        device: where the model lies.
    """

    def __init__(self, sample: Sample, vocab_size: int, device: torch.device) -> None:
        self.generation = 0
        self._sample = sample
        self._vocab_size = vocab_size
        self._device = device
        self._counts: Tensor | None = None
        self._slots: dict[str, int] = {}
        self._free_slots: list[int] = []

    def words(self, request: Request) -> NDArray[np.int64]:
        """``[DRAW_WORDS]``, what the request's tokens are drawn with.

        The place in the answer is that of position 0: a token's position is to be added. All of the
        request's ids must be known; those of one with penalties are counted.
        """
        params = request.params
        slot = self._count(request) if params.has_penalty else None
        row = row_parameters(params, request.seed, -request.num_prompt_tokens, slot)
        words: NDArray[np.int64] = pack([row])[0]
        return words

    def forget(self, request_id: str) -> None:
        """Frees the request's counts; unknown ids are ignored."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._free_slots.append(slot)

    def __call__(
        self, logits: Tensor, draws: Tensor, *, filtered: bool, counted: bool, logprobs: bool
    ) -> Drawn:
        """One token a row.

        Args:
            logits: ``[rows, vocab_size]``.
            draws: ``[rows, DRAW_WORDS]`` int64.
            filtered: some row has top-k, top-p or min-p.
            counted: some row has penalties.
            logprobs: whether those of drawn and likeliest tokens are wanted.
        """
        counts = self._counts if counted else None
        drawn = self._sample(logits, draws, counts, filtered=filtered, logprobs=logprobs)
        if not logprobs:
            return Drawn(drawn.tokens, None)
        raw = logits.float()
        best = raw.topk(min(MOST_LOGPROBS, self._vocab_size))
        # Ids below 2**24 are exact as float32.
        table = torch.cat(
            (
                drawn.logprobs[:, None],
                best.indices.float(),
                best.values - raw.logsumexp(-1, keepdim=True),
            ),
            dim=1,
        )
        return Drawn(drawn.tokens, table)

    def _count(self, request: Request) -> int:
        """A slot with the request's tokens counted."""
        slot = self._slots.get(request.request_id)
        if slot is None:
            if not self._free_slots:
                self._grow()
            slot = self._slots[request.request_id] = self._free_slots.pop()
        assert self._counts is not None
        row = self._counts[slot].zero_()
        ids = torch.tensor(request.token_ids, dtype=torch.int64, device=self._device)
        prompt, output = ids[: request.num_prompt_tokens], ids[request.num_prompt_tokens :]
        row[prompt] = PROMPT_COUNT
        row.index_add_(0, output, torch.ones_like(output, dtype=torch.int32))
        return slot

    def _grow(self) -> None:
        old = self._counts
        had = 0 if old is None else len(old)
        self._counts = torch.zeros(
            (max(4, 2 * had), self._vocab_size), dtype=torch.int32, device=self._device
        )
        if old is not None:
            self._counts[:had] = old
        self._free_slots.extend(range(len(self._counts) - 1, had - 1, -1))
        self.generation += 1
