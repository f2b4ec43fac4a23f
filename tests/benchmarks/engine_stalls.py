"""How long the engine thread is away from its answers: a long text comes, a question is inspected.

``python tests/benchmarks/engine_stalls.py [--models-dir DIR] [--chars 300000] [--threads N]``
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app import paths
from engine import encoding
from engine.api.client import EngineHandle
from engine.api.commands import Cancel, CompareBackends, Inspect, LoadModel, Submit
from engine.api.events import ModelLoaded, ParityReport, RequestFinished, TokensGenerated
from engine.api.params import ChatMessage, EngineConfig, SamplingParams
from engine.core import EngineCore
from tests.helpers.talk import Talk

_LINE = 'The quick brown fox, who is 12 years old, jumps over "lazy" dogs; naïve façade 你好。\n'


class StepTimes:
    """Begin and end of every step, in seconds."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []
        step = EngineCore.step

        def timed(core: EngineCore) -> object:
            started = time.perf_counter()
            events = step(core)
            self.times.append((started, time.perf_counter()))
            return events

        EngineCore.step = timed  # type: ignore[assignment,method-assign]

    def longest_gap_ms(self) -> float:
        """Longest time between two steps since the last call."""
        taken, self.times = self.times, []
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(taken)]
        return max(gaps, default=0.0) * 1e3


def text_of(num_chars: int) -> str:
    return (_LINE * (num_chars // len(_LINE) + 1))[:num_chars]


def stream(talk: Talk, name: str, steps: StepTimes, act: Callable[[], object]) -> float:
    """The longest gap of an answer while ``act`` happens, in milliseconds."""
    params = SamplingParams(temperature=0.0, max_tokens=2000, ignore_eos=True, seed=0)
    talk.send(Submit((name,), name, (ChatMessage("user", "Tell me a story."),), params))
    talk.until(TokensGenerated, timeout_s=60.0, request_id=name)
    steps.times.clear()
    act()
    num_steps = len(steps.times)
    while len(steps.times) < num_steps + 2:
        # The gap that was open when the reply came ends with the next step.
        time.sleep(0.002)
    gap = steps.longest_gap_ms()
    talk.send(Cancel(name))
    talk.until(RequestFinished, timeout_s=60.0, request_id=name)
    return gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, default=paths.models_dir())
    parser.add_argument("--chars", type=int, default=300_000)
    parser.add_argument("--inspected-chars", type=int, default=6_000)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    handle = EngineHandle()
    talk, steps = Talk(handle.owner), StepTimes()
    config = EngineConfig(num_threads=options.threads)
    talk.send(LoadModel(str(options.models_dir), config=config))
    talk.until(ModelLoaded, timeout_s=120.0)
    long = (ChatMessage("user", text_of(options.chars)),)

    def submit_long(name: str) -> None:
        talk.send(Submit((name,), name, long))
        talk.until(RequestFinished, timeout_s=60.0, request_id=name)

    inline, encoding.INLINE_CHARS = encoding.INLINE_CHARS, sys.maxsize
    gap = stream(talk, "a", steps, lambda: submit_long("a1"))
    print(f"{options.chars:,} characters encoded on the engine thread: {gap:.1f} ms")
    encoding.INLINE_CHARS = inline
    gap = stream(talk, "b", steps, lambda: submit_long("b1"))
    print(f"{options.chars:,} characters encoded beside it: {gap:.1f} ms")
    read = (ChatMessage("user", text_of(options.inspected_chars)),)
    one = SamplingParams(temperature=0.0, max_tokens=1, seed=0)
    talk.send(Submit(("read",), "read", read, one))
    talk.until(RequestFinished, timeout_s=120.0, request_id="read")
    for query in (
        Inspect("read", command_id="live"),
        CompareBackends("read", read, "auto", command_id="two"),
    ):
        started = time.perf_counter()
        gap = stream(talk, query.command_id, steps, partial(talk.ask, query, 600.0))
        took = time.perf_counter() - started
        (report,) = (e for e in talk.events if isinstance(e, ParityReport))
        talk.events.clear()
        name = type(query).__name__
        print(f"{name} of {report.num_tokens} tokens: {gap:.1f} ms, answered in {took:.1f} s")
    handle.owner.close()


if __name__ == "__main__":
    main()
