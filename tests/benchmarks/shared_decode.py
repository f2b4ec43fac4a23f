"""W3: sequences with one long prefix and some tokens of their own, decoding together.

With and without the kernel that reads a shared prefix once, where the engine can switch it.
"""

from __future__ import annotations

from dataclasses import fields

from engine.api.params import EngineConfig, SamplingParams
from tests.benchmarks import contexts
from tests.benchmarks.engines import Bench, close, open_bench
from tests.benchmarks.options import Options
from tests.benchmarks.report import Row, emit, print_table
from tests.benchmarks.step_times import time_steps

BATCHES = (4, 8, 16, 64)
PREFIXES = (512, 2048, 8192)
OWN_TOKENS, NEW_TOKENS = 512, 256
SWITCH = "shared_prefix_decode"
"""The engine's setting for the shared-prefix kernel; without it there is one variant."""

_WARM_UP = 8


def measure(options: Options) -> Row:
    """Every batch with every prefix, both variants; ``speedup`` is plain over shared."""
    batches = options.batches or ((2, 3) if options.small else BATCHES)
    prefixes = options.system or ((64,) if options.small else PREFIXES)
    own, steps = (16, 4) if options.small else (OWN_TOKENS, NEW_TOKENS - _WARM_UP)
    model = options.model_or("random:tiny" if options.small else "", "random:qwen3-0.6b")
    switchable = any(field.name == SWITCH for field in fields(EngineConfig))
    rows: list[Row] = []
    facts: dict[str, object] = {}
    for variant in ("plain", "shared") if switchable else ("plain",):
        chosen = {SWITCH: variant == "shared"} if switchable else {}
        size = options.block_size
        most = max(prefixes) + max(batches) * (own + NEW_TOKENS + 2 * size)
        bench = open_bench(
            options,
            model,
            num_blocks=-(-most // size) + 1,
            max_running_requests=max(batches),
            watermark=0.0,
            **chosen,
        )
        bench.fill_pool()
        for prefix in prefixes:
            for batch in batches:
                row = {"workload": "W3", "kernel": variant, "batch": batch, "prefix": prefix}
                rows.append(emit(row | _cell(bench, options, batch, prefix, own, steps)))
        facts = bench.facts()
        close(bench)
    print_table(rows)
    result = {"workload": "W3", **facts, "own_tokens": own, "steps": steps, "rows": rows}
    if switchable:
        return result | {"speedups": _speedups(rows)}
    return result | {"note": f"the engine has no setting {SWITCH}: there is no other variant"}


def _cell(bench: Bench, options: Options, batch: int, prefix: int, own: int, steps: int) -> Row:
    most = bench.core.limits.context_length
    if prefix + own + _WARM_UP + steps + 2 > most:
        return {"skipped": f"the model's context is {most} tokens"}
    draw = contexts.TokenDraw(bench.config.vocab_size, seed=batch * prefix)
    shared = draw.tokens(prefix)
    params = SamplingParams(temperature=options.temperature, ignore_eos=True, seed=0)
    prompts = [shared + draw.tokens(own) for _ in range(batch)]
    names = contexts.hold(bench, prompts, params)
    whole = prefix // bench.core.pool.block_size
    tables = [tuple(bench.core.requests[name].block_table[:whole]) for name in names]
    if len(set(tables)) != 1:
        raise RuntimeError("the prefix is not shared")
    try:
        return time_steps(bench, batch, _WARM_UP, steps)
    finally:
        contexts.drop(bench, names, cached=True)


def _speedups(rows: list[Row]) -> list[Row]:
    """Steps without the kernel over steps with it."""
    times = {(r["kernel"], r["batch"], r["prefix"]): r.get("step_ms") for r in rows}
    found = []
    for (kernel, batch, prefix), plain in times.items():
        shared = times.get(("shared", batch, prefix))
        if kernel == "plain" and plain and shared:
            found.append({"batch": batch, "prefix": prefix, "speedup": plain / shared})
    return [emit(row) for row in found]
