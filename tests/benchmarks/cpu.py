"""Quire against transformers' generate on the CPU: the same model, prompts and threads, taking
turns."""

from __future__ import annotations

import random
import statistics

import torch
from torch.profiler import ProfilerActivity, profile

from engine.loading.model_folder import open_model
from tests.benchmarks.contestants import Contestant, Quire, Transformers, side_by_side
from tests.benchmarks.options import CannotRunHere, Options, model_path, models_dir

PROMPT_TOKENS = 30
NEW_TOKENS = 64
LONG = (512, 1024)
SHARED_TOKENS = 1000
PROFILED_TOKENS = 24


def measure(options: Options) -> dict[str, float]:
    """Runs everything and prints a line for each measurement.

    Rates are tokens a second, medians of ``repeats``. A ratio is ours over transformers'.

    Raises:
        CannotRunHere: another device was asked for.
    """
    if options.on_gpu:
        raise CannotRunHere("cpu measures on the CPU; for a GPU there are W1, decode and prefill")
    repeats = options.repeats or (1 if options.small else 5)
    path, folder = model_path(options), models_dir(options)
    files = open_model(path, folder)
    draw = Draw(files.config.vocab_size)
    quire = Quire(path, folder, num_blocks=2048)
    both: list[Contestant] = [quire, Transformers(files, quire.dtype)]
    print(f"{files.config.name}, {quire.dtype}, {torch.get_num_threads()} threads, {repeats} runs")
    for contestant in both:
        contestant.generate([draw.prompt(PROMPT_TOKENS)], 8)

    result: dict[str, float] = {}
    for key, batch in (("single", 1), ("batch8", 8)):
        rates = side_by_side(
            f"{key}: {batch} × {PROMPT_TOKENS} + {NEW_TOKENS} tokens",
            both,
            repeats,
            lambda batch=batch: [draw.prompt(PROMPT_TOKENS) for _ in range(batch)],
            NEW_TOKENS,
            lambda run, batch=batch: batch * NEW_TOKENS / run.last_s,
        )
        result[f"{key}_tok_s"], result[f"{key}_ratio"] = rates
    for length in LONG:
        rates = side_by_side(
            f"prefill: {length} tokens",
            both,
            repeats,
            lambda length=length: [draw.prompt(length)],
            1,
            lambda run, length=length: length / run.first_s,
        )
        if length == LONG[0]:
            result["prefill_tok_s"], result["prefill_ratio"] = rates
    for batch, length in ((1, LONG[0]), (1, LONG[1]), (8, LONG[0])):
        side_by_side(
            f"decode: batch {batch} after {length} tokens",
            both,
            max(1, repeats // 2),
            lambda batch=batch, length=length: [draw.prompt(length) for _ in range(batch)],
            NEW_TOKENS,
            lambda run, batch=batch: batch * (NEW_TOKENS - 1) / (run.last_s - run.first_s),
        )
    result["shared_ttft_ratio"] = shared_prefix(quire, draw, repeats)
    for batch in (1, 8):
        where_time_goes(quire, [draw.prompt(PROMPT_TOKENS) for _ in range(batch)])
    return {key: round(value, 4) for key, value in result.items()}


class Draw:
    """Random prompts, never the same twice, so that the prefix cache finds nothing."""

    def __init__(self, vocab_size: int) -> None:
        self._random = random.Random(0)
        self._vocab_size = vocab_size

    def prompt(self, length: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(length)]


def shared_prefix(quire: Quire, draw: Draw, repeats: int) -> float:
    """Time to first token of a second tab over the first one's, after a shared system prompt."""
    ratios = []
    for _ in range(repeats):
        system = draw.prompt(SHARED_TOKENS)
        first, second = (
            quire.generate([system + draw.prompt(PROMPT_TOKENS)], 8).first_s for _ in range(2)
        )
        ratios.append(second / first)
        print(
            f"first token after {SHARED_TOKENS} + {PROMPT_TOKENS} tokens: {first * 1e3:.1f} ms, "
            f"second tab {second * 1e3:.1f} ms, ratio {second / first:.3f}"
        )
    return statistics.median(ratios)


KINDS = {
    "_linear_pointwise": "products",
    "linear": "products",
    "mm": "products",
    "addmm": "products",
    "bmm": "attention",
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_softmax": "attention",
    "index_select": "gather",
    "index_copy_": "KV write",
    "native_layer_norm": "norms",
    "_fused_rms_norm": "norms",
    "silu": "gate",
}


def where_time_goes(quire: Quire, prompts: list[list[int]]) -> None:
    """Prints the share of each kind of operation in decode steps, as torch's profiler sees it."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        run = quire.generate(prompts, PROFILED_TOKENS)
    shares: dict[str, float] = {}
    for entry in recorded.key_averages():
        kind = KINDS.get(entry.key.split("::")[-1], "other operations")
        shares[kind] = shares.get(kind, 0.0) + entry.self_cpu_time_total / 1e6
    shares["outside torch"] = run.last_s - sum(shares.values())
    parts = sorted(shares.items(), key=lambda part: -part[1])
    text = ", ".join(f"{name} {seconds / run.last_s:.0%}" for name, seconds in parts)
    print(f"where the time goes, batch {len(prompts)} (profiled): {text}")
