"""Programmatic dependent launch: a kernel begins while the one before it is still ending.

It may load what no kernel writes (weights), and waits before it reads anything else. A kernel
that waits has seen the end of everything before it, so a chain in which each one waits is safe.
Needs an NVIDIA GPU of compute capability 9.0 or later.
"""

from __future__ import annotations

import functools

import torch

_FIRST_CAPABILITY = (9, 0)

AT_START = 1
AFTER_WAIT = 2
_FEW_ROWS = range(9, 17)


def next_starts(pdl: bool, rows: int) -> int:
    """When a kernel over so many rows lets the next one start; 0: when it has ended.

    At its own start, whole chains of kernels stand on the multiprocessors and wait, and where one
    stands is no more free for the next: a kernel's programs come to lie unevenly. After its own
    wait, one kernel at most waits. Microseconds a layer of Qwen3-0.6B without attention on an H200,
    at the start / after the wait: 1 row 14.7 / 15.3, 2 rows 18.5 / 20.2, 4 rows 13.6 / 17.9, 8 rows
    14.8 / 15.6, 16 rows 24 / 17.6, 32 rows 24.7 / 24.9, 64 rows 23.6 / 23.9.
    """
    if not pdl:
        return 0
    return AFTER_WAIT if rows in _FEW_ROWS else AT_START


def pdl_option(pdl: bool) -> dict[str, bool]:
    """The launch option, for ``**``; nothing where it is not asked for."""
    return {"launch_pdl": True} if pdl else {}


@functools.cache
def can_pdl(device: torch.device) -> bool:
    """Whether kernels on this device can be launched so."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_CAPABILITY
