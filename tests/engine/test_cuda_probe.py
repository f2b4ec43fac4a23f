"""Why no GPU is used, in words that say what to do."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from engine import cuda_probe
from engine.api.errors import DeviceError
from engine.cuda_probe import cuda_obstacle
from engine.devices import resolve_device


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine without a usable GPU; says what it has."""

    def install(
        *, driver: bool, built_for: str | None, knows: int = 0, devices: int = 0, error: str = ""
    ) -> None:
        def is_available() -> bool:
            warnings.warn("what torch says in its own words", UserWarning, stacklevel=1)
            return False

        def init() -> None:
            if error:
                raise RuntimeError(error)

        there = tmp_path / "version"
        if driver:
            there.touch()
        monkeypatch.setattr(cuda_probe, "_DRIVER_FILES", (there,))
        monkeypatch.setattr(torch.version, "cuda", built_for)
        monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: knows, raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", is_available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
        monkeypatch.setattr(torch.cuda, "init", init)

    return install


def test_no_gpu_and_a_build_for_the_cpu(machine) -> None:
    machine(driver=False, built_for=None)
    assert cuda_obstacle() == "there is no CUDA device"


def test_a_gpu_and_a_build_for_the_cpu(machine) -> None:
    machine(driver=True, built_for=None)
    assert "install a CUDA build of torch" in cuda_obstacle()


def test_no_driver(machine) -> None:
    machine(driver=False, built_for="13.0")
    assert cuda_obstacle() == "there is no NVIDIA driver"


def test_a_driver_that_is_too_old_is_named_with_both_versions(machine) -> None:
    machine(driver=True, built_for="13.0", knows=12040)
    assert cuda_obstacle() == (
        "the NVIDIA driver is too old: it knows CUDA 12.4, this torch needs 13.0: update the driver"
    )


def test_a_newer_minor_version_than_the_drivers_is_no_obstacle_by_itself(machine) -> None:
    """Within a major version CUDA keeps to its drivers."""
    machine(driver=True, built_for="13.2", knows=13000, devices=1, error="out of order\nmore")
    assert cuda_obstacle() == "the NVIDIA GPU cannot be used (out of order)"


def test_a_driver_that_hides_its_gpus(machine) -> None:
    machine(driver=True, built_for="13.0", knows=13000)
    assert cuda_obstacle() == "the NVIDIA driver shows no GPU to this program"


def test_the_reason_is_in_the_refusal(machine) -> None:
    machine(driver=False, built_for="13.0")
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(DeviceError, match=r"'cuda' was asked for, but there is no NVIDIA driver\."):
        resolve_device("cuda")
