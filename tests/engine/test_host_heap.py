"""Memory that a model has left goes back to the system, where others can have it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from engine.api.commands import LoadModel
from engine.api.errors import ErrorInfo, ModelFileError
from engine.held_memory import give_back
from engine.model_loader import LoadedEngine, ModelLoader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="others give back by themselves")
MODEL_BYTES = 240 << 20


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.fixture
def weights() -> Callable[[], list[torch.Tensor]]:
    """Makes a model's weights in pieces that the C library keeps once they are freed."""
    largest = torch.ones(30 << 18)
    del largest
    return lambda: [torch.ones(20 << 18) for _ in range(12)]


def test_weights_that_were_freed_go_back_to_the_system(
    weights: Callable[[], list[torch.Tensor]],
) -> None:
    model = weights()
    # As a rule it lies behind them, and then the C library keeps what is before it.
    behind = torch.ones(1 << 18)
    before = resident()
    del model
    give_back()
    # Not all: the system may have taken pages away before.
    assert before - resident() > 0.5 * MODEL_BYTES
    assert behind.numel()


def test_a_load_that_fails_leaves_nothing_behind(
    weights: Callable[[], list[torch.Tensor]], tmp_path: Path
) -> None:
    class Fails(ModelLoader):
        def _load(self) -> LoadedEngine:
            model = weights()
            self.behind = torch.ones(1 << 18)
            raise ModelFileError(f"{len(model)} tensors, and then nothing.")

    before = resident()
    loader = Fails(LoadModel(str(tmp_path)), lambda: None)
    assert loader.join(30.0)
    error = loader.outcomes.pop()
    assert isinstance(error, ErrorInfo)
    assert error.code == "model_file"
    assert resident() - before < 0.3 * MODEL_BYTES
    assert loader.behind.numel()
