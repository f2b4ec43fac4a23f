"""Whether Triton can be used on a device: found out by compiling and running one small kernel."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch

from engine.cuda_probe import cuda_obstacle
from engine.shipped_triton import use_shipped_parts

_MOST_LETTERS = 250


@functools.cache
def triton_obstacle(device: torch.device) -> str:
    """Why Triton kernels cannot run on a device, in words; empty if they can.

    A driver that is too old, a compiler that is missing or a card that Triton does not know show
    only when something is compiled.
    """
    if device.type != "cuda":
        return cuda_obstacle() or "the model runs on the CPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    try:
        use_shipped_parts(os.environ)
        from kernels.rms_norm import rms_norm

        ones = torch.ones((1, 64), dtype=torch.float32, device=device)
        found = rms_norm(ones, ones[0], 0.0)
        if not torch.allclose(found, ones):
            return "Triton computes wrongly on this device"
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"Triton cannot compile for this device ({first[:_MOST_LETTERS]})"
    return ""
