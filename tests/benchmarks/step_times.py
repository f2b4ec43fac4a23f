"""Whole engine steps by the clock, and where their time goes."""

from __future__ import annotations

import gc
import statistics
import time

from engine.api.events import TokensGenerated
from tests.benchmarks.engines import Bench
from tests.benchmarks.report import Row, percentile


def time_steps(bench: Bench, batch: int, warm_up: int, steps: int) -> Row:
    """Steps of ``batch`` running decodes.

    ``step_ms`` is from call to call, sampling and text included; ``engine_us`` what is left of it
    outside the runner (scheduler, blocks, text); ``submit_ms`` and ``result_ms`` are the two halves
    of the runner as the host sees them; ``device_ms`` is between the first and the last work of a
    step on a GPU.

    Raises:
        RuntimeError: a step did not bring a token for each request.
    """
    core = bench.core
    for _ in range(warm_up):
        core.step()
    # What these steps asked for and would get when there is time to spare: a shared beginning.
    bench.runner.prepare()
    first = len(bench.watch.steps)
    bench.watch.on_device = bench.device.type == "cuda"
    totals = []
    # What set-up left behind is large, and looking through it has nothing to do with a step.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(steps):
            start = time.perf_counter()
            events = core.step()
            totals.append(time.perf_counter() - start)
            tokens = sum(isinstance(event, TokensGenerated) for event in events)
            if tokens != batch:
                raise RuntimeError(f"a step brought {tokens} tokens for {batch} requests")
    finally:
        gc.unfreeze()
        bench.watch.on_device = False
    taken = bench.watch.steps[first:]
    step_s = statistics.median(totals)
    submit_s = statistics.median(times.submit_s for times in taken)
    # With lag the newest step is still in flight.
    result_s = statistics.median(times.result_s for times in taken[: len(taken) - 1])
    inside = [t.submit_s + t.result_s for t in taken]
    outside = [max(total - part, 0.0) for total, part in zip(totals, inside, strict=False)]
    device = [t.device_s for t in taken[:-1] if t.device_s is not None]
    return {
        "step_ms": step_s * 1e3,
        "step_p95_ms": percentile(totals, 0.95) * 1e3,
        "tok_s": batch / step_s,
        "engine_us": statistics.median(outside) * 1e6,
        "submit_ms": submit_s * 1e3,
        "result_ms": result_s * 1e3,
        "device_ms": statistics.median(device) * 1e3 if device else None,
    }
