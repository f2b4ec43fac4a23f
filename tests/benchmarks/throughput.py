"""W1: the published nano-vllm benchmark, 256 prompts at once; the order of draws matters."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence

from engine.api.events import RequestFinished
from engine.api.params import SamplingParams
from tests.benchmarks.contexts import TokenDraw
from tests.benchmarks.engines import Bench, open_bench, run_steps
from tests.benchmarks.options import Options
from tests.benchmarks.report import Row, emit, print_table

NUM_PROMPTS = 256
LENGTHS = (100, 1024)
LARGEST_TOKEN = 10_000
MAX_MODEL_LEN = 4096
EXPECTED = (142_827, 133_966)
"""Prompt and output tokens: other sums mean other draws, and figures that cannot be compared."""

TEMPERATURE = 0.6
TOKEN_BUDGET = 16_384
PREFILL_MS = 10_000.0
"""No limit: here nobody reads along, and whole prompts are what fills the device."""


def draw_workload() -> tuple[list[list[int]], list[int]]:
    """Prompts and output lengths.

    Raises:
        RuntimeError: their sums are not the published ones.
    """
    draw = random.Random(0)
    prompts = [
        [draw.randint(0, LARGEST_TOKEN) for _ in range(draw.randint(*LENGTHS))]
        for _ in range(NUM_PROMPTS)
    ]
    outputs = [draw.randint(*LENGTHS) for _ in range(NUM_PROMPTS)]
    sums = sum(len(prompt) for prompt in prompts), sum(outputs)
    if sums != EXPECTED:
        raise RuntimeError(f"{sums} prompt and output tokens were drawn, expected {EXPECTED}")
    return prompts, outputs


def measure(options: Options) -> Row:
    """Two runs after a small warm-up, the second with other tokens of the same lengths."""
    prompts, outputs = draw_workload()
    if options.small:
        prompts = [prompt[: len(prompt) // 16 + 1] for prompt in prompts[:8]]
        outputs = [length // 32 + 1 for length in outputs[:8]]
    model = options.model_or("random:tiny" if options.small else "", "random:qwen3-0.6b")
    bench = open_bench(
        options,
        model,
        max_running_requests=len(prompts),
        token_budget=TOKEN_BUDGET,
        prefill_time_budget_ms=PREFILL_MS,
        max_model_len=MAX_MODEL_LEN,
        **({"num_blocks": 1024} if options.small else {}),
    )
    draw = TokenDraw(LARGEST_TOKEN + 1, seed=1)
    _generate(bench, [draw.tokens(16) for _ in range(4)], [4] * 4)
    # As the application does once a model is loaded: a collection would walk all of it.
    gc.freeze()
    rows = []
    for run in range(1, (options.repeats or 2) + 1):
        if run > 1:
            prompts = [draw.tokens(len(prompt)) for prompt in prompts]
        rows.append(emit({"workload": "W1", "run": run, **_generate(bench, prompts, outputs)}))
    gc.unfreeze()
    print_table(rows)
    return {"workload": "W1", **bench.facts(), "rows": rows}


def _generate(bench: Bench, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> Row:
    """All prompts together; output tokens over the wall time of the whole.

    Raises:
        RuntimeError: an answer has not the length that was drawn.
    """
    core, watch = bench.core, bench.watch
    watch.peak_used_blocks = 0
    watch.steps.clear()
    first_step, preemptions = core.num_steps, core.metrics.num_preemptions
    start = time.perf_counter()
    for index, (prompt, length) in enumerate(zip(prompts, outputs, strict=True)):
        params = SamplingParams(temperature=TEMPERATURE, ignore_eos=True, max_tokens=length)
        core.add_request(str(index), prompt, params)
    cached = 0
    for event in run_steps(core):
        if isinstance(event, RequestFinished):
            if event.usage.output_tokens != outputs[int(event.request_id)]:
                raise RuntimeError(f"request {event.request_id} ended early: {event}")
            cached += event.usage.cached_tokens
    elapsed = time.perf_counter() - start
    submitting = sum(times.submit_s for times in watch.steps)
    # Where this is nearly nothing, the device waits for the host.
    waiting = sum(times.result_s for times in watch.steps)
    return {
        "prompt_tokens": sum(len(prompt) for prompt in prompts),
        "output_tokens": sum(outputs),
        "seconds": elapsed,
        "tok_s": sum(outputs) / elapsed,
        "steps": core.num_steps - first_step,
        "outside_runner_s": elapsed - submitting - waiting,
        "submitting_s": submitting,
        "waiting_s": waiting,
        "cached_tokens": cached,
        "preemptions": core.metrics.num_preemptions - preemptions,
        "pool_peak_blocks": watch.peak_used_blocks,
        "pool_blocks": bench.pool_blocks,
    }
