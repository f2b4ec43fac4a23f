"""Numbers on their way to a device: none is written over before it has been copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import staging
from engine.staging import Copy, CudaCopies, Download, HostCopies, Uploads


class Later:
    """A copy that is made when it is waited for, or when the test says so."""

    def __init__(self, host: Tensor, into: Tensor) -> None:
        self.host, self.into = host, into
        self.made = False

    def wait(self) -> None:
        if not self.made:
            self.into.copy_(self.host)
            self.made = True


class LateCopies(HostCopies):
    """A device that copies as late as it may."""

    def __init__(self) -> None:
        self.started: list[Later] = []
        self.allocated: list[int] = []

    def allocate(self, num_words: int) -> Tensor:
        self.allocated.append(num_words)
        return super().allocate(num_words)

    def start(self, host: Tensor, into: Tensor | None) -> tuple[Tensor, Copy]:
        sent = torch.empty_like(host) if into is None else into
        self.started.append(Later(host, sent))
        return sent, self.started[-1]


def send(uploads: Uploads, numbers: list[int], into: Tensor | None = None) -> Tensor:
    def write(out: np.ndarray) -> None:
        out[:] = numbers

    return uploads.send(len(numbers), write, into)


def finish(copies: LateCopies) -> None:
    for copy in copies.started:
        copy.wait()


def test_a_buffer_is_written_again_only_when_its_copy_has_been_made() -> None:
    copies = LateCopies()
    uploads = Uploads(copies)
    sent = [send(uploads, [number, number + 1]) for number in range(50)]
    finish(copies)
    assert [pair.tolist() for pair in sent] == [[number, number + 1] for number in range(50)]
    # Nobody waited for copies that need not have been made.
    assert len({copy.host.data_ptr() for copy in copies.started}) > 1


def test_more_numbers_than_have_a_place_get_a_longer_buffer() -> None:
    copies = LateCopies()
    uploads = Uploads(copies)
    least = copies.allocated[0]
    num_buffers = len(copies.allocated)
    long = list(range(least + 1))
    sent = [send(uploads, [1, 2, 3]) for _ in range(num_buffers)]
    sent += [send(uploads, long) for _ in range(2 * num_buffers)]
    finish(copies)
    assert [part.tolist() for part in sent[:num_buffers]] == [[1, 2, 3]] * num_buffers
    assert all(part.tolist() == long for part in sent[num_buffers:])
    # Each buffer once, and with room for more.
    assert copies.allocated[num_buffers:] == [2 * least] * num_buffers


def test_a_place_on_the_device_is_used_as_far_as_needed() -> None:
    copies = LateCopies()
    uploads = Uploads(copies)
    place = torch.zeros(5, dtype=torch.int64)
    send(uploads, [7, 8, 9], place)
    finish(copies)
    assert place.tolist() == [7, 8, 9, 0, 0]


def test_a_pair_comes_in_one_copy() -> None:
    copies = LateCopies()
    first, second = Uploads(copies).send_pair(np.array([1, 2]), np.array([3, 4]))
    assert len(copies.started) == 1
    finish(copies)
    assert (first.tolist(), second.tolist()) == ([1, 2], [3, 4])


def test_numbers_of_a_step_come_back() -> None:
    assert Download(HostCopies(), torch.tensor([3, 4])).wait() == [3, 4]


def test_copies_of_another_than_the_first_gpu_are_waited_for_on_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch's own choice is the current device, which nobody changes."""
    waited: list[object] = []

    class Event:
        def __init__(self, **_: object) -> None:
            """No driver is asked."""

        def record(self, stream: object = None) -> None:
            waited.append(stream or "stream of cuda:0")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(staging, "_pinned", lambda size, dtype: torch.empty(size, dtype=dtype))
    copies = CudaCopies(torch.device("cuda", 1))
    copies.fetch(torch.arange(3))
    copies.start(torch.arange(3), torch.empty(3, dtype=torch.int64))
    assert waited == ["stream of cuda:1"] * 2
