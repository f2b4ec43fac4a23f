"""How much a shared system prompt saves, and how much of the pool's slots stays empty."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.events import RequestFinished, TokensGenerated
from engine.api.params import EngineConfig, SamplingParams
from engine.block_hash import root_hash
from engine.core import EngineCore
from engine.limits import ModelLimits
from tests.benchmarks import scheduling_cost
from tests.benchmarks.engines import null_core, run_steps
from tests.benchmarks.report import Row, emit
from tests.benchmarks.runners import NullStream
from tests.helpers.hash_runner import VOCAB, HashRunner

SYSTEM_TOKENS = 1024
NUM_REQUESTS = 100
HELD_LENGTHS = (137, 259, 515, 1027, 2041)
CONTIGUOUS_SLOTS = 2048
"""What an engine without paging reserves for each sequence."""

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
_NEW_TOKENS = 4
_SWEEP_TABS, _SWEEP_SYSTEM, _SWEEP_TURNS = 8, 1000, 6
_SWEEP_BATCH, _SWEEP_CONTEXT = 64, 2048


@dataclass(frozen=True, slots=True)
class _Counted:
    """Prompt tokens that were computed: all, and of the system prompt; and what was answered."""

    prompt_tokens: int
    system_tokens: int
    outputs: dict[str, list[int]]


def prefix_saved(small: bool = False) -> Row:
    """Many requests with one system prompt, handed in together, with and without the cache.

    The share of the system prompt's tokens, counted at the model, that the cache saves.

    Raises:
        RuntimeError: the engine's own account differs from what the model was asked to compute, or
            the cache changed an answer.
    """
    count, system = (10, 64) if small else (NUM_REQUESTS, SYSTEM_TOKENS)
    with_cache = _count(count, system, prefix_caching=True)
    without = _count(count, system, prefix_caching=False)
    if with_cache.outputs != without.outputs:
        raise RuntimeError("the prefix cache changed an answer")
    return emit(
        {
            "workload": "seeds",
            "part": "prefix",
            "requests": count,
            "system_tokens": system,
            "computed_with_cache": with_cache.prompt_tokens,
            "computed_without": without.prompt_tokens,
            "system_computed_with_cache": with_cache.system_tokens,
            "system_computed_without": without.system_tokens,
            "prefix_saved": 1.0 - with_cache.system_tokens / without.system_tokens,
        }
    )


def waste(block_size: int = 16) -> tuple[float, float]:
    """Of the slots that the engine gave to sequences of known lengths the share that holds nothing,
    and the same if each had a fixed reservation."""
    core = null_core(4096, block_size)
    draw = random.Random(0)
    for length in HELD_LENGTHS:
        prompt = [draw.randrange(VOCAB) for _ in range(length)]
        core.add_request(f"held-{length}", prompt, SamplingParams(temperature=0.0))
    while any(r.num_committed_tokens < r.num_prompt_tokens for r in core.requests.values()):
        for request in core.requests.values():
            # Whoever is done stays at its length until all are.
            if request.num_committed_tokens >= request.num_prompt_tokens and not request.paused:
                core.pause(request.request_id)
        core.step()
    requests = list(core.requests.values())
    held = sum(request.num_committed_tokens for request in requests)
    allocated = sum(len(request.block_table) for request in requests) * block_size
    if held != sum(HELD_LENGTHS):
        raise RuntimeError(f"{held} tokens are held, expected {sum(HELD_LENGTHS)}")
    reserved = len(requests) * CONTIGUOUS_SLOTS
    return 1.0 - held / allocated, 1.0 - held / reserved


def block_size_sweep(small: bool = False) -> list[Row]:
    """Waste, cache hits of conversations, and the cost of a step, by block size."""
    rows = []
    for size in (16, 64) if small else BLOCK_SIZES:
        cached, prompts = _conversations(size, 2 if small else _SWEEP_TURNS)
        batch, context = (4, 256) if small else (_SWEEP_BATCH, _SWEEP_CONTEXT)
        steps = scheduling_cost.decode_step_us(
            batch, context, num_blocks=2 * batch * context // size + 64, block_size=size
        )
        rows.append(
            emit(
                {
                    "workload": "seeds",
                    "part": "block size",
                    "block_size": size,
                    "waste_paged": waste(size)[0],
                    "hit_ratio": cached / prompts,
                    "step_us": steps["median"],
                    "step_mean_us": steps["mean"],
                    "hash_us_per_1000": hash_us_per_1000(size),
                }
            )
        )
    return rows


def hash_us_per_1000(block_size: int = 16, rounds: int = 15) -> float:
    """Microseconds to hash the blocks of 1,000 tokens; the median of ``rounds``."""
    from engine.block_hash import HashChain

    draw = random.Random(0)
    tokens = [draw.randrange(150_000) for _ in range(16_384)]
    times = []
    for _ in range(rounds):
        chain = HashChain(root_hash("benchmark"), block_size)
        start = time.perf_counter()
        chain.upto(tokens, len(tokens) // block_size)
        times.append(time.perf_counter() - start)
    return sorted(times)[rounds // 2] * 1e6 / (len(tokens) / 1000)


def _count(num_requests: int, system_tokens: int, prefix_caching: bool) -> _Counted:
    draw = random.Random(0)
    system = [draw.randrange(VOCAB) for _ in range(system_tokens)]
    prompts = [
        system + [draw.randrange(VOCAB) for _ in range(draw.randint(20, 60))]
        for _ in range(num_requests)
    ]
    # Room for all, so that nothing is computed twice because it was evicted.
    num_blocks = sum(len(prompt) + 32 for prompt in prompts) // 16 + num_requests
    runner = HashRunner(num_blocks, 16)
    config = EngineConfig(prefix_caching=prefix_caching, max_running_requests=num_requests)
    limits = ModelLimits(1 << 30, frozenset(), root_hash("count"))
    core = EngineCore(runner, limits, config, num_blocks, lambda stop: NullStream())
    params = SamplingParams(temperature=0.0, max_tokens=_NEW_TOKENS)
    for index, prompt in enumerate(prompts):
        core.add_request(str(index), prompt, params)
    outputs: dict[str, list[int]] = {str(index): [] for index in range(num_requests)}
    accounted = 0
    for event in run_steps(core):
        if isinstance(event, TokensGenerated):
            outputs[event.request_id] += event.token_ids
        elif isinstance(event, RequestFinished):
            accounted += event.usage.computed_tokens
            missing = len(prompts[int(event.request_id)]) - event.usage.cached_tokens
            if event.usage.computed_tokens != missing:
                raise RuntimeError(f"{event.usage}: cached and computed are not the whole prompt")
    asked = sum(_prompt_part(runner, prompts, 1 << 30))
    if asked != accounted:
        raise RuntimeError(f"the engine accounts for {accounted} tokens, the model saw {asked}")
    return _Counted(asked, sum(_prompt_part(runner, prompts, system_tokens)), outputs)


def _prompt_part(runner: HashRunner, prompts: Sequence[Sequence[int]], limit: int) -> list[int]:
    """Of each chunk that the model got, the tokens of the prompt's first ``limit``."""
    parts = []
    for output in runner.outputs:
        for chunk in output.chunks:
            last = min(len(prompts[int(chunk.request.request_id)]), limit)
            parts.append(max(min(chunk.start + chunk.num_tokens, last) - chunk.start, 0))
    return parts


def _conversations(block_size: int, turns: int) -> tuple[int, int]:
    """Cached and all prompt tokens of conversations whose turns append to exact ids."""
    draw = random.Random(0)
    core = null_core(200_000 // block_size, block_size)
    system = [draw.randrange(VOCAB) for _ in range(_SWEEP_SYSTEM)]
    histories = [list(system) for _ in range(_SWEEP_TABS)]
    cached = prompts = 0
    for turn in range(turns):
        for index, history in enumerate(histories):
            history += [draw.randrange(VOCAB) for _ in range(draw.randint(40, 200))]
            params = SamplingParams(temperature=0.0, max_tokens=draw.randint(100, 400))
            core.add_request(f"{index}-{turn}", history, params, conversation_id=str(index))
        for event in run_steps(core):
            if isinstance(event, RequestFinished):
                assert event.turn is not None
                histories[int(event.conversation_id)] += event.turn.output_ids
                cached += event.usage.cached_tokens
                prompts += event.usage.prompt_tokens
    return cached, prompts
