"""Contexts of any length that are there at once, for measuring what comes after them."""

from __future__ import annotations

import numpy as np

from engine.api.params import SamplingParams
from tests.benchmarks.engines import Bench


class TokenDraw:
    """Random token ids, never the same twice."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self._vocab_size = vocab_size

    def tokens(self, count: int) -> list[int]:
        drawn: list[int] = self._generator.integers(self._vocab_size, size=count).tolist()
        return drawn


def hold(bench: Bench, prompts: list[list[int]], params: SamplingParams) -> list[str]:
    """Requests that decode after these prompts, whose KV is taken to be what the pool holds.

    The scheduler runs as ever, so tables and shared prefixes are those of real requests; only the
    model is not asked. Returns the requests' ids.

    Raises:
        RuntimeError: the pool has no room for all of them.
    """
    core = bench.core
    names = [f"held-{index}" for index in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        core.add_request(name, prompt, params)
    bench.watch.pretend = True
    try:
        while any(not request.paused for request in core.requests.values()):
            core.step()
            for name in names:
                request = core.requests.get(name)
                if request is None or request.num_preemptions:
                    raise RuntimeError(f"{bench.pool_blocks} blocks do not hold the contexts")
                if request.num_committed_tokens >= request.num_prompt_tokens and not request.paused:
                    # It waits for the others, so that all begin at their length.
                    core.pause(name)
        while core.step():
            pass
    finally:
        bench.watch.pretend = False
    for name in names:
        core.resume(name)
    core.take_events()
    return names


def remember(bench: Bench, prefix: list[int]) -> None:
    """Leaves the full blocks of ``prefix`` in the prefix cache, with what the pool holds as KV."""
    (name,) = hold(bench, [prefix], SamplingParams(temperature=0.0))
    drop(bench, [name])


def drop(bench: Bench, names: list[str], *, cached: bool = False) -> None:
    """Ends requests; with ``cached`` forgets what they leave in the prefix cache too."""
    for name in names:
        bench.core.cancel(name)
    # A step in flight that names them has to be over first.
    while bench.core.has_work:
        bench.core.step()
    bench.core.take_events()
    if cached:
        bench.core.pool.drop_cached("benchmark")
