"""Where a model computes, in which dtype, through which attention backend."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.api.errors import DeviceError, NotSupportedYetError
from engine.api.params import EngineConfig
from engine.cuda_probe import card_obstacle, cuda_obstacle
from engine.linear import has_fast_bfloat16
from engine.models.config import ModelConfig
from engine.triton_probe import triton_obstacle

PAGED_REFERENCE = "paged_reference"
PAGED_TRITON = "paged_triton"
DENSE = "dense"
CONTIGUOUS = "contiguous"
GPU_PREFILL_TIME_MS = 3.5
"""A prompt's share of a step with decodes in it: at a GPU's pace a gap of some milliseconds is seen
by nobody, and a larger share brings little.
"""

GPU_LEAST_PREFILL_TOKENS = 256
"""Fewer leave multiprocessors idle: behind a long context they take as long, and a share cut to the
time that the last one took would shrink to nothing.
"""

BACKENDS = (DENSE, CONTIGUOUS, PAGED_REFERENCE, PAGED_TRITON)


def resolve_device(name: str) -> torch.device:
    """The device of a setting; ``auto`` is the first CUDA device if torch can use it, else the CPU.

    Raises:
        DeviceError: there is no such device.
        NotSupportedYetError: a device that the engine cannot use yet.
    """
    if name == "auto":
        found = cuda_obstacle() or card_obstacle(0)
        return torch.device("cpu") if found else torch.device("cuda", 0)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"There is no device {name!r}.", device=name) from error
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise NotSupportedYetError(f"The device {name!r} is not supported yet.", device=name)
    if obstacle := cuda_obstacle():
        raise DeviceError(f"The device {name!r} was asked for, but {obstacle}.", device=name)
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise DeviceError(
            f"The device {name!r} was asked for, but there are {torch.cuda.device_count()}.",
            device=name,
        )
    if obstacle := card_obstacle(index):
        raise DeviceError(f"The device {name!r} was asked for, but {obstacle}.", device=name)
    return torch.device("cuda", index)


def resolve_dtype(name: str, device: torch.device, model: ModelConfig | None = None) -> torch.dtype:
    """The dtype of a setting for a model, or for most models.

    ``auto`` is bfloat16 where the device multiplies it in hardware. GPUs that do not get float16,
    but float32 for a model whose numbers are too large for that.
    """
    if name != "auto":
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype)
        return dtype
    if device.type == "cpu":
        return torch.bfloat16 if has_fast_bfloat16() else torch.float32
    if _gpu_has_bfloat16(device):
        return torch.bfloat16
    return torch.float32 if model is not None and model.exceeds_float16 else torch.float16


def _gpu_has_bfloat16(device: torch.device) -> bool:
    major, _ = torch.cuda.get_device_capability(device)
    return major >= 8


def with_device_defaults(config: EngineConfig, device: torch.device, backend: str) -> EngineConfig:
    """The settings with what depends on the device filled in, where the client left it open."""
    in_flight = device.type == "cuda" and backend == PAGED_TRITON
    lag = config.lag if config.lag is not None else int(in_flight)
    time_ms, least = config.prefill_time_budget_ms, config.least_prefill_tokens
    if device.type == "cuda":
        time_ms = GPU_PREFILL_TIME_MS if time_ms is None else time_ms
        least = GPU_LEAST_PREFILL_TOKENS if least is None else least
    return replace(config, lag=lag, prefill_time_budget_ms=time_ms, least_prefill_tokens=least)


def kernels_obstacle(device: torch.device, dtype: torch.dtype) -> str:
    """Why Triton's kernels cannot compute in a dtype on a device, in words; empty if they can.

    Raises:
        RuntimeError: as ``triton_obstacle``.
    """
    obstacle = triton_obstacle(device)
    if not obstacle and dtype == torch.float64:
        return "Triton's kernels compute in 32 bits at most"
    return obstacle


def choose_backend(
    name: str, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[str, str]:
    """The attention backend of a setting for a model in ``dtype``, and in words why it was chosen.

    Raises:
        NotSupportedYetError: a backend that is not there yet.
        DeviceError: the backend asked for cannot run here.
    """
    if name not in ("auto", *BACKENDS):
        raise NotSupportedYetError(f"The backend {name!r} is not supported yet.", backend=name)
    if name in (DENSE, CONTIGUOUS, PAGED_REFERENCE):
        return name, "as the settings ask"
    obstacle = kernels_obstacle(device, dtype)
    if not obstacle:
        return PAGED_TRITON, "Triton kernels on the GPU"
    if name == PAGED_TRITON:
        raise DeviceError(f"{PAGED_TRITON} cannot run here: {obstacle}.", backend=name)
    if device.type == "cuda":
        obstacle += "; plain torch operations compute instead, which is several times slower"
    return PAGED_REFERENCE, obstacle
