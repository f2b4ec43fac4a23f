"""Buffers through which a step's numbers go to the device and its tokens come back.

A copy call costs the host about 50 µs whatever its size, so each way has one a step. A buffer is
written again only when the copy that read it has been made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.device_batch import Ints, pack

_NUM_BUFFERS = 3
_LEAST_WORDS = 4096


class Copy(Protocol):
    """A copy that has been started."""

    def wait(self) -> None:
        """Returns when it has been made."""


class Copies(Protocol):
    """How numbers go from the host to a device."""

    def allocate(self, num_words: int) -> Tensor:
        """``[num_words]`` int64 on the host, to copy from."""

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        """Starts copying ``host`` into a device buffer of its size, a new one if None."""


class Uploads:
    """Sends packed int64 numbers to a device.

    Args:
        copies: how they go there.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._buffers = [copies.allocate(_LEAST_WORDS) for _ in range(_NUM_BUFFERS)]
        self._started: list[Copy | None] = [None] * _NUM_BUFFERS
        self._next = 0

    def send(self, arrays: Sequence[Ints], into: Tensor | None = None) -> list[Tensor]:
        """The arrays on the device, flat.

        Args:
            arrays: int64 each.
            into: a device buffer to use; a new one if None. It must be large enough.
        """
        total = sum(array.size for array in arrays)
        index, self._next = self._next, (self._next + 1) % _NUM_BUFFERS
        earlier = self._started[index]
        if earlier is not None:
            earlier.wait()
        if len(self._buffers[index]) < total:
            longer = max(total, 2 * len(self._buffers[index]))
            self._buffers[index] = self._copies.allocate(longer)
        host = self._buffers[index][:total]
        sizes = pack(arrays, host.numpy())
        place = None if into is None else into[:total]
        sent, self._started[index] = self._copies.start(host, place)
        return list(torch.split(sent, sizes))


class HostCopies:
    """To a model on the CPU: made at once."""

    def allocate(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64)

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        return (host.clone() if into is None else into.copy_(host)), _MADE

    def wait(self) -> None:
        """Nothing to wait for."""


_MADE = HostCopies()


class CudaCopies:
    """To a GPU, from pinned memory, on the stream that is current."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocate(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64, pin_memory=True)

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        if into is None:
            sent = host.to(self._device, non_blocking=True)
        else:
            sent = into.copy_(host, non_blocking=True)
        return sent, _CudaCopy()


class _CudaCopy:
    """What was put on the current stream up to now."""

    def __init__(self, blocking: bool = False) -> None:
        self._event = torch.cuda.Event(blocking=blocking)  # type: ignore[no-untyped-call]
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()


def copies_to(device: torch.device) -> Copies:
    """The way to a device."""
    return CudaCopies(device) if device.type == "cuda" else HostCopies()


class Download:
    """Some numbers of a step on their way to the host.

    Args:
        numbers: on the device; read on the stream that is current now.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._host = numbers
        self._copy: Copy = _MADE
        if numbers.is_cuda:
            # From the caching allocator of pinned memory: handed out again when the copy is done.
            self._host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._host.copy_(numbers, non_blocking=True)
            # A blocking wait sleeps, so that the window's thread has the processor.
            self._copy = _CudaCopy(blocking=True)

    def wait(self) -> list[float]:
        """The numbers, once the device has come so far."""
        self._copy.wait()
        numbers: list[float] = self._host.tolist()
        return numbers
