"""How many prompt tokens a step takes while others answer, on a device whose times are known."""

from __future__ import annotations

import random

import pytest

from engine.api.params import EngineConfig, SamplingParams
from engine.block_hash import root_hash
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.core import EngineCore
from engine.limits import ModelLimits
from engine.metrics import EngineMetrics
from engine.prompt_sizes import MAX_PROMPT_TOKENS, fitting, prompt_rows, unpadded
from engine.request import Request
from engine.scheduler import Scheduler
from engine.scheduler_output import SampledTokens, SchedulerOutput, StepResult
from tests.benchmarks.runners import NullStream

DECODE_S = 0.9e-3
TOKEN_S = 1 / 300_000
BUDGET_MS = 3.5
LEAST = 256
PASTE = 9000


class Device:
    """A ``Runner`` in a time of its own: a step's decodes and its padded prompt take their times,
    one step behind the other; a prompt's later tokens take longer.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.free_s = 0.0
        self.mixed_s: list[float] = []
        self.chunks: list[int] = []

    def clock(self) -> float:
        return self.now_s

    def prompt_size(self, num_tokens: int) -> int:
        return prompt_rows(num_tokens) if 0 < num_tokens <= MAX_PROMPT_TOKENS else num_tokens

    def submit(self, output: SchedulerOutput) -> _Step:
        spent = DECODE_S if output.decodes else 0.0
        if output.prefills:
            count = sum(chunk.num_tokens for chunk in output.prefills)
            later = 1 + max(chunk.start for chunk in output.prefills) / 16_000
            spent += self.prompt_size(count) * TOKEN_S * later
            if output.decodes:
                self.mixed_s.append(spent)
                self.chunks.append(count)
        self.free_s = max(self.free_s, self.now_s) + spent
        samples = [
            SampledTokens(chunk.request.request_id, (7,))
            for chunk in output.chunks
            if chunk.samples
        ]
        return _Step(self, self.free_s, StepResult(samples))

    def forget(self, request_id: str) -> None:
        pass


class _Step:
    def __init__(self, device: Device, end_s: float, result: StepResult) -> None:
        self._device, self._end_s, self._result = device, end_s, result

    def result(self) -> StepResult:
        self._device.now_s = max(self._device.now_s, self._end_s)
        return self._result


def core_on(device: Device) -> EngineCore:
    config = EngineConfig(
        lag=1, token_budget=2048, prefill_time_budget_ms=BUDGET_MS, least_prefill_tokens=LEAST
    )
    limits = ModelLimits(1 << 20, frozenset(), root_hash("pace"))
    return EngineCore(device, limits, config, 2048, lambda stop: NullStream(), clock=device.clock)


def paste_beside_an_answer(device: Device, host_s: float) -> None:
    """One conversation answers; the host takes ``host_s`` for a long prompt, which is computed."""
    core = core_on(device)
    params = SamplingParams(max_tokens=4000, ignore_eos=True)
    core.add_request("answers", [3] * 600, params)
    for _ in range(60):
        core.step()
    device.now_s += host_s
    core.add_request("paste", [5] * PASTE, SamplingParams(max_tokens=1), conversation_id="other")
    while "paste" in core.requests:
        core.step()


@pytest.mark.parametrize("host_s", [0.0, 0.009, 0.03])
def test_a_prompt_takes_no_more_of_a_step_than_its_share(host_s: float) -> None:
    device = Device()
    paste_beside_an_answer(device, host_s)
    # The next chunk is sized before the one in flight has been timed: a little longer is possible.
    assert max(device.mixed_s) <= DECODE_S + 1.1 * BUDGET_MS / 1e3
    # Nor much less than its share, but for the first, of unknown pace, and the last.
    usual = sorted(device.mixed_s)[len(device.mixed_s) // 2]
    assert usual >= DECODE_S + 0.6 * BUDGET_MS / 1e3


def test_no_time_goes_into_padding() -> None:
    device = Device()
    paste_beside_an_answer(device, 0.0)
    whole = [count for count in device.chunks if count >= LEAST]
    assert len(whole) > 8
    # What is left at the end fills no size.
    assert all(prompt_rows(count) == count for count in whole[:-1])


@pytest.mark.parametrize("most", [1, 15, 16, 17, 47, 48, 255, 256, 1144, 1535, 1536, 2047, 2048])
def test_what_fits_is_the_most_that_does(most: int) -> None:
    found = fitting(most, prompt_rows)
    fits = [count for count in range(1, most + 1) if prompt_rows(count) <= most]
    assert found == (max(fits) if fits else most)
    assert fitting(most, unpadded) == most


def test_sizes_are_few_and_pad_by_half_at_most() -> None:
    sizes = {prompt_rows(count) for count in range(1, MAX_PROMPT_TOKENS + 1)}
    assert len(sizes) == 15
    for count in range(16, MAX_PROMPT_TOKENS + 1):
        assert count <= prompt_rows(count) <= 1.5 * count
    assert sorted(map(prompt_rows, range(1, 2049))) == list(map(prompt_rows, range(1, 2049)))


def test_a_step_that_waited_for_the_host_does_not_price_prompts() -> None:
    metrics = EngineMetrics()
    for _ in range(20):
        metrics.record_step(0.001, 4, 0)
    metrics.record_step(0.010, 4, 0)
    metrics.record_step(0.005, 4, 1000, 1024)
    assert metrics.safe_padded_tokens_per_s == pytest.approx(1024 / 0.004, rel=0.02)
    assert metrics.prefill_tokens_per_s == pytest.approx(1000 / 0.004, rel=0.02)


def test_decodes_that_take_longer_are_known_to_soon() -> None:
    metrics = EngineMetrics()
    for _ in range(20):
        metrics.record_step(0.001, 1, 0)
    for _ in range(20):
        metrics.record_step(0.002, 64, 0)
    metrics.record_step(0.006, 64, 1000, 1024)
    assert metrics.safe_padded_tokens_per_s == pytest.approx(1024 / 0.004, rel=0.02)


def test_uneven_decodes_do_not_make_chunks_small() -> None:
    """A machine with other work: a step of decodes takes 40 to 120 ms, whatever is computed."""
    metrics, chunk, draw = EngineMetrics(), 64, random.Random(0)
    chunks = []
    for _ in range(40):
        for _ in range(12):
            metrics.record_step(0.04 + draw.uniform(0.0, 0.08), 4, 0)
        for _ in range(12):
            metrics.record_step(0.04 + draw.uniform(0.0, 0.08) + chunk / 1000, 4, chunk)
            chunk = max(16, int(metrics.safe_padded_tokens_per_s * 0.045))
            chunks.append(chunk)
    chunks.sort()
    # 45 tokens fit. What one uneven step says must not make them many times as many either.
    assert chunks[len(chunks) // 2] >= 30
    assert chunks[-1] <= 100


def test_the_pace_that_is_shown_does_not_leap_either() -> None:
    metrics = EngineMetrics()
    for _ in range(9):
        metrics.record_step(0.100, 4, 0)
        metrics.record_step(0.150, 4, 64)
    usual = metrics.prefill_tokens_per_s
    assert usual == pytest.approx(64 / 0.05, rel=0.01)
    # Shorter than a usual step of decodes and its own tokens.
    metrics.record_step(0.1001, 4, 64)
    assert metrics.prefill_tokens_per_s <= 1.4 * usual


@pytest.mark.parametrize("block_size", [8, 12, 15, 16, 64])
def test_chunks_grow_again_after_one_slow_step(block_size: int) -> None:
    config = EngineConfig(block_size=block_size, token_budget=2048, watermark=0.0)
    pool, metrics = BlockPool(8192 // block_size, block_size), EngineMetrics()
    scheduler = Scheduler(BlockManager(pool, root_hash("pace")), config, metrics)
    # The machine slept.
    metrics.record_step(20.0, 0, 64)
    prompt = Request("a", "a", [3] * 4000, 4000, SamplingParams(), 0, 0.0)
    scheduler.add(prompt)
    num_steps = 0
    while prompt.num_uncomputed_tokens:
        (chunk,) = scheduler.schedule().prefills
        prompt.num_computed_tokens += chunk.num_tokens
        metrics.record_step(0.03 + 0.002 * chunk.num_tokens, 0, chunk.num_tokens)
        num_steps += 1
    # With the smallest chunks it would take 250, or 500 with blocks of 8.
    assert num_steps < 100
