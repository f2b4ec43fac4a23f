"""What comes before every launch: Triton launches on the current device, which is made the tensors'
own; and whoever would wait for a kernel that has to be compiled may step in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor


class _Breath(threading.local):
    breathe: Callable[[], None] | None = None


_breath = _Breath()


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """A context in which kernels run where the tensor lies. Nothing to do on the CPU."""
    if _breath.breathe is not None:
        _breath.breathe()
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@contextmanager
def breathing_before_launches(breathe: Callable[[], None]) -> Iterator[None]:
    """Calls ``breathe`` before each launch of this thread; what it raises comes out of the launch.

    A kernel that has not been launched before is compiled first, which takes up to seconds: many
    that are launched in a row only to have them compiled can be broken off in between.
    """
    outer = _breath.breathe
    _breath.breathe = breathe
    try:
        yield
    finally:
        _breath.breathe = outer
