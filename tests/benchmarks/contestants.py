"""The engine and transformers' generate behind one interface, for measuring side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from engine.api.events import TokensGenerated
from engine.api.params import EngineConfig, SamplingParams
from engine.engine_builder import build_engine
from engine.loading.model_folder import LoadedFiles
from engine.loading.progress import never_cancelled, no_progress

_THREADS = torch.get_num_threads()


@dataclass(frozen=True)
class Run:
    """Seconds from the start to the first and to the last token, of all prompts together."""

    first_s: float
    last_s: float


class Contestant(Protocol):
    """Something that answers prompts greedily."""

    name: str

    def generate(self, prompts: list[list[int]], new_tokens: int) -> Run:
        """Answers all prompts together, each with exactly ``new_tokens`` tokens."""


class Quire:
    """The engine as the application drives it: scheduler, prefix cache and detokeniser included."""

    name = "quire"

    def __init__(self, path: Path, models_dir: Path, num_blocks: int) -> None:
        config = EngineConfig(num_blocks=num_blocks, max_model_len=4096)
        loaded = build_engine(path, models_dir, config, no_progress, never_cancelled)
        self.core = loaded.core
        self.encoder = loaded.encoder
        self.dtype = loaded.info.dtype
        self._count = 0

    def generate(self, prompts: list[list[int]], new_tokens: int) -> Run:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        start = time.perf_counter()
        waiting = set()
        for prompt in prompts:
            self._count += 1
            self.core.add_request(f"bench-{self._count}", prompt, params)
            waiting.add(f"bench-{self._count}")
        first = last = 0.0
        generated = 0
        while self.core.has_work:
            for event in self.core.step():
                if isinstance(event, TokensGenerated):
                    waiting.discard(event.request_id)
                    generated += len(event.token_ids)
                    last = time.perf_counter()
            first = first or (0.0 if waiting else last)
        if generated != new_tokens * len(prompts):
            raise RuntimeError(f"{generated} tokens came, expected {new_tokens * len(prompts)}")
        return Run(first - start, last - start)


class Transformers:
    """``generate`` of transformers' own model with its default attention and cache."""

    name = "transformers"

    def __init__(self, files: LoadedFiles, dtype: str) -> None:
        from transformers import LlamaForCausalLM

        model: Any = LlamaForCausalLM.from_pretrained(files.folder, dtype=getattr(torch, dtype))
        self._model = model.eval()
        self._moments: list[float] = []

    def generate(self, prompts: list[list[int]], new_tokens: int) -> Run:
        from transformers import StoppingCriteriaList

        ids = torch.tensor(prompts)
        # The engine may have chosen fewer threads for itself.
        torch.set_num_threads(_THREADS)
        self._moments.clear()
        start = time.perf_counter()
        with torch.inference_mode():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                stopping_criteria=StoppingCriteriaList([self._note_moment]),
            )
        if out.shape[1] - ids.shape[1] != new_tokens:
            raise RuntimeError(f"{out.shape[1] - ids.shape[1]} tokens came, not {new_tokens}")
        return Run(self._moments[0] - start, self._moments[-1] - start)

    def _note_moment(self, ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        self._moments.append(time.perf_counter())
        return torch.zeros(len(ids), dtype=torch.bool)


class OneAtATime:
    """Another contestant that gets each prompt by itself, as conversations without batching do."""

    def __init__(self, contestant: Contestant) -> None:
        self.name = contestant.name
        self._contestant = contestant

    def generate(self, prompts: list[list[int]], new_tokens: int) -> Run:
        runs = [self._contestant.generate([prompt], new_tokens) for prompt in prompts]
        before = sum(run.last_s for run in runs[:-1])
        return Run(before + runs[-1].first_s, before + runs[-1].last_s)


def side_by_side(
    title: str,
    both: Sequence[Contestant],
    repeats: int,
    make_prompts: Callable[[], list[list[int]]],
    new_tokens: int,
    rate: Callable[[Run], float],
) -> tuple[float, float]:
    """Our median rate and its ratio to the other's; they take turns on the same prompts."""
    rates: dict[str, list[float]] = {contestant.name: [] for contestant in both}
    for turn in range(repeats):
        prompts = make_prompts()
        for contestant in both if turn % 2 == 0 else both[::-1]:
            rates[contestant.name].append(rate(contestant.generate(prompts, new_tokens)))
    ours, theirs = (statistics.median(rates[contestant.name]) for contestant in both)
    print(f"{title}: {ours:.1f} tok/s, transformers {theirs:.1f}, ratio {ours / theirs:.2f}")
    return ours, ours / theirs
