"""Whether torch can use a GPU, and in words why not."""

from __future__ import annotations

import ctypes.util
import sys
import warnings
from pathlib import Path

import torch

_DRIVER_FILES = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""The last is the driver of Windows, as its subsystem for Linux sees it."""


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
