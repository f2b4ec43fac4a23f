"""suite: everything that is measured on a GPU, in one call with a limit to its time.

Each part runs in a process of its own, so that none takes another down, and what it says comes
through as it goes. ``--parts`` chooses some, in their order; the kernels that one compiles are
there for the next. At the end come the figures beside those to be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.benchmarks.options import Options
from tests.benchmarks.report import Row, emit, print_table

_FOLDER = Path(__file__).resolve().parent
_LAST_LINES = 6
_LEAST_S = 5.0


@dataclass(frozen=True, slots=True)
class Part:
    """``command``: a script of this folder and its arguments. ``small``: to try it with, where the
    usual ones would take too long; None: not without a GPU. ``limit_s``: of its time.
    """

    command: tuple[str, ...]
    small: tuple[str, ...] | None
    limit_s: float


def _workload(
    name: str, *arguments: str, limit_s: float, small: tuple[str, ...] = ("--small",)
) -> Part:
    return Part(("engine.py", name, *arguments), ("engine.py", name, *small), limit_s)


PARTS: Mapping[str, Part] = MappingProxyType(
    {
        "W1": _workload("W1", "--repeats", "3", limit_s=150),
        "W2": _workload(
            "W2", *("--tabs", "4", "8", "--system", "1000", "--repeats", "1"), limit_s=180
        ),
        "decode": _workload("decode", limit_s=120),
        "prefill": _workload("prefill", limit_s=120),
        "W3": _workload(
            "W3", *("--batches", "4", "16", "64", "--system", "2048", "8192"), limit_s=120
        ),
        "attention": Part(("attention_rates.py",), None, 120),
        "decode-8b": _workload(
            "decode",
            *("--model", "random:qwen3-8b", "--batches", "1", "8", "--contexts", "512"),
            limit_s=120,
        ),
        "decode-8b-4bit": _workload(
            "decode",
            *("--model", "random:qwen3-8b-4bit", "--batches", "1", "8", "--contexts", "512"),
            limit_s=120,
        ),
        "neighbours": _workload(
            "decode",
            *("--batches", "16", "17", "--contexts", "512", "8192", "9216"),
            limit_s=90,
        ),
        "host": _workload(
            "decode",
            *("--model", "random:tiny", "--batches", "8", "--contexts", "512"),
            limit_s=60,
        ),
        "kernels": _workload("kernels", limit_s=120),
        "quantized": Part(("engine.py", "quantized"), None, 120),
    }
)
"""In the order in which they are run: what is asked for most comes first."""

COPY_TB_S = 4.26
"""Read and written by a copy on the device that the figures are asked of."""

Rows = dict[str, list[Row]]
"""All rows of each part."""


@dataclass(frozen=True, slots=True)
class Figure:
    """``find``: its value among all rows, by part; raises LookupError or ValueError where there is
    none. ``wanted``: what is to be reached, at least or, if ``at_most``, at most.
    """

    name: str
    find: Callable[[Rows], float]
    wanted: float
    at_most: bool = False


def _cell(part: str, value: str, /, **where: object) -> Callable[[Rows], float]:
    """A figure of the last row that has all of these."""

    def find(rows: Rows) -> float:
        fits = (
            row
            for row in rows[part]
            if value in row and all(row.get(name) == wish for name, wish in where.items())
        )
        return float(list(fits)[-1][value])

    return find


def _packed_speedup(rows: Rows) -> float:
    cell = {"batch": 1, "context": 512}
    packed = _cell("decode-8b-4bit", "tok_s", **cell)(rows)
    return packed / _cell("decode-8b", "tok_s", **cell)(rows)


def _host_ms(rows: Rows) -> float:
    """With a model so small that the device waits for the host."""
    outside = _cell("host", "engine_us", batch=8)(rows) / 1e3
    return outside + _cell("host", "submit_ms", batch=8)(rows)


def _least_speedup(rows: Rows) -> float:
    return min(float(row["speedup"]) for row in rows["W3"] if "speedup" in row)


def _cliff(rows: Rows) -> float:
    """Step times of one batch or context over those of the one before it."""
    times = {(r["batch"], r["context"]): r["step_ms"] for r in rows["neighbours"] if "step_ms" in r}
    ratios = [times[17, context] / times[16, context] for context in (512, 8192, 9216)]
    ratios += [times[batch, 9216] / times[batch, 8192] for batch in (16, 17)]
    return float(max(ratios))


def _bandwidth(rows: Rows) -> float:
    """The least of long contexts, over the copy's."""
    rates = [
        float(row["tb_s"])
        for row in rows["attention"]
        if row.get("part") == "decode"
        and "tb_s" in row
        and row["context"] >= 4096
        and row["batch"] * row["context"] >= 65_536
    ]
    return min(rates) / COPY_TB_S


def _over_peer(rows: Rows, part: str = "decode") -> dict[tuple[int, int], float]:
    """Our decode attention's time over FlashAttention-3's, by batch and (longest) context."""
    return {
        (row["batch"], row.get("context", row.get("longest"))): row["us"] / row["fa3_us"]
        for row in rows["attention"]
        if row.get("part") == part and "fa3_us" in row
    }


