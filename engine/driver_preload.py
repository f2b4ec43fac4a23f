"""Starts CUDA's driver while torch is still being imported.

The first use of a GPU takes the driver a quarter of a second and more. torch waits for it with the
interpreter held, so that the window stands still; a foreign function called through ctypes does
not hold it, and what is started by then costs torch nothing. Whatever goes wrong here is left to
torch, which says what it was.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path
from typing import Any

_DRIVERS = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}
_CUDA_BUILDS = ("libtorch_cuda.so", "torch_cuda.dll")


def start_driver(device: str, libraries: Path | None) -> threading.Thread | None:
    """Makes the context of a GPU ready, on a thread of its own; None where there is nothing to do:
    torch is a build for the CPU, or no GPU is asked for.

    Args:
        device: the setting: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        libraries: torch's, the folder; None if there is none.
    """
    name, _, number = device.partition(":")
    if name not in ("auto", "cuda") or not (number or "0").isdecimal():
        return None
    # A context takes some of a GPU's memory.
    if libraries is None or not any((libraries / name).is_file() for name in _CUDA_BUILDS):
        return None
    thread = threading.Thread(
        target=_make_context, args=(int(number or 0),), name="quire-driver", daemon=True
    )
    thread.start()
    return thread


def _make_context(number: int) -> None:
    """The primary context, which CUDA's runtime, and so torch, uses too. It is kept to the end, as
    torch keeps it.
    """
    driver = _load()
    if driver is None or driver.cuInit(0) != 0:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(device), number) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _load() -> Any:
    """The driver's library; None if there is none."""
    name = _DRIVERS.get(sys.platform)
    if name is None:
        return None
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None
