"""Puts an engine together from a model's files: weights, pool, runner, tokenizer, core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from engine.api.events import ModelInfo, WeightsKept
from engine.api.params import EngineConfig
from engine.block_hash import root_hash
from engine.chat_format import ChatFormat
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.devices import (
    choose_backend,
    resolve_device,
    resolve_dtype,
    with_device_defaults,
)
from engine.limits import ModelLimits
from engine.loading.describe import describe
from engine.loading.model_folder import LoadedFiles, open_model
from engine.loading.progress import Cancelled, Progress, breathing, check_cancelled
from engine.memory import check_weights_fit, free_bytes, host_num_blocks
from engine.model_loader import LoadedEngine
from engine.model_runner import build_runner
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.parity import ParityInspector
from engine.pool_sizing import measured_num_blocks
from engine.quantized.choice import choose_kept, kept_bytes
from engine.quantized.grouped import GroupedWeight
from engine.reconfigure import BackendChoice, Reconfigurer
from engine.triton_probe import look_again
from engine.warm_up import warm_up


def build_engine(
    path: Path,
    models_dir: Path,
    config: EngineConfig,
    progress: Progress,
    cancelled: Cancelled,
) -> LoadedEngine:
    """Loads the model at ``path`` and makes it ready to answer.

    Raises:
        EngineError: the model, its size or the device cannot be used; the message says why.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    breathe = breathing(cancelled)
    look_again()
    device = resolve_device(config.device)
    files, kept, dtype = _open(path, models_dir, config, device, progress, cancelled)
    weights_bytes = _weights_bytes(files, kept, device, dtype)
    block_bytes = files.config.kv_bytes_per_token(dtype.itemsize) * config.block_size
    size_pool: int | Callable[[Decoder, str], int]
    if device.type == "cpu":
        size_pool = host_num_blocks(config, block_bytes, weights_bytes)
    else:  # needs a GPU
        check_weights_fit(config, weights_bytes, block_bytes, device)

        def size_pool(decoder: Decoder, backend: str) -> int:
            return measured_num_blocks(decoder, backend, config, block_bytes)

    # Tries Triton on the GPU: one that is too full for the model has been told with its numbers.
    _, backend_reason = choose_backend(config.backend, device, dtype)
    context = min(config.max_model_len or files.config.context_length, files.config.context_length)
    runner = build_runner(
        files.config,
        _watched(files, dtype, progress, cancelled),
        num_blocks=size_pool,
        block_size=config.block_size,
        max_model_len=context,
        max_running_requests=config.max_running_requests,
        device=config.device,
        dtype=config.dtype,
        backend=config.backend,
        deterministic=config.deterministic,
        shared_prefix_decode=config.shared_prefix_decode,
        keep_expanded=kept is WeightsKept.BOTH,
        breathe=breathe,
        converted=lambda fraction: progress("convert", fraction, ""),
    )
    num_blocks = runner.num_blocks
    progress("tokenizer", 0.0, "")
    read = files.tokenizer()
    breathe()
    chat = ChatFormat.from_folder(files.folder, read, config.chat_template)
    tokenizer = chat.tokenizer
    encoder, background_encoder = chat.make_encoder(), chat.make_encoder()
    progress("warm_up", 0.0, "")
    warm_up(runner, config.block_size, breathe)
    fingerprint = tokenizer.fingerprint
    dtype_name = str(dtype).removeprefix("torch.")
    backend = runner.attention.name

    def make_root(backend: str, salt: str) -> bytes:
        return root_hash(files.fingerprint, dtype_name, backend, salt)

    limits = ModelLimits(
        context_length=context,
        eos_token_ids=frozenset(tokenizer.eos_token_ids),
        root=make_root(backend, config.cache_salt),
        fingerprint=fingerprint,
    )
    keeps_blocks = runner.attention.cache is not None
    # Blocks that are found again would hold nothing where keys and values are kept elsewhere.
    settings = with_device_defaults(
        replace(config, prefix_caching=config.prefix_caching and keeps_blocks), device, backend
    )
    core = EngineCore(
        runner,
        limits,
        settings,
        num_blocks,
        lambda stop: Detokenizer(tokenizer, (*stop, *chat.stop)),
    )
    info = ModelInfo(
        name=files.config.name,
        path=str(path),
        architecture=files.config.architecture,
        num_parameters=files.num_parameters,
        weights_bytes=runner.decoder.weights_bytes,
        kv_bytes_per_token=files.config.kv_bytes_per_token(dtype.itemsize),
        context_length=context,
        vocab_size=files.config.vocab_size,
        dtype=dtype_name,
        device=str(device),
        backend=backend,
        backend_reason=backend_reason,
        num_blocks=num_blocks,
        block_size=config.block_size,
        fingerprint=fingerprint,
        has_chat_template=chat.has_own,
        license=files.license,
        keeps_blocks=keeps_blocks,
        template_stable=chat.report.is_stable,
        template_recomputed_tokens=chat.report.recomputed_tokens,
        template_note=chat.report.note,
        template_error=chat.report.error,
        takes_system_message=chat.report.takes_system,
        chat_template=chat.name,
        chat_template_choices=chat.choices,
        weights_kept=kept,
    )
    inspector = ParityInspector(core, runner)

    def prepare(name: str) -> BackendChoice:
        look_again()
        chosen, reason = choose_backend(name, device, dtype)
        attention = runner.make_attention(chosen)
        return BackendChoice(attention, reason, lambda: runner.set_attention(attention))

    reconfigurer = Reconfigurer(
        core,
        config,
        info,
        make_root,
        prepare,
        lambda wanted, name: with_device_defaults(wanted, device, name),
    )
    return LoadedEngine(
        core,
        tokenizer,
        encoder,
        info,
        block_bytes,
        0.0,
        inspector,
        background_encoder,
        reconfigurer,
        runner.prepare,
    )


