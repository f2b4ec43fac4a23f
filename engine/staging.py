"""Pinned buffers through which a step's numbers go to the device and its tokens come back.

A copy call costs the host about 50 µs whatever its size, so each way has one a step. A buffer is
written again only when the copy that read it has been made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.device_batch import Ints, pack

_NUM_BUFFERS = 3
_LEAST_WORDS = 4096


class Uploads:
    """Sends packed int64 numbers to ``device``; on the CPU they are only packed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._buffers = [self._allocate(_LEAST_WORDS) for _ in range(_NUM_BUFFERS)]
        self._copied = [_event() if self._on_gpu else None for _ in range(_NUM_BUFFERS)]
        self._next = 0

    def send(self, arrays: Sequence[Ints], into: Tensor | None = None) -> list[Tensor]:
        """The arrays on the device, flat.

        Args:
            arrays: int64 each.
            into: a device buffer to use; a new one if None. It must be large enough.
        """
        total = sum(array.size for array in arrays)
        index, self._next = self._next, (self._next + 1) % _NUM_BUFFERS
        done = self._copied[index]
        if done is not None:
            done.synchronize()
        if len(self._buffers[index]) < total:
            self._buffers[index] = self._allocate(max(total, 2 * len(self._buffers[index])))
        host = self._buffers[index]
        numbers: NDArray[np.int64] = host.numpy()
        sizes = pack(arrays, numbers)
        if not self._on_gpu:
            sent = host[:total].clone() if into is None else into[:total].copy_(host[:total])
        elif into is None:
            sent = host[:total].to(self._device, non_blocking=True)
        else:
            sent = into[:total].copy_(host[:total], non_blocking=True)
        if done is not None:
            done.record()
        return list(torch.split(sent, sizes))

    def _allocate(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64, pin_memory=self._on_gpu)


class Download:
    """Some numbers of a step on their way to the host.

    Args:
        numbers: on the device; read on the stream that is current now.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._host = numbers
        if numbers.is_cuda:
            # From the caching allocator of pinned memory: handed out again when the copy is done.
            self._host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._host.copy_(numbers, non_blocking=True)
            # A blocking wait sleeps, so that the window's thread has the processor.
            self._event = _event(blocking=True)
            self._event.record()

    def wait(self) -> list[float]:
        """The numbers, once the device has come so far."""
        if self._event is not None:
            self._event.synchronize()
        numbers: list[float] = self._host.tolist()
        return numbers


def _event(blocking: bool = False) -> torch.cuda.Event:
    return torch.cuda.Event(blocking=blocking)  # type: ignore[no-untyped-call]
