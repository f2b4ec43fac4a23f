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

# In the order in which torch would load them; the first brings the OpenMP library for all.
_LIBRARIES = ("libtorch_global_deps.so", "libtorch_cpu.so", "libtorch_cuda.so")


def import_torch() -> None:
    """Imports torch on a thread of its own, which ends.

    torch.fx leaves the frames through which it was imported in a reference cycle. A loader's own
    frames would keep the model that it gave back until somebody looks for cycles.

    Raises:
        ImportError: as ``import torch`` does; others of a damaged installation likewise.
    """
    preload_torch()
    if "torch" in sys.modules:
        return
    errors: list[BaseException] = []

    def work() -> None:
        try:
            importlib.import_module("torch")
        except BaseException as error:  # told by whoever wanted torch
            errors.append(error)

    thread = threading.Thread(target=work, name="quire-torch", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def preload_torch() -> list[str]:
    """Loads torch's large libraries before it is imported, with the interpreter free meanwhile, and
    returns the names of those that are there.

    Only on Linux: on Windows torch itself loads its libraries through ctypes. What cannot be loaded
    is left to ``import torch``, which says why.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return []
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "lib"
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    loaded = []
    for name in _LIBRARIES:
        path = folder / name
        scope = os.RTLD_GLOBAL if "global" in name else os.RTLD_LOCAL
        if path.is_file() and load(os.fsencode(path), os.RTLD_NOW | scope):
            loaded.append(name)
    return loaded
