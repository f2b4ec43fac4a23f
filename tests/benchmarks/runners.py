"""Runners for measuring: one that computes nothing, and one that looks at what another does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from engine.block_pool import BlockPool
from engine.scheduler_output import (
    Runner,
    SampledTokens,
    SchedulerOutput,
    StepHandle,
    StepResult,
)

NULL_TOKEN = 7


class _Done:
    def __init__(self, result: StepResult) -> None:
        self._result = result

    def result(self) -> StepResult:
        return self._result


class NullRunner:
    """Returns one token for every chunk that samples, at once."""

    def submit(self, output: SchedulerOutput) -> StepHandle:
        samples = [
            SampledTokens(chunk.request.request_id, (NULL_TOKEN,))
            for chunk in output.chunks
            if chunk.samples
        ]
        return _Done(StepResult(samples))

    def prompt_size(self, num_tokens: int) -> int:
        """Nothing is padded."""
        return num_tokens

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""


@dataclass(slots=True)
class StepTimes:
    """Seconds of one step in the runner, and on the device where that can be told apart."""

    submit_s: float
    result_s: float = 0.0
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    @property
    def device_s(self) -> float | None:
        """Between the first and the last work of the step, gaps included; after a synchronise."""
        return None if self.events is None else self.events[0].elapsed_time(self.events[1]) / 1e3


@dataclass
class WatchedRunner:
    """Passes steps on to ``inner`` and notes how long they take and how full the pool gets.

    ``pretend``: the steps are not computed, so that contexts of any length are there at once; what
    the pool holds then is what stands for their keys and values.
    """

    inner: Runner
    pretend: bool = False
    pool: BlockPool | None = None
    peak_used_blocks: int = 0
    steps: list[StepTimes] = field(default_factory=list)
    on_device: bool = False
    _null: NullRunner = field(default_factory=NullRunner)

    def submit(self, output: SchedulerOutput) -> StepHandle:
        if self.pool is not None:
            self.peak_used_blocks = max(self.peak_used_blocks, self.pool.num_used)
        if self.pretend:
            return self._null.submit(output)
        events = None
        start = time.perf_counter()
        if self.on_device:
            events = (_event(), _event())
            events[0].record()
        handle = self.inner.submit(output)
        if events is not None:
            events[1].record()
        times = StepTimes(time.perf_counter() - start, events=events)
        self.steps.append(times)
        return _Timed(handle, times)

    def prompt_size(self, num_tokens: int) -> int:
        return self.inner.prompt_size(num_tokens)

    def forget(self, request_id: str) -> None:
        self.inner.forget(request_id)


class _Timed:
    def __init__(self, handle: StepHandle, times: StepTimes) -> None:
        self._handle = handle
        self._times = times

    def result(self) -> StepResult:
        start = time.perf_counter()
        result = self._handle.result()
        self._times.result_s = time.perf_counter() - start
        return result


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


@dataclass(frozen=True, slots=True)
class _NoText:
    text: str = ""
    stopped: bool = False
    stop: str = ""


_NO_TEXT = _NoText()


class NullStream:
    """No text at all, for measuring what is not about text."""

    def follow(self, token_ids: Sequence[int]) -> None:
        """Nothing to take up."""

    def feed(self, token_ids: Sequence[int]) -> _NoText:
        return _NO_TEXT

    def flush(self) -> str:
        return ""

    def kept_tokens(self) -> tuple[int, int]:
        return 0, 0
