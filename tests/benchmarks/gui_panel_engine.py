"""What the visible cache panel costs while the engine works: rates with and without it."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from app import paths
from engine.api.events import RequestUsage
from engine.api.params import SamplingParams
from tests.benchmarks.gui_tax_window import TaxedWindow

PAIRS = 9
TABS = 4
NEW_TOKENS = 96
SYSTEM = (
    "You are a patient assistant who explains things to people without special knowledge. Answer "
    "in complete sentences and in plain words, the most important fact first. Give one example "
    "that everybody knows from daily life, and say so when something is not known."
)
QUESTIONS = (
    "Why does the sea taste of salt?",
    "How does a pendulum clock keep the time?",
    "What happens in the brain while we sleep?",
    "Why does bread get hard and biscuits soft?",
)


def measure(pairs: int = PAIRS, models_dir: Path | None = None) -> dict[str, Any]:
    """Interleaved rounds of four tabs with the panel shown and hidden, on the CPU.

    ``engine_ratio``: median of the pairs' tokens a second, shown over hidden. ``cpu_ratio``: the
    same of tokens for each second of the processor, which other programs disturb less.
    ``panel_core_share``: what the window's thread used more with the panel, as a share of one core.
    """
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    rates: dict[bool, list[float]] = {True: [], False: []}
    shares: dict[bool, list[float]] = {True: [], False: []}
    costs: dict[bool, list[float]] = {True: [], False: []}
    with TaxedWindow(models_dir or paths.models_dir(), None, SYSTEM, params) as window:
        for shown in (True, False):
            window.show_panel(shown)
            window.ask(QUESTIONS)
        for pair in range(pairs):
            order = (True, False) if pair % 2 == 0 else (False, True)
            for shown in order:
                window.show_panel(shown)
                wall, cpu, process = time.perf_counter(), time.thread_time(), time.process_time()
                usages = window.ask(QUESTIONS)
                shares[shown].append(
                    (time.thread_time() - cpu) / (time.perf_counter() - wall)
                )  # fmt: skip
                rates[shown].append(_rate(usages))
                costs[shown].append(time.process_time() - process)
    cheaper = [b / a for a, b in zip(costs[True], costs[False], strict=True)]
    ratios = [a / b for a, b in zip(rates[True], rates[False], strict=True)]
    # Within a pair: between pairs the machine itself becomes faster and slower.
    extra = statistics.median(a - b for a, b in zip(shares[True], shares[False], strict=True))
    return {
        "engine_ratio": round(statistics.median(ratios), 4),
        "engine_ratios": [round(ratio, 3) for ratio in ratios],
        "cpu_ratio": round(statistics.median(cheaper), 4),
        "tok_s": {
            "shown": round(statistics.median(rates[True]), 1),
            "hidden": round(statistics.median(rates[False]), 1),
        },
        "panel_core_share": round(extra, 4),
        "window_core_share": {
            "shown": round(statistics.median(shares[True]), 4),
            "hidden": round(statistics.median(shares[False]), 4),
        },
    }


def _rate(usages: list[RequestUsage]) -> float:
    return sum(usage.output_tokens for usage in usages) / max(usage.total_s for usage in usages)
