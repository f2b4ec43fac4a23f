"""Launches through a driver that records; see recording_driver.py."""

from __future__ import annotations

from typing import Any

from engine.triton_launcher import Driver, KernelLauncher
from tests.helpers.recording_driver import RecordingDriver

STREAM, FUNCTION = 0x7000_0000_0001, 0x7000_0000_0002
PLAIN = (4, 1, 1024)
"""Warps, blocks a cluster, bytes of shared memory."""
FIXED = (1, 1, 1, STREAM, FUNCTION, False, False, None, None, PLAIN, None, None, None)
"""What a launch is given before the kernel's own arguments."""


class Memory:
    """As a tensor: something that lies at an address."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def launched(
    recording: RecordingDriver,
    signature: list[Any],
    *arguments: Any,
    grid: tuple[int, int, int] = (5, 3, 2),
    cooperative: bool = False,
    pdl: bool = False,
    scratch: tuple[Any, Any] = (None, None),
    metadata: tuple[int, int, int] = PLAIN,
) -> RecordingDriver:
    """The driver after a launch. ``signature``: without tuples."""
    taken = [kind for kind in signature if kind != "constexpr"]
    recording.begin_anew(taken)
    launch = KernelLauncher(signature, Driver(str(recording.path))).launch
    fixed = (STREAM, FUNCTION, cooperative, pdl, *scratch, metadata, None, None, None)
    launch(*grid, *fixed, *arguments)
    return recording
