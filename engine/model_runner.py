"""Runs the steps that the scheduler lays out: inputs, decoder, sampling."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engine.api.errors import DeviceError, NotSupportedYetError
from engine.attention.base import AttentionBackend
from engine.attention.paged_reference import PagedReferenceBackend
from engine.batch import InputBatch, StepBatch
from engine.kv_cache import KVCache
from engine.linear import has_fast_bfloat16
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.request import PLACEHOLDER_TOKEN
from engine.sampler import SampleRow, sample
from engine.scheduler_output import SchedulerOutput, StepHandle, StepResult


class ModelRunner:
    """A ``Runner``: computes at ``submit``, on the CPU before it returns.

    Args:
        decoder: the model.
        attention: where keys and values live.
        block_size: tokens a block.
        max_model_len: tokens of the longest sequence.
        max_running_requests: requests that are expected at once; more are taken too.
    """

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionBackend,
        block_size: int,
        max_model_len: int,
        max_running_requests: int,
    ) -> None:
        self.decoder = decoder
        self.attention = attention
        max_blocks = -(-max_model_len // block_size)
        self._batch = InputBatch(block_size, max_blocks, max_running_requests)
        self._last_tokens: dict[str, int] = {}

    def submit(self, output: SchedulerOutput) -> StepHandle:
        """Computes a step.

        Raises:
            RuntimeError: the step failed as a whole; what it wrote must be computed again.
        """
        with torch.inference_mode():
            self.attention.copy_blocks(output.block_copies)
            if not output.num_tokens:
                return _Done(StepResult())
            batch = self._batch.build(output, self._last_tokens)
            logits = self.compute_logits(batch)
            rows = [self._sample_row(batch, i) for i in range(len(batch.sampled))]
            samples = sample(logits, rows) if rows else []
        for drawn in samples:
            if drawn.token_ids:
                self._last_tokens[drawn.request_id] = drawn.token_ids[-1]
        return _Done(StepResult(samples))

    def compute_logits(self, batch: StepBatch) -> Tensor:
        """``[len(batch.sample_rows), vocab_size]``; stores the step's keys and values."""
        attend = self.attention.begin_step(batch)
        return self.decoder.forward(batch.input_ids, batch.positions, attend, batch.sample_rows)

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that left the batch."""
        self._batch.forget(request_id)
        self._last_tokens.pop(request_id, None)
        self.attention.forget(request_id)

    def _sample_row(self, batch: StepBatch, index: int) -> SampleRow:
        request, end = batch.sampled[index], batch.sample_ends[index]
        history = request.token_ids[:end]
        if history[-1] == PLACEHOLDER_TOKEN:
            history[-1] = self._last_tokens[request.request_id]
        return SampleRow(
            request.request_id, request.params, request.seed, history, request.num_prompt_tokens
        )


class _Done:
    """A step that was computed at once."""

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def result(self) -> StepResult:
        return self._result


def resolve_device(name: str) -> torch.device:
    """The device of a setting; ``auto`` is the CPU until the GPU kernels are there.

    Raises:
        DeviceError: there is no such device.
        NotSupportedYetError: a device that the engine cannot use yet.
    """
    if name in ("auto", "cpu"):
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"There is no device {name!r}.", device=name) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            f"The device {name!r} was asked for, but torch sees no CUDA device.", device=name
        )
    raise NotSupportedYetError(f"The device {name!r} is not supported yet.", device=name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of a setting; ``auto`` is bfloat16 where the device multiplies it in hardware."""
    if name != "auto":
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype)
        return dtype
    if device.type == "cpu" and not has_fast_bfloat16():
        return torch.float32
    return torch.bfloat16


def build_runner(
    config: ModelConfig,
    weights: Iterable[tuple[str, Tensor]],
    *,
    num_blocks: int,
    block_size: int = 16,
    max_model_len: int | None = None,
    max_running_requests: int = 64,
    device: str = "auto",
    dtype: str = "auto",
    backend: str = "auto",
) -> ModelRunner:
    """Decoder, pool and runner from a model's weights.

    Args:
        config: the model's shape.
        weights: ``(name, tensor)`` in Hugging Face's names.
        num_blocks: size of the pool.
        block_size: tokens a block.
        max_model_len: tokens of the longest sequence; the model's context length if None.
        max_running_requests: requests that are expected at once.
        device: ``auto`` or a torch device.
        dtype: ``auto`` or a torch floating-point type.
        backend: ``auto`` or ``paged_reference``.

    Raises:
        EngineError: the model, device or backend cannot be used.
    """
    if backend not in ("auto", PagedReferenceBackend.name):
        raise NotSupportedYetError(
            f"The backend {backend!r} is not supported yet.", backend=backend
        )
    chosen = resolve_device(device)
    kind = resolve_dtype(dtype, chosen)
    length = max_model_len or config.context_length
    decoder = Decoder(config, weights, kind, chosen, length)
    cache = KVCache(config, num_blocks, block_size, kind, chosen)
    attention = PagedReferenceBackend(cache, config.head_dim)
    return ModelRunner(decoder, attention, block_size, length, max_running_requests)
