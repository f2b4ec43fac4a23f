"""The memory that the C library keeps for later."""

from __future__ import annotations

import ctypes
import sys


def trim_heap() -> None:
    """Gives what was freed back to the system. Takes some tens of milliseconds; any thread.

    glibc keeps freed memory unless it lies at the end of its heap or is larger than 32 MiB in one
    piece: of a model that goes most would stay. Other C libraries give it back by themselves, and
    nothing happens there.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
