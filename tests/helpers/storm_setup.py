"""What a storm depends on: its operations, the settings of its engine, what requests ask for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.api.events import FinishReason
from engine.api.params import EngineConfig, SamplingParams
from engine.core import EngineCore

# Tokens that end an answer.
END_IDS = frozenset(range(7, 997, 61))


class Operation(NamedTuple):
    """``a``, ``b`` and ``c`` (0 to 999) choose whose and how much of what there is."""

    kind: str
    a: int = 0
    b: int = 0
    c: int = 0


WEIGHTS = {
    "submit": 14,
    "step": 40,
    "cancel": 4,
    "fork": 8,
    "pause": 3,
    "resume": 5,
    "focus": 4,
    "pin": 2,
    "unpin": 1,
    "truncate": 3,
    "restart": 1,
    "configure": 1,
    "fail": 3,
    "spoil": 1,
    "shrink_memory": 1,
}


@dataclass(frozen=True)
class Setup:
    """One engine's settings; pools are small, so that requests compete for them."""

    block_size: int
    num_blocks: int
    token_budget: int
    max_running_requests: int
    watermark: float
    context_length: int
    prefix_caching: bool
    prefill_time_budget_ms: float
    lag: int

    @classmethod
    def choose(cls, draw: Callable[[Sequence[object]], object], lag: int) -> Setup:
        """``draw`` picks one of a sequence."""
        block_size = draw((8, 8, 8, 9, 13, 16, 16, 32, 64))
        pool_tokens = draw((48, 64, 96, 128))
        return cls(
            block_size=block_size,
            # About half of what eight requests need together.
            num_blocks=-(-pool_tokens // block_size) + draw((1, 2, 3)),
            token_budget=draw((1, 2, 4, 16, 64, 512)),
            max_running_requests=draw((1, 2, 3, 8, 8)),
            watermark=draw((0.0, 0.0, 0.05, 0.2)),
            context_length=draw((10_000, 10_000, 70, 120)),
            prefix_caching=draw((True, True, True, True, False)),
            prefill_time_budget_ms=draw((100.0, 100.0, 1.0)),
            lag=lag,
        )

    def config(self) -> EngineConfig:
        names = (
            "block_size", "token_budget", "max_running_requests", "watermark", "prefix_caching",
            "prefill_time_budget_ms", "lag",
        )  # fmt: skip
        return EngineConfig(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Asked:
    """A request as it was made. ``answer_start``: where its answer begins in ``ids``, of which
    there may be a part already. ``said_ids``, ``said``: what a fork's parent has said of it.
    """

    ids: tuple[int, ...]
    answer_start: int
    params: SamplingParams
    said_ids: tuple[int, ...] = ()
    said: str = ""

    @property
    def given(self) -> tuple[int, ...]:
        return self.ids[self.answer_start :]


@dataclass(frozen=True)
class Expected:
    """What a request produces alone: its new ids, and why it ends."""

    ids: tuple[int, ...]
    reason: FinishReason
    limit: str = ""


class Subject:
    """The engine under test and what is true of its model."""

    core: EngineCore
    runner: object
    vocab_size: int

    def expected(self, asked: Asked) -> Expected:
        raise NotImplementedError

    def params(self, draw: random.Random, max_tokens: int) -> SamplingParams:
        raise NotImplementedError

    def greedy(self, max_tokens: int) -> SamplingParams:
        """The likeliest tokens, and no end before ``max_tokens``."""
        return SamplingParams(temperature=0.0, max_tokens=max_tokens, seed=0, ignore_eos=True)

    def void_cache(self) -> None:
        """Overwrites all KV."""
        raise NotImplementedError

    def is_idle(self) -> bool:
        """The runner keeps nothing of any request."""
        raise NotImplementedError
