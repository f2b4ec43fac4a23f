"""On a GPU, kernels that are launched from Python compute what they do if Triton launches them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402 - only where Triton is

from engine.triton_launcher import (  # noqa: E402
    LIBRARY,
    Driver,
    KernelLauncher,
    use_python_launchers,
)
from kernels import rms_norm as norm  # noqa: E402
from kernels.dependent_launch import can_pdl  # noqa: E402

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")
BLOCK = 256


@triton.jit
def _echo_kernel(
    whole_ptr, real_ptr, nothing_ptr, small, large, huge, flag, ratio, NOTHING: tl.constexpr
):
    """Stores what it is given."""
    if NOTHING == 0:
        tl.store(whole_ptr, small)
        tl.store(whole_ptr + 1, large)
        tl.store(whole_ptr + 2, huge.to(tl.int64))
        tl.store(whole_ptr + 3, flag.to(tl.int64))
        tl.store(real_ptr, ratio)


@triton.jit
def _double_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(x_ptr + place) * 2)


KERNELS = (_echo_kernel, _double_kernel, norm._rms_norm_kernel)


def forget_compiled() -> None:
    """Each kernel makes its launcher anew; what is compiled comes from Triton's cache."""
    for kernel in KERNELS:
        kernel.device_caches.clear()


@pytest.fixture
def through_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """Call it, and kernels are launched from Python until the test ends.

    Returns a list that gets an entry with each launch.
    """
    from triton.backends.nvidia import driver

    if not hasattr(driver, "make_launcher"):
        pytest.skip("this version of Triton compiles no launchers")
    # For their return at the end.
    for name in ("make_launcher", "compile_module_from_src"):
        monkeypatch.setattr(driver, name, getattr(driver, name))
    launched: list[str] = []
    launch = KernelLauncher.launch

    def counted(launcher: KernelLauncher, *arguments: Any) -> None:
        launch(launcher, *arguments)
        launched.append("once")

    def switch() -> list[str]:
        monkeypatch.setattr(KernelLauncher, "launch", counted)
        use_python_launchers(driver)
        forget_compiled()
        return launched

    forget_compiled()
    yield switch
    forget_compiled()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pdl", [False, True])
def test_rms_norm_is_the_same(
    through_python: Callable[[], list[str]], dtype: torch.dtype, pdl: bool
) -> None:
    if pdl and not can_pdl(torch.device("cuda", torch.cuda.current_device())):
        pytest.skip("needs a GPU of compute capability 9.0")
    x, weight = torch.randn((7, 576), device=DEVICE), torch.randn(576, device=DEVICE)
    x, weight = x.to(dtype), weight.to(dtype)
    residual = torch.randn_like(x)
    expected = norm.rms_norm(x, weight, 1e-5, pdl=pdl)
    expected_sums = norm.add_rms_norm(x, residual, weight, 1e-5, pdl=pdl)
    launched = through_python()
    found = norm.rms_norm(x, weight, 1e-5, pdl=pdl)
    sums = norm.add_rms_norm(x, residual, weight, 1e-5, pdl=pdl)
    assert len(launched) == 2
    assert expected.abs().max() > 0.1
    assert torch.equal(found, expected)
    assert all(map(torch.equal, sums, expected_sums))


def echoed() -> tuple[Tensor, Tensor]:
    whole = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    real = torch.zeros(1, dtype=torch.float32, device=DEVICE)
    _echo_kernel[(1,)](whole, real, None, -3, 2**40 + 1, 2**63 + 5, True, 0.1, NOTHING=0)
    return whole.cpu(), real.cpu()


def test_arguments_of_each_type_arrive(through_python: Callable[[], list[str]]) -> None:
    of_triton = echoed()
    launched = through_python()
    whole, real = echoed()
    assert len(launched) == 1
    assert whole.tolist() == [-3, 2**40 + 1, 5 - 2**63, 1]
    assert torch.equal(real, torch.tensor([0.1]))
    assert all(map(torch.equal, (whole, real), of_triton))


def test_a_launch_becomes_part_of_a_graph(through_python: Callable[[], list[str]]) -> None:
    launched = through_python()
    x, weight = torch.randn((3, 576), device=DEVICE), torch.randn(576, device=DEVICE)
    norm.rms_norm(x, weight, 1e-5)  # Loaded before: that is no part of a graph.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = norm.rms_norm(x, weight, 1e-5)
    assert len(launched) == 2
    x.copy_(torch.randn((3, 576)))
    graph.replay()
    torch.cuda.synchronize()
    assert len(launched) == 2
    assert torch.equal(out, norm.rms_norm(x, weight, 1e-5))


def test_clusters(through_python: Callable[[], list[str]]) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs a GPU of compute capability 9.0")
    launched = through_python()
    x = torch.randn(3 * BLOCK, device=DEVICE)
    out = torch.zeros_like(x)
    _double_kernel[(3,)](x, out, BLOCK=BLOCK, num_ctas=2)
    assert len(launched) == 1
    assert torch.equal(out, 2 * x)


def doubling() -> tuple[Tensor, Tensor, Callable[..., None]]:
    """A tensor, one for its double, and what launches that, whatever the version of Triton is.

    It takes bytes of shared memory, and the tensors.
    """
    x = torch.randn(2 * BLOCK, device=DEVICE)
    out = torch.zeros_like(x)
    compiled = _double_kernel[(2,)](x, out, BLOCK=BLOCK)
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * x)
    out.zero_()
    launcher = KernelLauncher(list(compiled.src.signature.values()), Driver(LIBRARY))

    def launch(shared: int, source: Tensor, target: Tensor) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        metadata = (compiled.metadata.num_warps, compiled.metadata.num_ctas, shared)
        options = (False, False, None, None, metadata, None, None, None)
        launcher.launch(2, 1, 1, stream, compiled.function, *options, source, target, BLOCK)

    return x, out, launch


def test_a_new_thread_can_launch() -> None:
    x, out, launch = doubling()
    torch.cuda.synchronize()
    thread = threading.Thread(target=launch, args=(0, x, out))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * x)


def test_what_the_driver_refuses_is_told_and_the_device_stays() -> None:
    x, out, launch = doubling()
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: .*\(CUDA_ERROR_INVALID_VALUE"):
        launch(10_000_000, x, out)
    with pytest.raises(ValueError, match="on the CPU"):
        launch(0, x.cpu(), out)
    assert not out.any()
    launch(0, x, out)
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * x)
