"""prefill: prompts of some length of which a part is in the cache; the first token of a prompt at
the client."""

from __future__ import annotations

import random
import statistics
import time

from engine.api.commands import Submit
from engine.api.events import RequestFinished, TokensGenerated
from engine.api.params import ChatMessage, SamplingParams
from tests.benchmarks import contexts, prose
from tests.benchmarks.desk import Desk, open_desk
from tests.benchmarks.engines import Bench, close, open_bench
from tests.benchmarks.options import Options
from tests.benchmarks.report import Row, emit, percentile, print_table

LENGTHS = (512, 2048, 8192)
CACHED_PERCENT = (0, 50, 95)
FIRST_TOKEN_PROMPT = 512
_REPLY_S = 120.0


def measure(options: Options) -> Row:
    """Every length with every cached share, then the first token through the engine thread."""
    lengths = options.contexts or ((96,) if options.small else LENGTHS)
    repeats = options.repeats or (2 if options.small else 20 if options.on_gpu else 3)
    model = options.model_or("random:tiny" if options.small else "", "random:qwen3-0.6b")
    # Prefixes stay in the cache while prompts come and go beside them.
    blocks = 6 * -(-max(lengths) // options.block_size) + 64
    bench = open_bench(options, model, num_blocks=blocks, watermark=0.0)
    bench.fill_pool()
    rows = []
    for length in lengths:
        for percent in CACHED_PERCENT:
            row = {"workload": "prefill", "prompt": length, "cached_percent": percent}
            if length >= bench.core.limits.context_length:
                most = bench.core.limits.context_length
                rows.append(emit(row | {"skipped": f"the model's context is {most} tokens"}))
                continue
            rows.append(emit(row | _cell(bench, options, length, percent, repeats)))
    facts = bench.facts()
    close(bench)
    prompt = 64 if options.small else FIRST_TOKEN_PROMPT
    with open_desk(options, model, **({"num_blocks": 512} if options.small else {})) as desk:
        first = emit({"workload": "prefill", **_first_token(desk, options, prompt, repeats)})
    print_table(rows)
    return {"workload": "prefill", **facts, "runs": repeats, "rows": rows, "first_token": first}


def _cell(bench: Bench, options: Options, length: int, percent: int, repeats: int) -> Row:
    """Median over prompts with one cached prefix and a new rest each; the first is not counted."""
    core, size = bench.core, bench.core.pool.block_size
    draw = contexts.TokenDraw(bench.config.vocab_size, seed=length + percent)
    prefix = draw.tokens(length * percent // 100 // size * size)
    if prefix:
        # One token more than the blocks that are to be found, since the last one is computed.
        contexts.remember(bench, [*prefix, 0])
    params = SamplingParams(temperature=options.temperature, ignore_eos=True, seed=0)
    times, steps = [], []
    for _ in range(repeats + 1):
        prompt = prefix + draw.tokens(length - len(prefix))
        before = core.num_steps
        start = time.perf_counter()
        request = core.add_request("prompt", prompt, params)
        while not any(isinstance(event, TokensGenerated) for event in core.step()):
            pass
        times.append(time.perf_counter() - start)
        steps.append(core.num_steps - before)
        if request.num_cached_tokens != len(prefix):
            found = request.num_cached_tokens
            raise RuntimeError(f"{found} tokens came from the cache, expected {len(prefix)}")
        contexts.drop(bench, ["prompt"])
    core.pool.drop_cached("benchmark")
    computed, median_s = length - len(prefix), statistics.median(times[1:])
    return {
        "cached": len(prefix),
        "computed": computed,
        "steps": statistics.median(steps[1:]),
        "ms": median_s * 1e3,
        "p95_ms": percentile(times[1:], 0.95) * 1e3,
        "computed_tok_s": computed / median_s,
        "prompt_tok_s": length / median_s,
    }


def _first_token(desk: Desk, options: Options, length: int, repeats: int) -> Row:
    """From sending an unknown message to the first token at the client; the first not counted."""
    draw = random.Random(0)
    params = SamplingParams(temperature=options.temperature, max_tokens=4, ignore_eos=True, seed=0)
    waits: list[float] = []
    usages = []
    for index in range(repeats + 1):
        text = prose.write(length, desk.count_tokens, draw)
        sent_s = time.perf_counter()
        name = f"first-{index}"
        desk.send(Submit((name,), name, (ChatMessage("user", text),), params))
        wait = 0.0
        finished = None
        while finished is None:
            now, events = desk.poll(_REPLY_S)
            if now - sent_s > _REPLY_S:
                raise RuntimeError(f"no answer within {_REPLY_S:.0f} s")
            if not wait and any(isinstance(event, TokensGenerated) for event in events):
                wait = now - sent_s
            finished = next((e for e in events if isinstance(e, RequestFinished)), None)
        if not wait:
            raise RuntimeError(f"no token came: {finished.error}")
        waits.append(wait)
        usages.append(finished.usage)
    waits, usages = waits[1:], usages[1:]
    return {
        "part": "first token at the client",
        "prompt_tokens": statistics.median(usage.prompt_tokens for usage in usages),
        "first_token_ms": statistics.median(waits) * 1e3,
        "first_token_p95_ms": percentile(waits, 0.95) * 1e3,
        "engine_queue_ms": statistics.median(usage.queue_s for usage in usages) * 1e3,
        "engine_prefill_ms": statistics.median(usage.prefill_s for usage in usages) * 1e3,
    }
