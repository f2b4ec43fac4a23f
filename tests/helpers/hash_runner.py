"""An integer model whose next token is a hash of the KV it actually reads.

Every slot of its pool holds the (token, position) that was written there. A wrong block, a stale
slot or a missing write changes the next token, so a faulty engine cannot produce the right output
by luck.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from engine.request import PLACEHOLDER_TOKEN
from engine.scheduler_output import SampledTokens, ScheduledChunk, SchedulerOutput, StepResult

VOCAB = 997


def next_token(history: list[tuple[int, int]]) -> int:
    """The model: a function of all (token, position) pairs it attends to."""
    data = ",".join(f"{token}@{position}" for token, position in history)
    return int.from_bytes(hashlib.blake2b(data.encode(), digest_size=4).digest(), "little") % VOCAB


def reference_output(prompt: list[int], num_tokens: int) -> list[int]:
    """What a request must produce, computed with no cache at all."""
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(next_token([(token, position) for position, token in enumerate(ids)]))
    return ids[len(prompt) :]


class _Handle:
    def __init__(self, result: StepResult, failure: Exception | None) -> None:
        self._result, self._failure = result, failure

    def result(self) -> StepResult:
        if self._failure is not None:
            raise self._failure
        return self._result


class HashRunner:
    """A ``Runner`` over a pool of (token, position) pairs."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.pool: list[tuple[int, int] | None] = [None] * (num_blocks * block_size)
        self.outputs: list[SchedulerOutput] = []
        self.breaks: Callable[[SchedulerOutput], Exception | None] = lambda output: None
        self.fail_next_submit: Exception | None = None
        self.fail_next_result: Exception | None = None
        self.bad_requests: set[str] = set()
        self.faults: list[str] = []
        self._last: dict[str, int] = {}

    @property
    def num_kept(self) -> int:
        """Requests of which something is kept."""
        return len(self._last)

    def prompt_size(self, num_tokens: int) -> int:
        return num_tokens

    def submit(self, output: SchedulerOutput) -> _Handle:
        self.outputs.append(output)
        if self.fail_next_submit is not None:
            failure, self.fail_next_submit = self.fail_next_submit, None
            raise failure
        failure = self.breaks(output)
        if failure is not None:
            raise failure
        destinations = [destination for _, destination in output.block_copies]
        # A real runner copies all of them at once: two copies into one block would be a race.
        self._require(len(destinations) == len(set(destinations)), "two copies into one block")
        for source, destination in output.block_copies:
            size = self.block_size
            self.pool[destination * size : (destination + 1) * size] = self.pool[
                source * size : (source + 1) * size
            ]
        chunks = (*output.decodes, *output.prefills)
        # As on a GPU, all KV of a step is written before any attention of the step reads.
        for chunk in chunks:
            self._write(chunk)
        failure, self.fail_next_result = self.fail_next_result, None
        samples = [self._sample(chunk) for chunk in chunks if chunk.samples]
        return _Handle(StepResult(samples), failure)

    def forget(self, request_id: str) -> None:
        self._last.pop(request_id, None)

    def _require(self, ok: bool, fault: str) -> None:
        """Keeps what is wrong with a step: the core recovers from a step that breaks off."""
        if not ok:
            self.faults.append(fault)
            raise AssertionError(fault)

    def _slot(self, table: list[int], position: int) -> int:
        block_size = self.block_size
        self._require(position // block_size < len(table), "a position without a block")
        return table[position // block_size] * block_size + position % block_size

    def _write(self, chunk: ScheduledChunk) -> None:
        request = chunk.request
        for position in range(chunk.start, chunk.start + chunk.num_tokens):
            token = request.token_ids[position]
            if token == PLACEHOLDER_TOKEN:
                token = self._last[request.request_id]
            self.pool[self._slot(request.block_table, position)] = (token, position)

    def _sample(self, chunk: ScheduledChunk) -> SampledTokens:
        request = chunk.request
        if request.request_id in self.bad_requests:
            # A device would go on with some token until the host sees the failure.
            self._last[request.request_id] = 0
            return SampledTokens(request.request_id, (), error="the logits are not numbers")
        history = []
        for position in range(chunk.start + chunk.num_tokens):
            cell = self.pool[self._slot(request.block_table, position)]
            self._require(cell is not None, f"position {position} has no KV")
            assert cell is not None
            history.append(cell)
        token = next_token(history)
        self._last[request.request_id] = token
        return SampledTokens(request.request_id, (token,))
