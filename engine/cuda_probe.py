"""Whether torch can use a GPU, and in words why not."""

from __future__ import annotations

import ctypes.util
import re
import sys
import warnings
from pathlib import Path

import torch

_DRIVER_FILES = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""The last is the driver of Windows, as its subsystem for Linux sees it."""

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
"""As torch lists what it is built for: kind, generation, card, suffix."""


def cuda_obstacle() -> str:
    """Why torch sees no CUDA device, in words; empty if it sees one."""
    with warnings.catch_warnings():
        # It says here what is said below in other words.
        warnings.simplefilter("ignore")
        if torch.cuda.is_available():
            return ""
    needed = torch.version.cuda
    if needed is None:
        if not has_nvidia_driver():
            return "there is no CUDA device"
        return (
            "there is an NVIDIA driver, but this torch is a build for the CPU: install a CUDA "
            "build of torch"
        )
    if not has_nvidia_driver():
        return "there is no NVIDIA driver"
    supported = _driver_version()
    major, minor = (int(part) for part in needed.split(".")[:2])
    if 0 < supported < major * 1000:
        return (
            f"the NVIDIA driver is too old: it knows CUDA {supported // 1000}."
            f"{supported % 1000 // 10}, this torch needs {major}.{minor}: update the driver"
        )
    if torch.cuda.device_count() == 0:
        return "the NVIDIA driver shows no GPU to this program"
    return f"the NVIDIA GPU cannot be used ({_failure()})"


def card_obstacle(index: int) -> str:
    """Why torch cannot compute on a CUDA device that it sees, in words; empty if it can.

    Builds of torch leave out the code for cards that are old, and have none for newer ones. Both
    are seen and can be asked for their memory; the first operation fails.
    """
    try:
        major, minor = torch.cuda.get_device_capability(index)
        built_for = torch.cuda.get_arch_list()
    except (AssertionError, AttributeError, RuntimeError):
        # Whatever it is, the first use tells.
        return ""
    found = [_ARCHITECTURE.fullmatch(name) for name in built_for]
    known = [(m[1], (int(m[2]), int(m[3])), m[4]) for m in found if m is not None]
    if not known or any(_runs_on(each, (major, minor)) for each in known):
        return ""
    listed = ", ".join(f"{x}.{y}" for x, y in sorted({number for _, number, _ in known}))
    return (
        f"this torch has no code for the GPU: its compute capability is {major}.{minor}, the code "
        f"is for {listed}"
    )


def _runs_on(built: tuple[str, tuple[int, int], str], card: tuple[int, int]) -> bool:
    """Machine code runs on later cards of its generation, PTX on all later ones, what has an ``a``
    behind its number only on that card.
    """
    kind, number, suffix = built
    if suffix == "a":
        return number == card
    return number <= card and (kind == "compute" or number[0] == card[0])


def has_nvidia_driver() -> bool:
    """Whether an NVIDIA driver is installed, whatever its version."""
    if sys.platform == "win32":
        return ctypes.util.find_library("nvcuda") is not None
    return any(path.exists() for path in _DRIVER_FILES)


def _driver_version() -> int:
    """Newest CUDA that the driver knows, as 1000 · major + 10 · minor; 0 if it does not say."""
    try:
        # Builds for the CPU have no such function.
        return int(torch._C._cuda_getDriverVersion())  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return 0


def _failure() -> str:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return "it gives no reason"
