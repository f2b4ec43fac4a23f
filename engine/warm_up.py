"""A model's first steps, while it is loaded, so that the first answer does not pay for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from engine.api.params import SamplingParams
from engine.attention.base import AttentionBackend, StepAttention
from engine.batch import StepBatch
from engine.kv_cache import KVCache
from engine.loading.progress import Breathe
from engine.model_runner import ModelRunner
from engine.request import Request
from engine.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.thread_governor import CALIBRATION_STEPS

_NUM_TOKENS = 64
_PREPARE_S = 0.5


def warm_up(runner: ModelRunner, block_size: int, breathe: Breathe) -> None:
    """Runs a prompt and decodes once; torch is set up by them.

    What it leaves in the pool has no hash and is overwritten by whoever gets the block.
    ``breathe`` is called between steps, on a CPU between layers; what it raises ends it.
    """
    # The decodes compute one more.
    room = min(runner.num_blocks * block_size, runner.decoder.max_positions)
    num_tokens = min(_NUM_TOKENS, room - 1)
    request = Request(
        request_id="warm-up",
        conversation_id="",
        token_ids=[0] * (num_tokens + 1),
        num_prompt_tokens=num_tokens,
        params=SamplingParams(),
        seed=0,
        arrival_s=0.0,
        block_table=list(range(-(-(num_tokens + 1) // block_size))),
    )
    prompt = ScheduledChunk(request, 0, num_tokens, samples=False)
    decode = ScheduledChunk(request, num_tokens, 1, samples=True)
    with _breathing(runner, breathe):
        if num_tokens:
            runner.submit(SchedulerOutput(0, (), (prompt,))).result()
        # On the CPU so many that the number of threads is settled before the first answer.
        for _ in range(1 if runner.decoder.device.type == "cuda" else CALIBRATION_STEPS):
            breathe()
            runner.submit(SchedulerOutput(0, (decode,), ())).result()
    runner.forget(request.request_id)
    deadline = time.perf_counter() + _PREPARE_S

    def is_late() -> bool:
        return time.perf_counter() >= deadline

    # Some steps of a first conversation; the rest in idle moments: someone waits for this load.
    while not is_late() and runner.prepare(is_late):
        breathe()


@contextmanager
def _breathing(runner: ModelRunner, breathe: Breathe) -> Iterator[None]:
    """A prompt takes a large model seconds on a CPU: ``breathe`` is called before each layer."""
    attention = runner.attention
    if runner.decoder.device.type == "cpu":
        runner.attention = _BreathingAttention(attention, breathe)
    try:
        yield
    finally:
        runner.attention = attention


class _BreathingAttention:
    """An ``AttentionBackend`` that is another one, with a breath before each layer."""

    def __init__(self, inner: AttentionBackend, breathe: Breathe) -> None:
        self.name = inner.name
        self._inner = inner
        self._breathe = breathe

    @property
    def cache(self) -> KVCache | None:
        return self._inner.cache

    def first_missing(self, request_id: str, start: int) -> int:
        return self._inner.first_missing(request_id, start)

    def begin_step(self, batch: StepBatch) -> StepAttention:
        step = self._inner.begin_step(batch)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self._breathe()
            return step(layer, query, key, value)

        return attend

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._inner.copy_blocks(pairs)

    def forget(self, request_id: str) -> None:
        self._inner.forget(request_id)
