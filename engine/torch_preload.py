"""Imports torch so that nobody has to wait for it, and nothing is held by it.

``import torch`` maps and links 400 MB of code in one call that holds the interpreter for a quarter
to half a second, and the window stands still. A foreign function called through ctypes does not
hold it; what is loaded by then costs the import nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

from engine.driver_preload import start_driver

# In the order in which torch would load them; the first brings the OpenMP library for all.
_LIBRARIES = ("libtorch_global_deps.so", "libtorch_cpu.so", "libtorch_cuda.so")

_LEFT_OUT = ("torch._meta_registrations", "torch.export")
"""A quarter of the time of ``import torch``: shapes of tensors without data, for those who trace or
compile a model, which nothing here does.
"""


def import_torch(device: str = "cpu") -> None:
    """Imports torch on a thread of its own, which ends, and meanwhile starts the driver of a GPU.

    torch.fx leaves the frames through which it was imported in a reference cycle. A loader's own
    frames would keep the model that it gave back until somebody looks for cycles.

    Args:
        device: the setting that says where a model will lie; see ``start_driver``.

    Raises:
        ImportError: as ``import torch`` does; others of a damaged installation likewise.
    """
    if "torch" in sys.modules:
        return
    driver = start_driver(device, _libraries())
    preload_torch()
    if getattr(sys, "frozen", False):
        leave_out()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            importlib.import_module("torch")
        except BaseException as error:  # told by whoever wanted torch
            errors.append(error)

    thread = threading.Thread(target=work, name="quire-torch", daemon=True)
    thread.start()
    thread.join()
    if driver is not None:
        driver.join()
    if errors:
        raise errors[0]


def leave_out() -> None:
    """Puts empty modules in the place of what torch imports only for others.

    A build for users has one version of torch, with which it is tried before anybody gets it, and
    nothing in it but this program wants torch.
    """
    for name in _LEFT_OUT:
        sys.modules.setdefault(name, ModuleType(name))


def preload_torch() -> list[str]:
    """Loads torch's large libraries before it is imported, with the interpreter free meanwhile, and
    returns the names of those that are there.

    Only on Linux: on Windows torch itself loads its libraries through ctypes. What cannot be loaded
    is left to ``import torch``, which says why.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return []
    folder = _libraries()
    if folder is None:
        return []
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    loaded = []
    for name in _LIBRARIES:
        path = folder / name
        scope = os.RTLD_GLOBAL if "global" in name else os.RTLD_LOCAL
        if path.is_file() and load(os.fsencode(path), os.RTLD_NOW | scope):
            loaded.append(name)
    return loaded


def _libraries() -> Path | None:
    """The folder of torch's libraries; None without torch."""
    spec = importlib.util.find_spec("torch")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "lib"
