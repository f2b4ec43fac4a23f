"""What is told when a GPU cannot be used, is full, or dies at an awkward moment."""

from __future__ import annotations

import ast
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch

from engine.api.commands import Configure, LoadModel
from engine.api.errors import DeviceError, unexpected
from engine.api.events import (
    Configured,
    EngineStatus,
    EngineStatusChanged,
    ModelLoaded,
    ModelLoadFailed,
)
from engine.api.params import EngineConfig
from engine.cuda_probe import card_obstacle
from engine.devices import choose_backend, resolve_device
from engine.limits import describe_failure, device_lost
from engine.model_loader import LoadedEngine, ModelLoader
from engine.triton_probe import look_again
from tests.helpers.talk import Talk
from tests.helpers.tiny_gguf import TinyGguf

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
DEAD = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be …"
FULL = "CUDA out of memory. Tried to allocate 2.00 MiB."


# --- a device that dies ---


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("first", [DEAD, "something else"])
def test_a_load_ends_although_what_it_had_cannot_be_given_back(
    first: str, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the device has died nothing that is asked of it succeeds."""

    def load(loader: ModelLoader) -> LoadedEngine:
        loader._uses_torch = True
        raise RuntimeError(first)

    def empty_cache() -> None:
        raise RuntimeError(DEAD)

    monkeypatch.setattr(ModelLoader, "_load", load)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    talk.send(LoadModel("", command_id="l"))
    assert talk.until(ModelLoadFailed, command_id="l").error.code == "device_lost"
    talk.until(EngineStatusChanged, status=EngineStatus.FAILED)


@pytest.mark.parametrize("end", ["", " (CUDA_ERROR_UNKNOWN)"])
def test_the_drivers_unknown_error_is_fatal_in_tritons_words_too(end: str) -> None:
    assert device_lost(RuntimeError(f"Triton Error [CUDA]: unknown error{end}")) is not None


# --- a file on which a library in Rust gives up ---

UNREADABLE = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    }
)


def test_a_load_ends_whatever_a_library_raises(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_loader: ModelLoader) -> object:
        return tokenizers.Tokenizer.from_str(UNREADABLE)

    monkeypatch.setattr(ModelLoader, "_load", load)
    talk.send(LoadModel("", command_id="l"))
    failed = talk.until(ModelLoadFailed, command_id="l").error
    assert failed.code == "model_file"
    assert "Cannot parse precompiled_charsmap" in failed.message


# --- a card that torch has no code for ---

NEWEST = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch):
    """One card of this compute capability under a torch that is built for these."""

    def install(capability: tuple[int, int], built_for: list[str]) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _index: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built_for)

    look_again()
    yield install
    look_again()


def test_a_card_without_code_is_not_chosen_and_told(card) -> None:
    card((6, 1), NEWEST)
    assert resolve_device("auto") == CPU
    why = (
        "this torch has no code for the GPU: its compute capability is 6.1, the code is for 7.5, "
        "8.0, 8.6, 9.0, 10.0, 12.0"
    )
    assert choose_backend("auto", CPU) == ("paged_reference", why)
    with pytest.raises(DeviceError, match=r"'cuda' was asked for, but this torch has no code"):
        resolve_device("cuda")


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((7, 5), NEWEST, True),
        ((8, 9), NEWEST, True),
        ((9, 0), NEWEST, True),
        ((10, 3), NEWEST, True),
        ((12, 1), NEWEST, True),
        ((13, 0), NEWEST, True),
        ((7, 0), NEWEST, False),
        ((12, 0), ["sm_80", "sm_90"], False),
        ((12, 0), ["sm_80", "sm_90", "compute_90"], True),
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100f"], True),
        ((12, 1), ["sm_120a"], False),
        ((8, 0), ["sm_86"], False),
        ((9, 0), [], True),
        ((9, 4), ["gfx942"], True),
    ],
)
def test_which_code_runs_on_which_card(card, capability, built_for, runs: bool) -> None:
    card(capability, built_for)
    assert (card_obstacle(0) == "") is runs


def test_who_chose_the_cpu_does_not_start_the_driver(card, monkeypatch) -> None:
    card((6, 1), NEWEST)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert choose_backend("auto", CPU)[1] == "the model runs on the CPU"


def test_the_first_operation_on_an_unknown_card_is_told_as_the_cards() -> None:
    text = "CUDA error: no kernel image is available for execution on the device\nCompile with …"
    error = unexpected(RuntimeError(text))
    assert error.code == "device"
    assert error.message == f"The GPU cannot be used: {text.splitlines()[0]}"


# --- Triton ---


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch):
    """The probe's kernel raises these errors, one a call, then runs."""
    pytest.importorskip("triton")
    ones = torch.ones

    def install(*errors: Exception) -> None:
        left = itertools.chain(errors, itertools.repeat(None))

        def kernel(x: torch.Tensor, _weight: torch.Tensor, _epsilon: float) -> torch.Tensor:
            error = next(left)
            if error is not None:
                raise error
            return x

        monkeypatch.setattr(torch, "ones", lambda size, dtype, device: ones(size, dtype=dtype))
        monkeypatch.setattr("kernels.rms_norm.rms_norm", kernel)

    look_again()
    yield install
    look_again()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(FULL), RuntimeError(DEAD)])
def test_a_full_card_is_not_taken_for_one_that_triton_does_not_know(probe, error) -> None:
    probe(error)
    with pytest.raises(RuntimeError, match="memory"):
        choose_backend("auto", CUDA)
    assert choose_backend("auto", CUDA)[0] == "paged_triton"


def test_what_stood_in_tritons_way_may_be_gone_at_the_next_load(probe) -> None:
    probe(OSError("No space left on device"))
    # Within a load the answer stays: all of the engine is built on it.
    assert [choose_backend("auto", CUDA)[0] for _ in range(2)] == ["paged_reference"] * 2
    look_again()
    assert choose_backend("auto", CUDA)[0] == "paged_triton"


def test_a_load_looks_again(tmp_path: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr("engine.engine_builder.look_again", lambda: looked.append(1))
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(device="cpu", dtype="float32", num_blocks=64)
    talk.send(LoadModel(str(tmp_path), str(path), config=config))
    talk.until(ModelLoaded, timeout_s=60.0)
    talk.send(Configure(replace(config, backend="contiguous"), command_id="c"))
    talk.until(Configured, command_id="c")
    assert len(looked) == 2


def test_a_kernel_that_does_not_compile_at_its_first_launch_is_told_without_its_source() -> None:
    errors = pytest.importorskip("triton.compiler.errors")
    from triton.runtime import errors as runtime_errors

    def thrown(error: Exception) -> Exception:
        # Errors come out of Triton's own files.
        code = compile("raise error", "/lib/triton/runtime/jit.py", "exec")
        try:
            exec(code, {"error": error})
        except Exception as caught:
            return caught
        raise AssertionError

    source = "def kernel(x):\n    tl.dot(x, x)"
    node = ast.parse(source).body[0]
    dot = thrown(errors.CompilationError(source, node, "fp16 products need sm_80"))
    told = unexpected(dot)
    assert told.code == describe_failure(dot).code == "device"
    assert told.message == (
        "Triton cannot run a kernel on this GPU (CompilationError: fp16 products need sm_80)."
    )
    shared = unexpected(thrown(runtime_errors.OutOfResources(131072, 101376, "shared memory")))
    assert "Required: 131072, Hardware limit: 101376" in shared.message
    passes = unexpected(thrown(RuntimeError("PassManager::run failed")))
    assert "RuntimeError: PassManager::run failed" in passes.message
