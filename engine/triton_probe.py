"""Whether Triton can be used on a device: found out by compiling and running one small kernel."""

from __future__ import annotations

import functools
import importlib.util

import torch


@functools.cache
def triton_obstacle(device: torch.device) -> str:
    """Why Triton kernels cannot run on a device, in words; empty if they can.

    A driver that is too old, a compiler that is missing or a card that Triton does not know show
    only when something is compiled.
    """
    if device.type != "cuda":
        return "there is no CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    try:
        from kernels.rms_norm import rms_norm

        ones = torch.ones((1, 64), dtype=torch.float32, device=device)
        found = rms_norm(ones, ones[0], 0.0)
        if not torch.allclose(found, ones):
            return "Triton computes wrongly on this device"
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"Triton cannot compile for this device ({first[:200]})"
    return ""
