"""The driver of a GPU is started while torch is imported, and only where torch can use it."""

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine import driver_preload


@pytest.fixture
def cuda_build(tmp_path: Path) -> Path:
    """The libraries of a torch that is a build for GPUs, as far as their names show."""
    (tmp_path / "libtorch_cuda.so").touch()
    return tmp_path


class Driver:
    """Notes what is asked of it. ``fails``: the function that does not work."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[tuple[str, int]] = []
        self._fails = fails

    def cuInit(self, flags: int) -> int:
        return self._note("cuInit", flags)

    def cuDeviceGet(self, device, number: int) -> int:
        device._obj.value = 40 + number
        return self._note("cuDeviceGet", number)

    def cuDevicePrimaryCtxRetain(self, context, device: ctypes.c_int) -> int:
        return self._note("cuDevicePrimaryCtxRetain", device.value)

    def _note(self, name: str, number: int) -> int:
        self.calls.append((name, number))
        return 999 if name == self._fails else 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(driver_preload, "_load", lambda: made)
    return made


@pytest.mark.parametrize(("device", "number"), [("auto", 0), ("cuda", 0), ("cuda:3", 3)])
def test_the_context_of_the_gpu_that_is_asked_for_is_made(
    device: str, number: int, cuda_build: Path, driver: Driver
) -> None:
    thread = driver_preload.start_driver(device, cuda_build)
    assert thread is not None
    thread.join(10)
    assert driver.calls == [
        ("cuInit", 0), ("cuDeviceGet", number), ("cuDevicePrimaryCtxRetain", 40 + number)
    ]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "mps", "cuda:x", ""])
def test_nothing_is_started_for_other_devices(
    device: str, cuda_build: Path, driver: Driver
) -> None:
    assert driver_preload.start_driver(device, cuda_build) is None


def test_a_torch_for_the_cpu_takes_no_memory_of_a_gpu(cuda_build: Path, driver: Driver) -> None:
    (cuda_build / "libtorch_cuda.so").unlink()
    assert driver_preload.start_driver("auto", cuda_build) is None
    assert driver_preload.start_driver("auto", None) is None


@pytest.mark.parametrize("fails", ["cuInit", "cuDeviceGet"])
def test_a_driver_that_fails_is_left_to_torch(
    fails: str, cuda_build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Driver(fails)
    monkeypatch.setattr(driver_preload, "_load", lambda: broken)
    thread = driver_preload.start_driver("auto", cuda_build)
    assert thread is not None
    thread.join(10)
    assert broken.calls[-1][0] == fails


def test_no_driver_is_no_error(cuda_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    monkeypatch.setattr(driver_preload, "_DRIVERS", {sys.platform: "no-such-library"})
    thread = driver_preload.start_driver("auto", cuda_build)
    assert thread is not None
    thread.join(10)
    assert not failures


LEFT_OUT = """
import sys
sys.frozen = True
from engine.torch_preload import import_torch
import_torch()
import torch
assert "torch._decomp" not in sys.modules
layer = torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
print(int(layer.sum()), int(torch.where(layer > 2, layer, 0).sum()))
"""


def test_a_build_for_users_imports_less_of_torch() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LEFT_OUT], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["24", "24"]
