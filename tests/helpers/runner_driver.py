"""Drives a ModelRunner step by step with hand-made requests and block tables: no scheduler."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.api.params import GREEDY, SamplingParams
from engine.request import PLACEHOLDER_TOKEN, Request
from engine.scheduler_output import (
    Runner,
    SampledTokens,
    ScheduledChunk,
    SchedulerOutput,
)


class RunnerDriver:
    """Hands out blocks in a shuffled order and runs steps.

    ``lag``: with 1 the newest token is a placeholder when the next step is submitted, as in a core
    that commits one step behind.
    """

    def __init__(
        self, runner: Runner, num_blocks: int, block_size: int, *, seed: int = 0, lag: int = 0
    ) -> None:
        self.runner = runner
        self.block_size = block_size
        self.lag = lag
        self.free = list(range(num_blocks))
        random.Random(seed).shuffle(self.free)
        self._steps = 0
        self._newest: dict[str, int] = {}

    def request(
        self,
        name: str,
        prompt: Sequence[int],
        params: SamplingParams = GREEDY,
        *,
        seed: int = 0,
        shared_blocks: Sequence[int] = (),
    ) -> Request:
        """A new request; ``shared_blocks`` hold the KV of its first tokens already."""
        request = Request(name, name, list(prompt), len(prompt), params, seed, 0.0)
        request.block_table = list(shared_blocks)
        request.num_computed_tokens = len(shared_blocks) * self.block_size
        return request

    def step(
        self,
        decodes: Sequence[Request] = (),
        prefills: Sequence[tuple[Request, int]] = (),
        copies: Sequence[tuple[int, int]] = (),
    ) -> list[SampledTokens]:
        """One step: one token of each of ``decodes``, and of each prefill that many tokens."""
        chunks = [self._chunk(request, count) for request, count in prefills]
        output = SchedulerOutput(
            self._steps,
            tuple(self._chunk(request, 1) for request in decodes),
            tuple(chunks),
            tuple(copies),
        )
        self._steps += 1
        samples = self.runner.submit(output).result().samples
        by_name = {sample.request_id: sample for sample in samples}
        for chunk in (*output.decodes, *output.prefills):
            chunk.request.num_computed_tokens += chunk.num_tokens
            if chunk.samples:
                self._commit(chunk.request, by_name[chunk.request.request_id])
        return samples

    def prefill(self, request: Request, chunk: int | None = None) -> None:
        """Computes the rest of a prompt, ``chunk`` tokens a step, and draws the first token."""
        while (rest := request.num_tokens - request.num_computed_tokens) > 0:
            self.step(prefills=[(request, min(chunk or rest, rest))])
            if rest <= (chunk or rest):
                return

    def decode(self, requests: Sequence[Request], count: int) -> None:
        """``count`` further tokens for all of them together."""
        for _ in range(count):
            self.step(decodes=requests)

    def output(self, request: Request) -> list[int]:
        """The tokens that it drew."""
        self._reveal(request)
        return request.token_ids[request.num_prompt_tokens :]

    def finish(self, request: Request) -> None:
        """Drops the request; its blocks are not reused."""
        self.runner.forget(request.request_id)

    def _chunk(self, request: Request, count: int) -> ScheduledChunk:
        start = request.num_computed_tokens
        while len(request.block_table) * self.block_size < start + count:
            request.block_table.append(self.free.pop())
        return ScheduledChunk(request, start, count, start + count == request.num_tokens)

    def _commit(self, request: Request, sample: SampledTokens) -> None:
        self._reveal(request)
        if not sample.token_ids:
            return
        self._newest[request.request_id] = sample.token_ids[-1]
        request.token_ids.append(PLACEHOLDER_TOKEN if self.lag else sample.token_ids[-1])

    def _reveal(self, request: Request) -> None:
        if request.token_ids[-1] == PLACEHOLDER_TOKEN:
            request.token_ids[-1] = self._newest[request.request_id]
