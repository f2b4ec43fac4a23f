"""Whether Triton can be used on a device: found out by compiling and running one small kernel."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch

from engine.api.errors import is_out_of_memory
from engine.cuda_probe import card_obstacle, cuda_obstacle
from engine.limits import device_lost
from engine.shipped_triton import use_shipped_parts

_MOST_LETTERS = 250


@functools.cache
def triton_obstacle(device: torch.device) -> str:
    """Why Triton kernels cannot run on a device, in words; empty if they can.

    A driver that is too old, a compiler that is missing or a card that Triton does not know show
    only when something is compiled.

    Raises:
        RuntimeError: the device's memory is full or it died, which says nothing about Triton.
    """
    if device.type != "cuda":
        return cuda_obstacle() or _why_not_this_card() or "the model runs on the CPU"
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
        if is_out_of_memory(error) or device_lost(error) is not None:
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"Triton cannot compile for this device ({first[:_MOST_LETTERS]})"
    return ""


def look_again() -> None:
    """Has the next call find out anew: a disk that was full, a compiler that was missing and the
    like may be there now.
    """
    triton_obstacle.cache_clear()


def _why_not_this_card() -> str:
    # Not for those who chose the CPU: asking takes a driver that has been started.
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return card_obstacle(0) if started else ""
