"""Memory that cannot be had is told as that wherever it happens, and costs as little as it can."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import engine_builder, kv_cache
from engine.api.commands import CompareBackends, Configure, LoadModel, UnloadModel
from engine.api.errors import OutOfMemoryError, is_out_of_memory, unexpected
from engine.api.events import (
    CommandFailed,
    Configured,
    FinishReason,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    RequestFinished,
)
from engine.api.params import ChatMessage, EngineConfig
from engine.attention.base import AttentionBackend
from engine.engine_builder import build_engine
from engine.limits import describe_failure, device_lost
from engine.model_commands import ModelCommands
from engine.model_loader import LoadedEngine, ModelLoader
from engine.models.weights import Weights
from engine.parity_steps import Side
from engine.pool_sizing import allocate_shrinking
from engine.slices import Pause, in_slices
from tests.helpers.fake_loaded import fake_engine
from tests.helpers.talk import Talk, submit
from tests.helpers.tiny_gguf import TinyGguf

FULL = "CUDA out of memory. Tried to allocate 2.00 MiB."
ADVICE = " If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=…"
TORCH_ON_THE_CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 9 bytes. Error code 12 (Cannot allocate memory)"
)
TORCH_ON_WINDOWS = "DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."
CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


# --- memory that cannot be had ---


@pytest.mark.parametrize("text", [FULL, TORCH_ON_THE_CPU, TORCH_ON_WINDOWS, CUBLAS])
def test_memory_that_ran_out_is_known_by_torchs_words(text: str) -> None:
    error = RuntimeError(text)
    assert is_out_of_memory(error)
    assert unexpected(error).code == describe_failure(error).code == OutOfMemoryError.code
    assert device_lost(error) is None


def test_torch_uses_these_words() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 55, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_a_pool_becomes_smaller_whoever_says_that_memory_ran_out() -> None:
    def make(num_blocks: int) -> AttentionBackend:
        if num_blocks == 100:
            raise RuntimeError(TORCH_ON_THE_CPU)
        return object()  # type: ignore[return-value]

    assert allocate_shrinking(100, make)[1] == 90

    def broken(num_blocks: int) -> AttentionBackend:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        allocate_shrinking(100, broken)


def test_out_of_memory_in_a_load_and_in_a_change_of_backend_is_no_fault_of_the_program(
    talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_rest: object) -> torch.Tensor:
        raise torch.OutOfMemoryError(FULL + ADVICE)

    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(device="cpu", dtype="float32", num_blocks=64, backend="dense")
    with monkeypatch.context() as patch:
        patch.setattr(Weights, "_copied", full)
        talk.send(LoadModel(str(tmp_path), str(path), config=config, command_id="full"))
        failed = talk.until(ModelLoadFailed, timeout_s=60.0, command_id="full").error
    assert (failed.code, failed.action) == ("out_of_memory", OutOfMemoryError.action)
    assert failed.message == f"Memory ran out while loading: {FULL}"
    talk.send(LoadModel(str(tmp_path), str(path), config=config, command_id="again"))
    talk.until(ModelLoaded, timeout_s=60.0, command_id="again")
    paged = replace(config, backend="paged_reference")
    with monkeypatch.context() as patch:
        patch.setattr(kv_cache, "_zeros", full)
        talk.send(Configure(paged, command_id="full"))
        assert talk.until(CommandFailed, command_id="full").error.code == "out_of_memory"
    talk.send(Configure(paged, command_id="again"))
    talk.until(Configured, command_id="again")
    talk.send(submit("a", max_tokens=3))
    assert talk.until(RequestFinished, request_id="a").reason is FinishReason.LENGTH


def test_a_card_that_is_full_is_told_with_the_models_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with those of the first tensor that Triton is tried with."""

    def probe(*_rest: object) -> tuple[str, str]:
        raise torch.OutOfMemoryError(FULL)

    path = TinyGguf().write(tmp_path / "tiny.gguf")
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(engine_builder, "resolve_device", lambda _name: gpu)
    monkeypatch.setattr(engine_builder, "choose_backend", probe)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (0, 8 << 30))
    config = EngineConfig(dtype="float16", weights="expanded")
    with pytest.raises(OutOfMemoryError, match=r"need 2 MiB, .* only 0 MiB .* 1,000 tokens"):
        build_engine(path, tmp_path, config, lambda *_rest: None, lambda: False)


