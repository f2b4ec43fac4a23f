"""Engines to measure: any model behind an EngineCore whose steps are watched.

Nothing here imports the application or GGUF, which are not on every machine.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.api.events import ModelInfo, RequestEvent
from engine.api.params import EngineConfig, SamplingParams
from engine.block_hash import root_hash
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.devices import resolve_device, resolve_dtype, with_device_defaults
from engine.limits import ModelLimits
from engine.model_loader import LoadedEngine
from engine.model_runner import ModelRunner, build_runner
from engine.models.config import ModelConfig
from engine.quantized.grouped import GroupedWeight
from engine.tokenizer import Tokenizer
from tests.benchmarks.options import RANDOM, Options, model_path, models_dir
from tests.benchmarks.random_models import FOUR_BITS, num_parameters, random_weights, shape_of
from tests.benchmarks.report import emit
from tests.benchmarks.runners import NullRunner, NullStream, WatchedRunner
from tests.benchmarks.word_chat import FINGERPRINT, word_encoder, word_tokenizer

_DEVICE_SHARE = 0.92
_DEVICE_WORKSPACE_BYTES = 4 << 30
_WARM_UP_TOKENS = 64
_HOST_POOL_BYTES = 2 << 30


@dataclass(slots=True)
class Bench:
    """An engine with its parts: ``core`` steps through ``watch``, and that through ``runner``."""

    core: EngineCore
    watch: WatchedRunner
    runner: ModelRunner
    tokenizer: Tokenizer
    config: ModelConfig
    device: torch.device
    dtype: torch.dtype

    @property
    def pool_blocks(self) -> int:
        return self.core.pool.num_blocks

    def facts(self) -> dict[str, object]:
        """What every row should say of the engine."""
        return {
            "model": self.config.name,
            "device": str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "backend": self.runner.attention.name,
            "lag": self.core.config.lag,
            "token_budget": self.core.config.token_budget,
            **self.graphs(),
        }

    def graphs(self) -> dict[str, object]:
        """How many CUDA graphs there are, and why there are no more if a capture failed."""
        steps = self.runner._device_steps
        if steps is None or steps.graphs is None:
            return {}
        failed = {"capture_failed": steps.graphs.failure} if steps.graphs.failure else {}
        return {"graphs": steps.graphs.count, **failed}

    def fill_pool(self) -> None:
        """Puts noise into every slot: zeros would be faster than any real context."""
        cache = self.runner.attention.cache
        assert cache is not None, "a backend without a pool"
        for tensor in (*cache.k, *cache.v):
            tensor.normal_()


def open_bench(options: Options, model: str, **settings: object) -> Bench:
    """An engine over a model.

    Args:
        options: what the command line asked for; it wins over ``settings``.
        model: a path, ``random:NAME``, or empty for the starter model.
        settings: of ``EngineConfig``. Of ``num_blocks`` there are fewer where memory holds fewer;
            as many as it holds if there is no such number.
    """
    device = resolve_device(options.device)
    config = EngineConfig.from_mapping(options.engine_settings(**settings))
    dtype = resolve_dtype(config.dtype, device)
    shape, weights, num_weights, tokenizer = _model(options, model, device, dtype)
    block_bytes = shape.kv_bytes_per_token(dtype.itemsize) * config.block_size
    room = _room_bytes(device, num_weights * dtype.itemsize) // block_bytes
    blocks = min(config.num_blocks or room, room)
    length = min(config.max_model_len or shape.context_length, shape.context_length)
    runner = build_runner(
        shape,
        weights,
        num_blocks=blocks,
        block_size=config.block_size,
        max_model_len=length,
        max_running_requests=config.max_running_requests,
        device=config.device,
        dtype=config.dtype,
        backend=config.backend,
        deterministic=config.deterministic,
        shared_prefix_decode=config.shared_prefix_decode,
    )
    watch = WatchedRunner(runner)
    backend = runner.attention.name
    keeps_blocks = runner.attention.cache is not None
    root = root_hash(shape.name, str(dtype), backend)
    limits = ModelLimits(length, frozenset(), root, FINGERPRINT)
    config = with_device_defaults(replace(config, prefix_caching=keeps_blocks), device, backend)
    core = EngineCore(watch, limits, config, blocks, lambda stop: Detokenizer(tokenizer, stop))
    watch.pool = core.pool
    return Bench(core, watch, runner, tokenizer, shape, device, dtype)


def close(bench: Bench) -> None:
    """Gives the memory back before the next engine is made; ``bench`` cannot be used again."""
    del bench.core, bench.watch, bench.runner
    gc.collect()
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()


def null_core(num_blocks: int, block_size: int = 16, **settings: object) -> EngineCore:
    """An engine whose model takes no time and whose context has no end."""
    config = EngineConfig.from_mapping({"block_size": block_size, **settings})
    limits = ModelLimits(1 << 30, frozenset(), root_hash("null"), FINGERPRINT)
    return EngineCore(NullRunner(), limits, config, num_blocks, lambda stop: NullStream())


def loaded(bench: Bench) -> LoadedEngine:
    """The engine as the loader would hand it to the engine thread, warm; it chats in words."""
    warm = SamplingParams(temperature=0.0, max_tokens=_WARM_UP_TOKENS, ignore_eos=True)
    bench.core.generate([[0] * _WARM_UP_TOKENS], warm)
    _prepare(bench)
    bench.core.pool.drop_cached("benchmark")
    block_bytes = bench.config.kv_bytes_per_token(bench.dtype.itemsize) * bench.core.pool.block_size
    info = ModelInfo(
        name=bench.config.name,
        path="",
        architecture=bench.config.architecture,
        num_parameters=num_parameters(bench.config),
        weights_bytes=bench.runner.decoder.weights_bytes,
        kv_bytes_per_token=bench.config.kv_bytes_per_token(bench.dtype.itemsize),
        context_length=bench.core.limits.context_length,
        vocab_size=bench.config.vocab_size,
        dtype=str(bench.dtype).removeprefix("torch."),
        device=str(bench.device),
        backend=bench.runner.attention.name,
        backend_reason="",
        num_blocks=bench.pool_blocks,
        block_size=bench.core.pool.block_size,
        fingerprint=FINGERPRINT,
        has_chat_template=True,
    )
    return LoadedEngine(
        core=bench.core,
        tokenizer=bench.tokenizer,
        encoder=word_encoder(bench.tokenizer),
        info=info,
        block_bytes=block_bytes,
        load_s=0.0,
        background_encoder=word_encoder(bench.tokenizer),
    )


def _prepare(bench: Bench) -> None:
    """As the application does in the first idle seconds. Says what that takes on a GPU: seconds,
    and megabytes that torch knows of and that only CUDA knows of.
    """
    start, before = time.perf_counter(), _taken_mb(bench.device)
    while bench.runner.prepare():
        """One size after the other."""
    if bench.graphs():
        taken = [now - then for now, then in zip(_taken_mb(bench.device), before, strict=True)]
        seconds = time.perf_counter() - start
        sizes = {"torch_mb": taken[0], "cuda_mb": taken[1]}
        emit({"part": "prepare", **bench.graphs(), "seconds": seconds, **sizes})


def _taken_mb(device: torch.device) -> tuple[float, float]:
    """What torch has taken of the device, and all others together."""
    if device.type != "cuda":
        return 0.0, 0.0
    free, total = torch.cuda.mem_get_info(device)
    known = torch.cuda.memory_reserved(device)
    return known / 1e6, (total - free - known) / 1e6


def run_steps(core: EngineCore) -> Iterator[RequestEvent]:
    """Steps until there is nothing left to do, and the events of all steps."""
    while core.has_work:
        yield from core.step()


def _model(
    options: Options, model: str, device: torch.device, dtype: torch.dtype
) -> tuple[ModelConfig, Iterable[tuple[str, Tensor | GroupedWeight]], int, Tokenizer]:
    if model.startswith(RANDOM):
        name = model.removeprefix(RANDOM)
        shape = shape_of(name)
        weights = random_weights(shape, device, dtype, four_bits=name.endswith(FOUR_BITS))
        return shape, weights, num_parameters(shape), word_tokenizer(shape.vocab_size)
    from engine.loading.model_folder import open_model

    path = Path(model) if model else model_path(options)
    files = open_model(path, models_dir(options))
    return files.config, files.weights(), files.num_parameters, files.tokenizer()


def _room_bytes(device: torch.device, weights_bytes: int) -> int:
    """What a pool may take."""
    if device.type != "cuda":
        return _HOST_POOL_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return max(int(free * _DEVICE_SHARE) - weights_bytes - _DEVICE_WORKSPACE_BYTES, 0)