FIGURES = (
    Figure("W1, tok/s", _cell("W1", "tok_s", run=3), 26_000),
    Figure("W2, 4 tabs, longest gap, ms", _cell("W2", "paste_gap_max_ms", tabs=4), 8, True),
    Figure("W2, 8 tabs, longest gap, ms", _cell("W2", "paste_gap_max_ms", tabs=8), 8, True),
    Figure("decode, batch 1, tok/s", _cell("decode", "tok_s", batch=1, context=512), 1000),
    Figure("decode, batch 8, tok/s", _cell("decode", "tok_s", batch=8, context=512), 7500),
    Figure("decode, batch 64, tok/s", _cell("decode", "tok_s", batch=64, context=512), 24_000),
    Figure("host a step, batch 8, ms", _host_ms, 0.4, True),
    Figure("decode 8B, batch 1, tok/s", _cell("decode-8b", "tok_s", batch=1, context=512), 200),
    Figure("first token of 512, ms", _cell("prefill", "first_token_ms"), 8, True),
    Figure("W3, 16 of 8192, times", _cell("W3", "speedup", batch=16, prefix=8192), 2),
    Figure("W3, the least, times", _least_speedup, 0.97),
    Figure("neighbours, the most, times", _cliff, 1.3, True),
    Figure("decode attention, of the copy", _bandwidth, 0.75),
    Figure("decode attention, 1 of 512, of FA3", lambda rows: _over_peer(rows)[1, 512], 0.5, True),
    Figure(
        "decode attention, the most of FA3", lambda rows: max(_over_peer(rows).values()), 1, True
    ),
    Figure(
        "decode attention, mixed, the most of FA3",
        lambda rows: max(_over_peer(rows, "mixed").values()),
        1,
        True,
    ),
    Figure(
        "attention, 16 share 8192, us",
        _cell("attention", "us", part="shared", batch=16, prefix=8192),
        40,
        True,
    ),
    Figure("quantised, 4 bits, products of 1 row, times", _cell("quantized", "rows_1_4_bits"), 1),
    Figure("decode 8B, 4 bits, batch 1, times", _packed_speedup, 1.8),
)


def measure(options: Options) -> Row:
    """Runs the parts one after the other, as many as there is time for."""
    names = options.parts or tuple(PARTS)
    end = time.monotonic() + options.seconds
    rows: Rows = {name: [] for name in PARTS}
    states = []
    for name in names:
        state: Row = {"workload": "suite", "part": name}
        start = time.monotonic()
        left = min(PARTS[name].limit_s, end - start)
        command = _command(PARTS[name], options)
        if command is None:
            state["skipped"] = "it needs a GPU"
        elif left < _LEAST_S:
            state["skipped"] = "no time was left"
        else:
            state |= _run(command, left, rows[name].append)
            state["seconds"] = time.monotonic() - start
        states.append(emit(state))
    figures = [_found(figure, rows) for figure in FIGURES]
    print_table(states, ("part", "seconds", "skipped", "failed"))
    print_table(figures, ("figure", "found", "wanted", "reached"))
    return {"workload": "suite", "device": options.device, "parts": states, "figures": figures}


def _command(part: Part, options: Options) -> list[str] | None:
    chosen = part.command if options.on_gpu and not options.small else part.small
    if chosen is None:
        return None
    script, *arguments = chosen
    if script == "engine.py":
        arguments += ["--device", options.device]
        if options.model and "--model" not in arguments:
            arguments += ["--model", options.model]
        if options.peers is not None:
            arguments += ["--peers", str(options.peers)]
    elif options.peers is not None:
        arguments += ["--fa3", str(options.peers)]
    return [sys.executable, "-u", str(_FOLDER / script), *arguments]


def _run(command: list[str], limit_s: float, note: Callable[[Row], object]) -> Row:
    """Runs one part, passes on what it says and notes the rows of it. Says how it failed."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    ) as child:
        timer = threading.Timer(limit_s, child.kill)
        timer.start()
        assert child.stdout is not None
        last: list[str] = []
        for line in child.stdout:
            print(line, end="", flush=True)
            last = [*last, line.rstrip()][-_LAST_LINES:]
            for row in _rows_of(line):
                note(row)
        code = child.wait()
        timed_out = timer.finished.is_set()
        timer.cancel()
    if timed_out:
        return {"failed": f"it was ended after {limit_s:.0f} s"}
    return {"failed": f"it ended with {code}: {' | '.join(last)}"[:600]} if code else {}


def _rows_of(line: str) -> Iterable[Row]:
    if not line.startswith("{"):
        return ()
    try:
        return (json.loads(line),)
    except ValueError:
        return ()


def _found(figure: Figure, rows: Rows) -> Row:
    row: Row = {"figure": figure.name, "found": None, "wanted": figure.wanted, "reached": ""}
    try:
        found = figure.find(rows)
    except (LookupError, ValueError, TypeError):
        return row
    good = found <= figure.wanted if figure.at_most else found >= figure.wanted
    return row | {"found": float(f"{found:.4g}"), "reached": "yes" if good else "no"}