# --- questions to the inspector ---


def test_memory_that_a_question_holds_costs_no_answer(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []

    class Inspector:
        def compare_slices(self, *_rest: object, **_more: object) -> Iterator[float]:
            held.append("much")
            try:
                while True:
                    yield 0.1
            finally:
                held.clear()

    def load(_loader: ModelLoader) -> LoadedEngine:
        engine = fake_engine(token_budget=64)
        engine.inspector = Inspector()  # type: ignore[assignment]
        runner = engine.core._runner
        runner.breaks = lambda _output: MemoryError("planted") if held else None  # type: ignore[attr-defined]
        return engine

    monkeypatch.setattr(ModelLoader, "_load", load)
    talk.send(LoadModel(""))
    talk.until(ModelLoaded)
    asked = (ChatMessage("user", "abc"),)
    talk.send(CompareBackends("c", asked, "paged_reference", command_id="q"))
    deadline = time.monotonic() + 10.0
    while not held and time.monotonic() < deadline:
        time.sleep(0.002)
    talk.send(submit("a", max_tokens=5), submit("b", max_tokens=5))
    for name in "ab":
        assert talk.until(RequestFinished, request_id=name).reason is FinishReason.LENGTH
    failed = talk.until(CommandFailed, command_id="q").error
    assert (failed.code, failed.action) == ("interrupted", "Ask again when fewer run.")


@pytest.mark.parametrize("end", ["closed", "failed", "done"])
def test_sliced_work_leaves_nothing_in_memory(end: str, no_cycles_found: None) -> None:
    class Tensor:
        """Large, on a GPU."""

    seen: list[weakref.ref[Tensor]] = []

    def work(pause: Pause) -> None:
        tensor = Tensor()
        seen.append(weakref.ref(tensor))
        pause()
        if end == "failed":
            raise RuntimeError(FULL)

    slices = in_slices(work)
    next(slices)
    if end != "closed":
        with suppress(RuntimeError, StopIteration):
            next(slices)
    slices.close()
    del slices
    assert [each() for each in seen] == [None]


def test_a_model_that_is_inspected_goes_at_once(
    talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_cycles_found: None
) -> None:
    """The next one needs the room, and the window looks for reference cycles seldom."""
    alive: list[bool] = []
    runners: list[weakref.ref[object]] = []
    install = ModelCommands._install
    attend = Side.__call__
    begun = threading.Event()

    def noting(self: ModelCommands, engine: LoadedEngine, command_id: str) -> None:
        install(self, engine, command_id)
        runners.append(weakref.ref(engine.core._runner))

    def slowly(self: Side, *rest: Any) -> torch.Tensor:
        begun.set()
        time.sleep(0.1)
        return attend(self, *rest)

    monkeypatch.setattr(ModelCommands, "_install", noting)
    monkeypatch.setattr(Side, "__call__", slowly)
    monkeypatch.setattr(
        "engine.model_commands.give_back",
        lambda: alive.extend(runner() is not None for runner in runners),
    )
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(device="cpu", dtype="float32", num_blocks=64)
    talk.send(LoadModel(str(tmp_path), str(path), config=config))
    talk.until(ModelLoaded, timeout_s=60.0)
    asked = (ChatMessage("user", "of pages and of blocks"),)
    talk.send(CompareBackends("c", asked, "paged_reference", command_id="q"))
    assert begun.wait(10.0)
    talk.send(UnloadModel())
    talk.until(ModelUnloaded)
    assert talk.until(CommandFailed, command_id="q").error.code == "no_model"
    assert alive == [False]
