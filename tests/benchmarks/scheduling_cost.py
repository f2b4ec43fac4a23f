"""What the scheduler and the block manager cost a step: an engine whose model takes no time."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.api.events import RequestPreempted, TokensGenerated
from engine.api.params import SamplingParams
from engine.core import EngineCore
from tests.benchmarks.engines import null_core
from tests.benchmarks.report import Row, emit, percentile

BATCHES = (1, 8, 64, 256)
CONTEXT = 8192
POOLS = (140_000, 1_000_000)
_STEPS, _WARM_UP = 400, 32
_NUM_WAITING = 200
_MARGIN_BLOCKS = 64
_PARAMS = SamplingParams(temperature=0.0)


def measure(small: bool = False) -> dict[str, dict[str, float]]:
    """Median microseconds of a decode step, by blocks of the pool and by requests."""
    pools, batches, context = (POOLS, BATCHES, CONTEXT)
    if small:
        pools, batches, context = (2000, 20_000), (1, 4), 256
    medians: dict[str, dict[str, float]] = {}
    for num_blocks in pools:
        by_batch = medians.setdefault(str(num_blocks), {})
        for batch in batches:
            figures = decode_step_us(batch, context, num_blocks=num_blocks)
            emit(_row("decode step", num_blocks, context, requests=batch, **figures))
            by_batch[str(batch)] = figures["median"]
    return medians


def others(small: bool = False) -> list[Row]:
    """Everything beside plain decode steps that the engine thread may have to do, in µs."""
    pools, context = ((2000, 20_000), 256) if small else (POOLS, CONTEXT)
    rounds, batch = (3, 8) if small else (9, 64)
    rows = [emit(_row("preemption", 0, context, **_preemption_us(context, rounds)))]
    for blocks in pools:

        def add(part: str, figures: dict[str, float], blocks: int = blocks) -> None:
            rows.append(emit(_row(part, blocks, context, **figures)))

        with_events = decode_step_us(batch, context, num_blocks=blocks, events=True)
        add("decode step with block events", {"requests": batch, **with_events})
        add("one request", _request_us(blocks, context, rounds))
        add("others wait, unknown prompts", _waiting_us(blocks, context, shared=False))
        add("others wait, known prompts", _waiting_us(blocks, context, shared=True))
        add("idle check", _check_us(blocks))
    return rows


def decode_step_us(
    batch: int, context: int, *, num_blocks: int, block_size: int = 16, events: bool = False
) -> dict[str, float]:
    """Whole steps of ``batch`` decodes after ``context`` tokens each, all prompts different.

    ``events``: the pool's events are recorded and taken, as while the cache panel is open.
    """
    core = null_core(
        num_blocks, block_size, max_running_requests=batch, token_budget=16_384, watermark=0.0
    )
    for index in range(batch):
        # Not all of them fill a block in the same step.
        prompt = _prompt(index, context - index % block_size)
        core.add_request(str(index), prompt, _PARAMS)
    _until_all_decode(core)
    core.log.enabled = events
    times = []
    with _no_garbage():
        for step in range(_WARM_UP + _STEPS):
            start = time.perf_counter()
            core.step()
            if events:
                core.log.drain()
            if step >= _WARM_UP:
                times.append(time.perf_counter() - start)
    if len(core.scheduler.running) != batch:
        raise RuntimeError("a request left the batch: the pool is too small")
    return {
        "median": statistics.median(times) * 1e6,
        "mean": statistics.fmean(times) * 1e6,
        "p99": percentile(times, 0.99) * 1e6,
    }


def _request_us(num_blocks: int, context: int, rounds: int) -> dict[str, float]:
    """One request from its admission to its end, with an unknown and with a known prompt."""
    times: dict[str, list[float]] = {}

    def timed(name: str, action: Callable[[], object]) -> None:
        start = time.perf_counter()
        action()
        times.setdefault(name, []).append(time.perf_counter() - start)

    core = null_core(num_blocks, token_budget=1 << 20)
    with _no_garbage():
        for index in range(rounds):
            for kind in ("miss", "hit"):
                prompt = _prompt(index, context)
                timed(f"{kind}_add", lambda p=prompt: core.add_request("one", p, _PARAMS))
                timed(f"{kind}_first_step", core.step)
                timed(f"{kind}_finish", lambda: core.cancel("one"))
                core.take_events()
            core.pool.drop_cached("benchmark")
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def _preemption_us(context: int, rounds: int) -> dict[str, float]:
    """A step that takes one request's blocks away for another, and the one that takes it back."""
    preempting, returning = [], []
    with _no_garbage():
        for _ in range(rounds):
            # Room for both prompts and a block: one of them has to give way before long.
            core = null_core(2 * (context // 16) + 1, token_budget=1 << 20, watermark=0.0)
            for index in range(2):
                core.add_request(str(index), _prompt(index, context), _PARAMS)
            _until_all_decode(core)
            preempting.append(_step_until(core, RequestPreempted))
            core.cancel("0")
            core.take_events()
            returning.append(_step_until(core, TokensGenerated))
    return {
        "preempting_step": statistics.median(preempting) * 1e6,
        "returning_step": statistics.median(returning) * 1e6,
    }


def _waiting_us(num_blocks: int, context: int, shared: bool) -> dict[str, float]:
    """A decode step while many requests wait that do not fit.

    ``shared``: all but the end of their prompts is in the cache, so that each look finds hits.
    """
    core = null_core(num_blocks, token_budget=1 << 20, watermark=0.0)
    core.add_request("known", _prompt(1, context), _PARAMS)
    _until_all_decode(core)
    # What is left is held by one that goes on, but for a margin to grow into.
    rest = (core.pool.num_available - _MARGIN_BLOCKS) * 16
    core.add_request("large", _prompt(2, rest), _PARAMS)
    _until_all_decode(core)
    for index in range(_NUM_WAITING):
        own = _prompt(3 + index, max(context, 32 * _MARGIN_BLOCKS))
        prompt = _prompt(1, context)[: context - 16] + own if shared else own
        core.add_request(f"waits-{index}", prompt, _PARAMS)
    times = []
    with _no_garbage():
        for _ in range(_WARM_UP):
            core.step()
        for _ in range(_STEPS // 4):
            start = time.perf_counter()
            core.step()
            times.append(time.perf_counter() - start)
    if len(core.scheduler.waiting) != _NUM_WAITING:
        raise RuntimeError(f"{len(core.scheduler.waiting)} requests wait, not {_NUM_WAITING}")
    return {"waiting": _NUM_WAITING, "median": statistics.median(times) * 1e6}


def _check_us(num_blocks: int) -> dict[str, float]:
    """The recount of the pool that the engine thread makes when it becomes idle."""
    core = null_core(num_blocks, token_budget=1 << 20)
    core.add_request("one", _prompt(0, num_blocks * 16 // 2), _PARAMS)
    _until_all_decode(core)
    core.cancel("one")
    times = []
    for _ in range(3):
        start = time.perf_counter()
        found = core.violations()
        times.append(time.perf_counter() - start)
        if found:
            raise RuntimeError(f"the pool is not sound: {found[0]}")
    return {"median": statistics.median(times) * 1e6}


def _prompt(index: int, length: int) -> list[int]:
    """Tokens that no other index shares."""
    start = index << 20
    return [(start + offset) & 0x7FFFFFFF for offset in range(length)]


def _until_all_decode(core: EngineCore) -> None:
    while any(not request.num_output_tokens for request in core.requests.values()):
        core.step()


def _step_until(core: EngineCore, kind: type[object], most: int = 100) -> float:
    """Seconds of the step that brings an event of this kind."""
    for _ in range(most):
        start = time.perf_counter()
        events = core.step()
        elapsed = time.perf_counter() - start
        if any(isinstance(event, kind) for event in events):
            return elapsed
    raise RuntimeError(f"no {kind.__name__} within {most} steps")


@contextmanager
def _no_garbage() -> Iterator[None]:
    """The collector stops for as long as the heap is large, which is the benchmark's doing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _row(part: str, num_blocks: int, context: int, **figures: float) -> Row:
    return {
        "workload": "seeds",
        "part": part,
        "pool_blocks": num_blocks,
        "context": context,
        **{
            name if name in ("requests", "waiting") else f"{name}_us": value
            for name, value in figures.items()
        },
    }
