"""Buffers through which a step's numbers go to the device and its tokens come back.

A copy call costs the host about 50 µs whatever its size, so each way has one a step. A buffer is
written again only when the copy that read it has been made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.device_batch import Ints

_NUM_BUFFERS = 4
_LEAST_WORDS = 1 << 14


class Copy(Protocol):
    """A copy that has been started."""

    def wait(self) -> None:
        """Returns when it has been made."""


class Copies(Protocol):
    """How numbers go from the host to a device and back."""

    def allocate(self, num_words: int) -> Tensor:
        """``[num_words]`` int64 on the host, to copy from."""

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        """Starts copying ``host`` into a device buffer of its size, a new one if None."""

    def fetch(self, numbers: Tensor) -> tuple[Tensor, Copy]:
        """Starts copying numbers of the device to the host."""


class Uploads:
    """Sends int64 numbers to a device.

    Args:
        copies: how they go there.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._buffers = [copies.allocate(_LEAST_WORDS) for _ in range(_NUM_BUFFERS)]
        self._numbers: list[Ints] = [buffer.numpy() for buffer in self._buffers]
        self._started: list[Copy | None] = [None] * _NUM_BUFFERS
        self._next = 0

    def send(
        self, num_words: int, write: Callable[[Ints], None], into: Tensor | None = None
    ) -> Tensor:
        """``[num_words]`` int64 on the device.

        Args:
            num_words: how many.
            write: fills the array that it is given.
            into: a device buffer to use, as long or longer; a new one if None.
        """
        index, self._next = self._next, (self._next + 1) % _NUM_BUFFERS
        earlier = self._started[index]
        if earlier is not None:
            earlier.wait()
        if len(self._buffers[index]) < num_words:
            longer = max(num_words, 2 * len(self._buffers[index]))
            self._buffers[index] = self._copies.allocate(longer)
            self._numbers[index] = self._buffers[index].numpy()
        write(self._numbers[index][:num_words])
        host = self._buffers[index][:num_words]
        place = None if into is None else into[:num_words]
        sent, self._started[index] = self._copies.start(host, place)
        return sent

    def send_pair(self, first: Ints, second: Ints) -> tuple[Tensor, Tensor]:
        """Two arrays of one length."""

        def write(out: Ints) -> None:
            np.concatenate((first, second), out=out)

        sent = self.send(2 * len(first), write)
        return sent[: len(first)], sent[len(first) :]


class HostCopies:
    """To a model on the CPU: made at once."""

    def allocate(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64)

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        return (host.clone() if into is None else into.copy_(host)), _MADE

    def fetch(self, numbers: Tensor) -> tuple[Tensor, Copy]:
        return numbers, _MADE

    def wait(self) -> None:
        """Nothing to wait for."""


_MADE = HostCopies()


class CudaCopies:  # needs a GPU
    """To a GPU and back through pinned memory, on the stream that is current."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._fetched: dict[torch.dtype, list[tuple[Tensor, _CudaCopy]]] = {}
        self._next = 0

    def allocate(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64, pin_memory=True)

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        if into is None:
            sent = host.to(self._device, non_blocking=True)
        else:
            sent = into.copy_(host, non_blocking=True)
        return sent, _CudaCopy().record(self._device)

    def fetch(self, numbers: Tensor) -> tuple[Tensor, Copy]:
        # At most two steps are in flight, so a buffer has been read when its turn comes again.
        ring = self._fetched.get(numbers.dtype)
        if ring is None or len(ring[0][0]) < len(numbers):
            ring = self._fetched[numbers.dtype] = [
                (_pinned(max(512, 2 * len(numbers)), numbers.dtype), _CudaCopy(blocking=True))
                for _ in range(_NUM_BUFFERS)
            ]
        self._next = (self._next + 1) % _NUM_BUFFERS
        buffer, copy = ring[self._next]
        host = buffer[: len(numbers)]
        host.copy_(numbers, non_blocking=True)
        return host, copy.record(self._device)


class _CudaCopy:  # needs a GPU
    """What was put on the current stream up to now; a blocking wait sleeps, so that the window's
    thread has the processor.
    """

    def __init__(self, blocking: bool = False) -> None:
        self._event = torch.cuda.Event(blocking=blocking)  # type: ignore[no-untyped-call]

    def record(self, device: torch.device) -> _CudaCopy:
        # Of this device: torch's own choice is the current one, which is the first.
        self._event.record(torch.cuda.current_stream(device))
        return self

    def wait(self) -> None:
        self._event.synchronize()


def _pinned(count: int, dtype: torch.dtype) -> Tensor:  # needs a GPU
    return torch.empty(count, dtype=dtype, pin_memory=True)


def copies_to(device: torch.device) -> Copies:
    """The way to a device."""
    return CudaCopies(device) if device.type == "cuda" else HostCopies()


class Download:
    """Some numbers of a step on their way to the host.

    Args:
        copies: how they come.
        numbers: ``[count]`` on the device; read on the stream that is current now.
    """

    def __init__(self, copies: Copies, numbers: Tensor) -> None:
        self._host, self._copy = copies.fetch(numbers)

    def wait(self) -> list[float]:
        """The numbers, once the device has come so far."""
        self._copy.wait()
        numbers: list[float] = self._host.tolist()
        return numbers
