"""Quantised weights kept packed against the same weights expanded to bfloat16.

On the CPU: memory, processor time and tokens a second, and what packing does to the logits. On a
GPU: the products of a Qwen3-8B layer. What was measured is in ``QUANTIZED.md`` beside this file.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.api.params import EngineConfig, SamplingParams
from engine.engine_builder import build_engine
from engine.loading.model_folder import LoadedFiles, open_model
from engine.loading.progress import never_cancelled, no_progress
from engine.model_loader import LoadedEngine
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from tests.benchmarks.options import CannotRunHere, Options, model_path, models_dir
from tests.benchmarks.prose import write

WAYS = ("auto", "packed", "expanded")
BATCHES = (1, 4, 8)
PROMPT_TOKENS, NEW_TOKENS = 16, 32
TEXT_TOKENS = 256
DECODED = 4
CPU = torch.device("cpu")


def measure(options: Options) -> dict[str, float]:
    """Runs everything and prints a line for each measurement.

    Raises:
        CannotRunHere: the model is no GGUF file.
    """
    if options.on_gpu:
        from tests.benchmarks.quantized_products import measure_products

        return measure_products(options)
    path = model_path(options)
    if not path.is_file():
        raise CannotRunHere("quantized needs a GGUF file: --model FILE")
    return speeds(options) | errors(options)


def speeds(options: Options) -> dict[str, float]:
    """Medians of decoding in each way, the three taking turns.

    Processor time with one thread is what a busy machine says little wrong about; tokens a second
    are only worth something on a quiet one.
    """
    path, folder = model_path(options), models_dir(options)
    repeats = options.repeats or (1 if options.small else 9)
    engines = {}
    for way in WAYS:
        settings = EngineConfig(num_blocks=512, max_model_len=2048, weights=way, num_threads=1)
        engines[way] = build_engine(path, folder, settings, no_progress, never_cancelled)
    result = {f"{way}_mb": engines[way].info.weights_bytes / 1e6 for way in WAYS}
    print(", ".join(f"{way} {result[f'{way}_mb']:.0f} MB" for way in WAYS))
    draw = random.Random(0)
    for batch in BATCHES[:1] if options.small else BATCHES:
        taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for turn in range(repeats):
            prompts = [[draw.randrange(300, 9000) for _ in range(PROMPT_TOKENS)]] * batch
            first = turn % len(WAYS)
            # Whoever comes after the largest finds the processor's caches full of it.
            for way in WAYS[first:] + WAYS[:first]:
                taken[way].append(_run(engines[way], prompts))
        for way in WAYS:
            cpu, wall = (statistics.median(run[index] for run in taken[way]) for index in (0, 1))
            result[f"{way}_{batch}_cpu_ms"] = cpu * 1e3
            print(
                f"batch {batch}, {way}: {cpu * 1e3:.1f} ms of processor time a step, "
                f"{batch / wall:.1f} tok/s"
            )
        ratio = result[f"expanded_{batch}_cpu_ms"] / result[f"auto_{batch}_cpu_ms"]
        result[f"ratio_{batch}"] = ratio
        print(f"batch {batch}: auto is {ratio:.2f} times as fast as expanded in processor time")
    return result


def _run(engine: LoadedEngine, prompts: list[list[int]]) -> tuple[float, float]:
    """Seconds a step, of this thread's processor time and of the clock, the prompt included."""
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    cpu, wall = time.thread_time(), time.perf_counter()
    engine.core.generate(prompts, params)
    spent = (time.thread_time() - cpu, time.perf_counter() - wall)
    return spent[0] / NEW_TOKENS, spent[1] / NEW_TOKENS


def errors(options: Options) -> dict[str, float]:
    """What each way does to the logits of a text, against the file's values in float32."""
    path, folder = model_path(options), models_dir(options)
    kept = open_model(path, folder, keep_quantized=True)
    plain = open_model(path, folder)
    tokenizer = kept.tokenizer()
    count = 24 if options.small else TEXT_TOKENS
    text = write(count, lambda part: len(tokenizer.encode_text(part)), random.Random(1))
    ids = torch.tensor(tokenizer.encode_text(text)[:count])
    exact = _logits(plain, torch.float32, ids, len(ids))
    ways = (
        ("bfloat16", plain, len(ids)),
        ("packed_prompt", kept, len(ids)),
        ("packed_decode", kept, DECODED),
    )
    result = {}
    for name, files, rows in ways:
        found = _logits(files, torch.bfloat16, ids, rows)
        divergence = F.kl_div(
            found.log_softmax(-1), exact.log_softmax(-1), reduction="none", log_target=True
        ).sum(-1)
        result[f"{name}_logit_error"] = float((found - exact).abs().max())
        result[f"{name}_mean_kl"] = float(divergence.mean())
        same = found.argmax(-1) == exact.argmax(-1)
        result[f"{name}_same_best"] = float(same.float().mean())
        print(
            f"{name}: largest error of a logit {result[f'{name}_logit_error']:.3f}, KL mean "
            f"{divergence.mean():.2e} max {divergence.max():.2e}, the same best token "
            f"{same.float().mean():.1%}"
        )
    return result


def _logits(files: LoadedFiles, dtype: torch.dtype, ids: Tensor, rows: int) -> Tensor:
    """Logits after each token, ``rows`` tokens a step, float32."""
    weights = files.kept_weights(dtype)
    decoder = Decoder(files.config, weights, dtype, CPU, len(ids))
    attend = _Attend(files.config)
    parts = []
    with torch.inference_mode():
        for piece in _pieces(len(ids), rows):
            every = torch.arange(len(piece))
            parts.append(decoder.forward(ids[piece], piece, attend, every).float())
    return torch.cat(parts)


def _pieces(length: int, rows: int) -> Iterator[Tensor]:
    return iter(torch.arange(length).split(rows))


class _Attend:
    """Attention over all tokens so far."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads = (-1, self._config.num_kv_heads, self._config.head_dim)
        new = (key.reshape(heads), value.reshape(heads))
        old = self._seen.get(layer)
        both = new if old is None else tuple(map(torch.cat, zip(old, new, strict=True)))
        self._seen[layer] = (both[0], both[1])
        keys, values = (part.transpose(0, 1) for part in self._seen[layer])
        end = keys.shape[1]
        mask = torch.ones(len(query), end, dtype=torch.bool).tril(end - len(query))
        out = F.scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=mask,
            scale=self._config.attention_scale,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).flatten(1)
