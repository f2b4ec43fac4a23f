"""decode: whole engine steps of some sequences after contexts of some length."""

from __future__ import annotations

from engine.api.params import SamplingParams
from tests.benchmarks import contexts
from tests.benchmarks.engines import Bench, open_bench
from tests.benchmarks.options import Options
from tests.benchmarks.report import Row, emit, print_table
from tests.benchmarks.step_times import time_steps

BATCHES = (1, 8, 64)
CONTEXTS = (512, 4096, 32_768)
_WARM_UP, _STEPS = 16, 64


def measure(options: Options) -> Row:
    """Every batch at every context that model and pool have room for; the others say why not."""
    batches = options.batches or ((1, 3) if options.small else BATCHES)
    lengths = options.contexts or ((64, 100) if options.small else CONTEXTS)
    warm_up, steps = (2, 4) if options.small else (_WARM_UP, _STEPS)
    if options.repeats is not None:
        steps = options.repeats
    model = options.model_or("random:tiny" if options.small else "", "random:qwen3-0.6b")
    margin = warm_up + steps + 2
    wanted = max(b * _blocks(c + margin, options.block_size) for b in batches for c in lengths)
    bench = open_bench(
        options,
        model,
        num_blocks=wanted + 1,
        max_running_requests=max(batches),
        token_budget=16_384,
        watermark=0.0,
    )
    bench.fill_pool()
    rows = []
    for length in lengths:
        for batch in batches:
            row = {"workload": "decode", "batch": batch, "context": length}
            rows.append(emit(row | _cell(bench, options, batch, length, warm_up, steps)))
    print_table(rows)
    return {"workload": "decode", **bench.facts(), "steps": steps, "rows": rows}


def _cell(bench: Bench, options: Options, batch: int, length: int, warm_up: int, steps: int) -> Row:
    most = bench.core.limits.context_length
    end = length + warm_up + steps + 2
    if end > most:
        return {"skipped": f"the model's context is {most} tokens"}
    needed = batch * _blocks(end, bench.core.pool.block_size)
    if needed > bench.pool_blocks:
        return {"skipped": f"{needed} blocks are needed, the pool has {bench.pool_blocks}"}
    draw = contexts.TokenDraw(bench.config.vocab_size, seed=batch * length)
    params = SamplingParams(temperature=options.temperature, ignore_eos=True, seed=0)
    names = contexts.hold(bench, [draw.tokens(length) for _ in range(batch)], params)
    try:
        return time_steps(bench, batch, warm_up, steps)
    finally:
        contexts.drop(bench, names, cached=True)


def _blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
