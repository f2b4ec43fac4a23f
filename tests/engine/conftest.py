"""What tests of the engine share."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.api.client import EngineHandle
from tests.helpers.recording_driver import RecordingDriver, make_library
from tests.helpers.talk import Talk, talk_with_engine

if TYPE_CHECKING:
    from engine.step_graphs import Compute
    from tests.helpers.recorded_graphs import Recorder


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Two threads wait for each other far longer than such small products take."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def talk() -> Iterator[Talk]:
    """An engine on its thread, and what it says."""
    with talk_with_engine() as made:
        yield made


@pytest.fixture
def handle() -> Iterator[EngineHandle]:
    """An engine on its thread, for several clients."""
    handle = EngineHandle()
    yield handle
    assert handle.owner.close(5.0), "the engine thread did not end"


@pytest.fixture
def no_cycles_found() -> Iterator[None]:
    """What nobody refers to goes at once, or not at all: as in the application."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In place of NVIDIA's driver; it records launches."""
    pytest.importorskip("triton", reason="needs the driver's header, which comes with Triton")
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("needs gcc on Linux")
    return make_library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def recording(driver_library: Path) -> RecordingDriver:
    return RecordingDriver(driver_library)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compute], Recorder]:
    """Puts a recorder in the place of torch's graphs."""
    from engine import step_graphs
    from tests.helpers.recorded_graphs import Recorder

    def install(compute: Compute) -> Recorder:
        recorder = Recorder(compute)
        monkeypatch.setattr(step_graphs, "GraphCapture", lambda _device: recorder.record)
        return recorder

    return install
