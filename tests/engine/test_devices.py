"""What is chosen for a device, and why it cannot be used, in words."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from engine import devices, triton_probe
from engine.api.errors import DeviceError, NotSupportedYetError, unexpected
from engine.api.params import EngineConfig
from engine.devices import (
    GPU_LEAST_PREFILL_TOKENS,
    GPU_PREFILL_TIME_MS,
    choose_backend,
    resolve_device,
    resolve_dtype,
    with_device_defaults,
)
from engine.model_runner import operations_for
from engine.models.ops import ReferenceOps
from engine.triton_probe import triton_obstacle
from tests.helpers.tiny_model import tiny_llama, tiny_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_by_its_name() -> None:
    assert resolve_device("auto") == CUDA
    assert resolve_device("cuda") == CUDA
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu") == CPU
    with pytest.raises(DeviceError, match="'cuda:2' was asked for, but there are 2"):
        resolve_device("cuda:2")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu() -> None:
    assert resolve_device("auto") == CPU
    with pytest.raises(DeviceError, match="'cuda:1' was asked for, but there is no"):
        resolve_device("cuda:1")


def test_names_that_mean_no_device_of_ours() -> None:
    with pytest.raises(DeviceError, match="no device 'gpu0'"):
        resolve_device("gpu0")
    with pytest.raises(NotSupportedYetError, match="'meta' is not supported yet"):
        resolve_device("meta")


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_dtype_of_a_gpu_is_what_it_multiplies(
    capability: tuple[int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    assert resolve_dtype("auto", CUDA) is dtype
    assert resolve_dtype("float32", CUDA) is torch.float32


def test_numbers_too_large_for_float16_are_kept_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    gemma = tiny_model("Gemma3ForCausalLM").config
    assert resolve_dtype("auto", CUDA, gemma) is torch.float32
    assert resolve_dtype("float16", CUDA, gemma) is torch.float16
    assert resolve_dtype("auto", CUDA, tiny_llama().config) is torch.float16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    assert resolve_dtype("auto", CUDA, gemma) is torch.bfloat16


@pytest.mark.parametrize(("fast", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_dtype_of_a_cpu(fast: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_fast_bfloat16", lambda: fast)
    assert resolve_dtype("auto", CPU) is dtype


def test_defaults_of_a_device_fill_in_what_was_left_open() -> None:
    open_ = EngineConfig()
    on_gpu = with_device_defaults(open_, CUDA, "paged_triton")
    assert (on_gpu.lag, on_gpu.prefill_time_budget_ms) == (1, GPU_PREFILL_TIME_MS)
    assert on_gpu.least_prefill_tokens == GPU_LEAST_PREFILL_TOKENS
    # Other backends wait for the device in every layer: a step in flight would gain nothing.
    assert with_device_defaults(open_, CUDA, "dense").lag == 0
    on_cpu = with_device_defaults(open_, CPU, "paged_reference")
    assert (on_cpu.lag, on_cpu.prefill_time_budget_ms) == (0, None)
    assert on_cpu.least_prefill_tokens is None
    assert with_device_defaults(open_, CPU, "paged_triton").lag == 0
    asked = EngineConfig(lag=0, prefill_time_budget_ms=9.0, least_prefill_tokens=64)
    assert with_device_defaults(asked, CUDA, "paged_triton") == asked


def test_triton_is_chosen_where_nothing_is_in_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "triton_obstacle", lambda _device: "")
    for name in ("auto", "paged_triton"):
        assert choose_backend(name, CUDA) == ("paged_triton", "Triton kernels on the GPU")
    monkeypatch.setattr(devices, "triton_obstacle", lambda _device: "no compiler")
    backend, why = choose_backend("auto", CUDA)
    assert backend == "paged_reference"
    assert why == (
        "no compiler; plain torch operations compute instead, which is several times slower"
    )
    assert choose_backend("auto", CPU) == ("paged_reference", "no compiler")
    with pytest.raises(DeviceError, match="paged_triton cannot run here: no compiler"):
        choose_backend("paged_triton", CUDA)


def test_in_float64_plain_operations_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels do not compile for it."""
    monkeypatch.setattr(devices, "triton_obstacle", lambda _device: "")
    backend, why = choose_backend("auto", CUDA, torch.float64)
    assert backend == "paged_reference"
    assert why.startswith("Triton's kernels compute in 32 bits at most")
    with pytest.raises(DeviceError, match="32 bits at most"):
        choose_backend("paged_triton", CUDA, torch.float64)
    plain = operations_for(CUDA, torch.float64, deterministic=False, keep_expanded=False)
    assert type(plain) is ReferenceOps


# --- whether Triton can be used ---


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch):
    """``triton_obstacle`` of a GPU, with this in place of the kernel that it runs."""
    pytest.importorskip("triton")
    ones = torch.ones

    def run(kernel) -> str:
        # The probe's tensor lies on the CPU, so that it needs no GPU.
        monkeypatch.setattr(torch, "ones", lambda size, dtype, device: ones(size, dtype=dtype))
        monkeypatch.setattr("kernels.rms_norm.rms_norm", kernel)
        # What was found is kept for the life of the program.
        return triton_obstacle.__wrapped__(CUDA)

    return run


def raises(error: Exception):
    def kernel(*_: object) -> torch.Tensor:
        raise error

    return kernel


def test_a_kernel_that_computes_right_is_no_obstacle(probe) -> None:
    assert probe(lambda x, weight, eps: x * weight) == ""


def test_a_kernel_that_computes_wrongly_is_one(probe) -> None:
    assert probe(lambda x, weight, eps: 2 * x) == "Triton computes wrongly on this device"


def test_what_the_compiler_says_is_told_in_one_line(probe) -> None:
    told = probe(raises(RuntimeError("no gcc\nlook at the manual")))
    assert told == "Triton cannot compile for this device (no gcc)"
    assert "(ValueError)" in probe(raises(ValueError()))
    assert len(probe(raises(RuntimeError("x" * 5000)))) < 300


def test_triton_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert triton_obstacle.__wrapped__(CUDA) == "Triton is not installed"
    monkeypatch.setattr(triton_probe, "cuda_obstacle", lambda: "there is no NVIDIA driver")
    assert triton_obstacle.__wrapped__(CPU) == "there is no NVIDIA driver"
    monkeypatch.setattr(triton_probe, "cuda_obstacle", lambda: "")
    assert triton_obstacle.__wrapped__(CPU) == "the model runs on the CPU"


# --- an installation that is broken ---


def test_a_library_that_cannot_be_loaded_is_no_fault_of_the_code() -> None:
    error = unexpected(ImportError("libtorch_cpu.so: cannot open shared object file."))
    assert error.code == "broken_installation"
    assert error.message == (
        "A library of the engine cannot be loaded: libtorch_cpu.so: cannot open shared object file."
    )
    assert "install it again" in error.action
    on_windows = OSError("The specified module could not be found: c10.dll")
    assert unexpected(on_windows).code == "internal"
    on_windows.winerror = 126  # type: ignore[attr-defined]
    assert unexpected(on_windows).code == "broken_installation"