def _open(
    path: Path,
    models_dir: Path,
    config: EngineConfig,
    device: torch.device,
    progress: Progress,
    cancelled: Cancelled,
) -> tuple[LoadedFiles, WeightsKept, torch.dtype]:
    """The model's files, how its weights will be kept, and in which dtype it computes."""
    free = free_bytes(device)

    def choose(num_parameters: int, model: ModelConfig | None) -> tuple[WeightsKept, torch.dtype]:
        dtype = resolve_dtype(config.dtype, device, model)
        kept = choose_kept(config, path.is_file(), num_parameters, device, dtype, free)
        return kept, dtype

    num_parameters, model = 0, None
    if device.type == "cuda" and path.is_file():
        # Whether it fits expanded must be known before it is expanded.
        facts = describe(path, breathing(cancelled))
        num_parameters, model = facts.num_parameters, facts.config
    kept, _ = choose(num_parameters, model)
    quantized = kept is not WeightsKept.EXPANDED
    files = open_model(path, models_dir, progress, cancelled, keep_quantized=quantized)
    settled, dtype = choose(files.num_parameters, files.config)
    return files, settled if kept is WeightsKept.BOTH else kept, dtype


def _weights_bytes(
    files: LoadedFiles, kept: WeightsKept, device: torch.device, dtype: torch.dtype
) -> int:
    if files.kept is None:
        return files.num_parameters * dtype.itemsize
    return kept_bytes(files.kept.stored(), files.config, kept, device, dtype)


def _watched(
    files: LoadedFiles, dtype: torch.dtype, progress: Progress, cancelled: Cancelled
) -> Iterator[tuple[str, torch.Tensor | GroupedWeight]]:
    """The weights, with progress told about fifty times and cancellation looked for at each."""
    total = len(files.entries)
    every = max(total // 50, 1)
    for index, (name, tensor) in enumerate(files.kept_weights(dtype, breathing(cancelled))):
        check_cancelled(cancelled)
        if index % every == 0:
            progress("weights", index / total, name)
        yield name, tensor
