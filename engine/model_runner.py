"""Runs the steps that the scheduler lays out: inputs, decoder, sampling."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from engine.attention.base import AttentionBackend
from engine.attention.catch_up import catch_up
from engine.attention.make import make_backend
from engine.attention.prefill_tiles import Tiling
from engine.batch import InputBatch, StepBatch, token_at
from engine.device_steps import DeviceSteps
from engine.devices import (
    PAGED_TRITON,
    choose_backend,
    kernels_obstacle,
    resolve_device,
    resolve_dtype,
)
from engine.loading.progress import (
    Breathe,
    Cancelled,
    Told,
    never_cancelled,
    no_breath,
    tell_nobody,
)
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.models.narrow_ops import NarrowCpuOps
from engine.models.ops import DecoderOps, ReferenceOps
from engine.pool_sizing import allocate_shrinking
from engine.quantized.grouped import GroupedWeight
from engine.request import PLACEHOLDER_TOKEN
from engine.sampler import SampleRow, sample
from engine.scheduler_output import SchedulerOutput, StepHandle, StepResult
from engine.step_copy import to_device
from engine.thread_governor import ThreadGovernor


class ModelRunner:
    """A ``Runner``. On the CPU, and with a backend that waits for the device, ``submit`` computes
    before it returns; with Triton kernels on a GPU the step is in flight then.

    Args:
        decoder: the model.
        attention: where keys and values live.
        block_size: tokens a block.
        max_model_len: tokens of the longest sequence.
        max_running_requests: requests that are expected at once; more are taken too.
        num_blocks: size of the pool; the scheduler's measure even where there is none.
        deterministic: see ``build_runner``; ``shared_prefix_decode`` likewise.
    """

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionBackend,
        block_size: int,
        max_model_len: int,
        max_running_requests: int,
        num_blocks: int = 0,
        deterministic: bool = False,
        shared_prefix_decode: bool = True,
    ) -> None:
        self.decoder = decoder
        self.num_blocks = num_blocks
        self._deterministic = deterministic
        self._shares_prefix = shared_prefix_decode
        self.attention = attention
        self._max_blocks = max_blocks = -(-max_model_len // block_size)
        self._max_requests = max_running_requests
        self._block_size = block_size
        # Kept while a backend without a pool is in use: its memory might not be had again.
        self._cache = attention.cache
        self._batch = InputBatch(block_size, max_blocks, max_running_requests)
        self._last_tokens: dict[str, int] = {}
        self._governor: ThreadGovernor | None = None
        if decoder.device.type == "cpu":
            self._governor = ThreadGovernor(torch.get_num_threads(), torch.set_num_threads)
        self._device_steps = self._make_device_steps(attention)

    def make_attention(self, name: str) -> AttentionBackend:
        """A backend that can take over, on the pool that is there if it has one.

        Args:
            name: as ``choose_backend`` returned it.
        """
        decoder = self.decoder
        return make_backend(
            name,
            decoder.config,
            self.num_blocks,
            self._block_size,
            decoder.dtype,
            decoder.device,
            self._cache,
            self._deterministic,
        )

    def set_attention(self, attention: AttentionBackend) -> None:
        """Another backend from now on; no request may hold blocks. A failure changes nothing."""
        self._device_steps = self._make_device_steps(attention)
        self.attention = attention
        self._cache = self._cache or attention.cache

    def _make_device_steps(self, attention: AttentionBackend) -> DeviceSteps | None:
        if self.decoder.device.type != "cuda" or attention.name != PAGED_TRITON:
            return None
        # Triton is only there where it can be used.
        from engine.device_drawer import DeviceDrawer
        from kernels.sample import sample as sample_kernel

        # No cycle: a model that is let go gives its memory back at once.
        runner = weakref.proxy(self)
        return DeviceSteps(
            lambda batch: runner.compute_logits(batch),
            DeviceDrawer(sample_kernel, self.decoder.config.vocab_size, self.decoder.device),
            self._block_size,
            self._max_blocks,
            self._max_requests,
            self.decoder.device,
            tiling=attention if isinstance(attention, Tiling) else None,
            shares=getattr(attention, "shares", None) if self._shares_prefix else None,
        )

    def submit(self, output: SchedulerOutput) -> StepHandle:
        """Computes a step.

        Raises:
            RuntimeError: the step failed as a whole; what it wrote must be computed again.
        """
        if self._governor is not None:
            self._governor.apply(torch.get_num_threads())
        started = time.perf_counter()
        with torch.inference_mode():
            self.attention.copy_blocks(output.block_copies)
            if not output.num_tokens:
                return _Done(StepResult())
            if self._device_steps is not None:
                return self._device_steps.submit(output)
            if self.attention.cache is None:
                output = catch_up(output, self.attention)
            batch = self._batch.build(output, self._last_tokens)
            logits = self.compute_logits(to_device(batch, self.decoder.device))
            rows = [self._sample_row(batch, i) for i in range(len(batch.sampled))]
            samples = sample(logits, rows) if rows else []
        for drawn in samples:
            if drawn.token_ids:
                self._last_tokens[drawn.request_id] = drawn.token_ids[-1]
        if self._governor is not None and not output.prefills:
            now = time.perf_counter()
            self._governor.stepped(len(output.decodes), now - started, now)
        return _Done(StepResult(samples))

    def compute_logits(self, batch: StepBatch) -> Tensor:
        """``[len(batch.sample_rows), vocab_size]``; stores the step's keys and values."""
        attend = self.attention.begin_step(batch)
        return self.decoder.forward(batch.input_ids, batch.positions, attend, batch.sample_rows)

    def prompt_size(self, num_tokens: int) -> int:
        """Prompt tokens that a step computes for so many, padding included."""
        steps = self._device_steps
        return num_tokens if steps is None else steps.prompt_size(num_tokens)

    def prepare(self, interrupted: Cancelled = never_cancelled) -> bool:
        """Makes ready for a kind of step that will come up, in some tens of milliseconds, while
        nothing else is to do. False if nothing is left to prepare.

        Kernels that no step has needed on this machine are compiled, up to seconds each; before
        each ``interrupted`` is asked, and what has been begun is left if it says so.
        """
        return self._device_steps is not None and self._device_steps.prepare(interrupted)

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that left the batch."""
        self._batch.forget(request_id)
        self._last_tokens.pop(request_id, None)
        self.attention.forget(request_id)
        if self._device_steps is not None:
            self._device_steps.forget(request_id)

    def _sample_row(self, batch: StepBatch, index: int) -> SampleRow:
        request, end = batch.sampled[index], batch.sample_ends[index]
        history = request.token_ids
        if len(history) != end or history[-1] == PLACEHOLDER_TOKEN:
            history = history[:end]
            history[-1] = token_at(request, end - 1, self._last_tokens)
        return SampleRow(
            request.request_id, request.params, request.seed, history, request.num_prompt_tokens
        )


class _Done:
    """A step that was computed at once."""

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def result(self) -> StepResult:
        return self._result


def build_runner(
    config: ModelConfig,
    weights: Iterable[tuple[str, Tensor | GroupedWeight]],
    *,
    num_blocks: int | Callable[[Decoder, str], int],
    block_size: int = 16,
    max_model_len: int | None = None,
    max_running_requests: int = 64,
    device: str = "auto",
    dtype: str = "auto",
    backend: str = "auto",
    deterministic: bool = False,
    shared_prefix_decode: bool = True,
    keep_expanded: bool = False,
    breathe: Breathe = no_breath,
    converted: Told = tell_nobody,
) -> ModelRunner:
    """Decoder, pool and runner from a model's weights.

    Args:
        config: the model's shape.
        weights: ``(name, tensor)`` in Hugging Face's names.
        num_blocks: size of the pool, or what says it once the decoder is there, given that and the
            backend's name. The pool is smaller where so much memory cannot be had.
        block_size: tokens a block.
        max_model_len: tokens of the longest sequence; the model's context length if None.
        max_running_requests: requests that are expected at once.
        device: ``auto`` or a torch device.
        dtype: ``auto`` or a torch floating-point type.
        backend: ``auto`` or one of ``devices.BACKENDS``.
        deterministic: on a GPU, no result depends to the last bit on what else is in a step.
        shared_prefix_decode: on a GPU, a beginning that sequences share is read once a step where
            that pays.
        keep_expanded: quantised weights are kept expanded too, where that makes prompts faster.
        breathe, converted: see ``Decoder``.

    Raises:
        EngineError: the model, device or backend cannot be used.
    """
    chosen = resolve_device(device)
    kind = resolve_dtype(dtype, chosen, config)
    backend_name, _ = choose_backend(backend, chosen, kind)
    length = max_model_len or config.context_length
    operations = operations_for(chosen, kind, deterministic, keep_expanded)
    decoder = Decoder(config, weights, kind, chosen, length, operations, breathe, converted)
    wanted = num_blocks if isinstance(num_blocks, int) else num_blocks(decoder, backend_name)
    attention, had = allocate_shrinking(
        wanted,
        lambda count: make_backend(
            backend_name, config, count, block_size, kind, chosen, deterministic=deterministic
        ),
    )
    return ModelRunner(
        decoder,
        attention,
        block_size,
        length,
        max_running_requests,
        had,
        deterministic,
        shared_prefix_decode,
    )


def operations_for(
    device: torch.device, dtype: torch.dtype, deterministic: bool, keep_expanded: bool
) -> DecoderOps:
    """Fused operations where they can run, else the plain ones."""
    if kernels_obstacle(device, dtype):
        if device.type == "cpu" and dtype.itemsize == 2:
            return NarrowCpuOps(dtype, keep_expanded)
        return ReferenceOps(keep_expanded)
    from engine.models.triton_ops import TritonOps

    return TritonOps(device, deterministic)
