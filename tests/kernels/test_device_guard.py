"""Who steps in before launches, and in which thread."""

from __future__ import annotations

import threading

import pytest
import torch

from kernels.device_guard import breathing_before_launches
from kernels.rms_norm import rms_norm


class EnoughError(Exception):
    pass


def launch(device: torch.device) -> torch.Tensor:
    ones = torch.ones((1, 64), device=device)
    return rms_norm(ones, ones[0], 0.0)


def test_what_is_raised_before_a_launch_comes_out_of_it(device: torch.device) -> None:
    asked: list[str] = []

    def enough() -> None:
        asked.append("inner")
        raise EnoughError

    with breathing_before_launches(lambda: asked.append("outer")):
        launch(device)
        with pytest.raises(EnoughError), breathing_before_launches(enough):
            launch(device)
        launch(device)
    launch(device)
    assert asked == ["outer", "inner", "outer"]


def test_other_threads_launch_undisturbed(device: torch.device) -> None:
    found: list[torch.Tensor] = []

    def enough() -> None:
        raise EnoughError

    with breathing_before_launches(enough):
        other = threading.Thread(target=lambda: found.append(launch(device)))
        other.start()
        other.join()
    assert found[0].tolist() == [[1.0] * 64]
