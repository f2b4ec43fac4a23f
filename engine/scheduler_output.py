"""The explicit value between the scheduler and the model runner. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from engine.request import Request


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """``num_tokens`` consecutive tokens of one request to compute in this step.

    Positions ``start`` … ``start + num_tokens - 1``; ``request.block_table`` already covers them.
    ``samples``: the chunk ends at the request's last token, so a next token is drawn from it; a
    chunk that ends earlier is a partial prefill and draws nothing.
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """What one step computes.

    ``decodes``: chunks of one token that all sample, in one attention call. ``prefills``: one
    attention call each. ``block_copies``: (source, destination) physical blocks to copy in every
    layer before any KV of this step is written.
    """

    step: int
    decodes: tuple[ScheduledChunk, ...]
    prefills: tuple[ScheduledChunk, ...]
    block_copies: tuple[tuple[int, int], ...] = ()

    @property
    def chunks(self) -> tuple[ScheduledChunk, ...]:
        """Decodes, then prefills: the order of the samples."""
        return (*self.decodes, *self.prefills)

    @property
    def num_tokens(self) -> int:
        return len(self.decodes) + sum(chunk.num_tokens for chunk in self.prefills)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """What one request drew in one step: usually one token; speculative decoding may bring more.

    ``logprobs``: of the tokens, and ``top_logprobs`` of the likeliest, (id, logprob) each, as many
    as were asked for. ``error``: why this request alone failed (for instance NaN logits);
    ``token_ids`` is empty then.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    error: str = ""


@dataclass(slots=True)
class StepResult:
    """Samples of one step, in the order of the chunks that sample."""

    samples: list[SampledTokens] = field(default_factory=list)


class StepHandle(Protocol):
    """A step in flight."""

    def result(self) -> StepResult:
        """Waits for the step and returns its samples. May be called once."""


class Runner(Protocol):
    """What EngineCore needs of a model runner; tests put an integer fake here."""

    def submit(self, output: SchedulerOutput) -> StepHandle:
        """Starts a step. The requests must not be changed in what the step reads until it
        returns.
        """

    def prompt_size(self, num_tokens: int) -> int:
        """Prompt tokens that a step computes for so many, padding included; grows with them."""

    def forget(self, request_id: str) -> None:
        """The request left the batch (finished or preempted): drop its row."""
