"""Programmatic dependent launch: a kernel begins while the one before it is still ending.

It may load what no kernel writes (weights), and waits before it reads anything else. A kernel
that waits has seen the end of everything before it, so a chain in which each one waits is safe.
Needs an NVIDIA GPU of compute capability 9.0 or later.
"""

from __future__ import annotations

import functools

import torch

_FIRST_CAPABILITY = (9, 0)


def pdl_option(pdl: bool) -> dict[str, bool]:
    """The launch option, for ``**``; nothing where it is not asked for."""
    return {"launch_pdl": True} if pdl else {}


@functools.cache
def can_pdl(device: torch.device) -> bool:
    """Whether kernels on this device can be launched so."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_CAPABILITY
