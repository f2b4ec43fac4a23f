"""gui-tax: what the window costs the engine. Tokens a second with the window open, some tabs
streaming and the cache panel visible, over the same conversations without a window.

Each side runs in a process of its own; the rates are on the engine's own clock.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import statistics
from collections.abc import Callable

from engine.api.commands import Submit
from engine.api.events import RequestFinished, RequestUsage
from engine.api.params import ChatMessage, SamplingParams
from tests.benchmarks.chats import QUESTIONS, SYSTEM
from tests.benchmarks.desk import open_desk
from tests.benchmarks.options import RANDOM, CannotRunHere, Options, model_path, models_dir
from tests.benchmarks.report import Row, emit, print_table, tidy

TABS = 4
NEW_TOKENS, ROUNDS = 256, 3
_REPLY_S = 300.0


def measure(options: Options) -> Row:
    """Both sides in turn, ``repeats`` times; ``gui_tax`` is the median of the rates' ratios.

    Raises:
        CannotRunHere: there is no Qt here, or a model that the window could not load.
    """
    if importlib.util.find_spec("PySide6") is None:
        raise CannotRunHere("gui-tax opens the window, and PySide6 is not installed")
    if options.model.startswith(RANDOM):
        raise CannotRunHere("gui-tax needs a model that the window can load: a file or folder")
    repeats = options.repeats or (1 if options.small else 5)
    rows = []
    for run in range(repeats):
        sides: list[tuple[str, Callable[[Options], list[Row]]]] = [
            ("plain", without_window),
            ("window", with_window),
        ]
        rates = {}
        for name, side in sides if run % 2 == 0 else sides[::-1]:
            found = _in_process(side, options)
            rates[name] = statistics.median(row["decode_tok_s"] for row in found)
            rows += [emit({"workload": "gui-tax", "run": run, "side": name, **r}) for r in found]
        emit({"workload": "gui-tax", "run": run, "ratio": rates["window"] / rates["plain"]})
        rows.append({"run": run, "side": "ratio", "decode_tok_s": rates["window"] / rates["plain"]})
    print_table(rows)
    ratios = [row["decode_tok_s"] for row in rows if row["side"] == "ratio"]
    return tidy(
        {
            "workload": "gui-tax",
            "gui_tax": statistics.median(ratios),
            "tok_s_window": _median_rate(rows, "window"),
            "tok_s_plain": _median_rate(rows, "plain"),
            "tabs": TABS,
            "runs": repeats,
        }
    )


def without_window(options: Options) -> list[Row]:
    """The conversations through the engine thread alone; a row for each round but the first."""
    params, rounds = _params(options), _rounds(options)
    rows = []
    with open_desk(options, options.model) as desk:
        for number in range(rounds + 1):
            for index in range(TABS):
                name = f"{number}-{index}"
                messages = (ChatMessage("system", SYSTEM), ChatMessage("user", QUESTIONS[index]))
                desk.send(Submit((name,), name, messages, params))
            usages: list[RequestUsage] = []
            while len(usages) < TABS:
                _, events = desk.poll(_REPLY_S)
                if not events:
                    raise RuntimeError(f"nothing came for {_REPLY_S:.0f} s")
                usages += [e.usage for e in events if isinstance(e, RequestFinished)]
            rows.append(_row(usages, params))
    return rows[1:]


def with_window(options: Options) -> list[Row]:
    """The same in a real window with a temporary profile, drawn off the screen."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from tests.benchmarks.gui_tax_window import TaxedWindow

    params, rounds = _params(options), _rounds(options)
    folder, model = models_dir(options), model_path(options)
    with TaxedWindow(folder, model, SYSTEM, params) as window:
        found = [window.ask(QUESTIONS[:TABS]) for _ in range(rounds + 1)]
    return [_row(usages, params) for usages in found[1:]]


def _params(options: Options) -> SamplingParams:
    length = 24 if options.small else NEW_TOKENS
    return SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True)


def _rounds(options: Options) -> int:
    return 1 if options.small else ROUNDS


def _row(usages: list[RequestUsage], params: SamplingParams) -> Row:
    short = [usage for usage in usages if usage.output_tokens != params.max_tokens]
    if short:
        raise RuntimeError(f"an answer has not {params.max_tokens} tokens: {short[0]}")
    whole_s = max(usage.total_s for usage in usages)
    return {
        "decode_tok_s": sum(usage.tokens_per_s for usage in usages),
        "tok_s": sum(usage.output_tokens for usage in usages) / whole_s,
        "ttft_ms": statistics.median(usage.ttft_s for usage in usages) * 1e3,
    }


def _median_rate(rows: list[Row], side: str) -> float:
    return statistics.median(row["decode_tok_s"] for row in rows if row["side"] == side)


def _in_process(side: Callable[[Options], list[Row]], options: Options) -> list[Row]:
    # A process that has Qt in it, or a model, is not what the other side is to be measured in.
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found: list[Row] = pool.apply(side, (options,))
    return found
