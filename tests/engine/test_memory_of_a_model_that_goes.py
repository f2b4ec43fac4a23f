"""A model that goes gives its memory back at once, also where nobody looks for reference cycles.

The window does that seldom and later, and on a GPU the next model needs the room.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from pathlib import Path

import pytest
import torch

from engine.api.commands import LoadModel, UnloadModel
from engine.api.errors import ErrorInfo, ModelFileError
from engine.api.events import (
    ModelLoaded,
    ModelLoading,
    ModelUnloaded,
    RequestFinished,
    TokensGenerated,
)
from engine.api.params import EngineConfig
from engine.engine_builder import build_engine
from engine.model_commands import ModelCommands
from engine.model_loader import LoadedEngine, LoadOutcome, ModelLoader
from engine.model_runner import ModelRunner
from tests.helpers.talk import submit, talk_with_engine
from tests.helpers.tiny_gguf import TinyGguf

ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_weights_and_pool_are_free_before_the_devices_memory_is_given_back(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_cycles_found: None
) -> None:
    parts: dict[str, weakref.ref[object]] = {}
    alive: list[list[str]] = []
    install = ModelCommands._install

    def noting(self: ModelCommands, engine: LoadedEngine, command_id: str) -> None:
        install(self, engine, command_id)
        core = engine.core
        runner = core._runner
        assert isinstance(runner, ModelRunner)
        assert runner.attention.cache is not None
        objects = {"core": core, "runner": runner, "pool": runner.attention.cache.k[0]}
        parts.update({name: weakref.ref(part) for name, part in objects.items()})

    monkeypatch.setattr(ModelCommands, "_install", noting)
    monkeypatch.setattr(
        "engine.model_commands.give_back",
        lambda: alive.append([name for name, part in parts.items() if part() is not None]),
    )
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(device=device, dtype="float32", num_blocks=64)
    with talk_with_engine() as talk:
        talk.send(LoadModel(str(tmp_path), str(path), config=config))
        talk.until(ModelLoaded, timeout_s=60.0)
        talk.send(submit("done", max_tokens=3), submit("runs", max_tokens=400))
        # A GPU's kernels are compiled for it if nobody has used them yet.
        talk.until(RequestFinished, timeout_s=60.0, request_id="done")
        talk.until(TokensGenerated, request_id="runs")
        talk.send(UnloadModel())
        talk.until(ModelUnloaded)
    assert set(parts) == {"core", "runner", "pool"}
    assert alive == [[]]


def test_what_torch_keeps_is_given_back_where_a_gpu_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from engine.held_memory import give_back

    calls: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(1))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    give_back()
    assert calls == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    give_back()
    assert calls == [1]


def load_of(folder: Path) -> LoadModel:
    path = TinyGguf().write(folder / "tiny.gguf")
    config = EngineConfig(device="cpu", dtype="float32", num_blocks=64)
    return LoadModel(str(folder), str(path), config=config)


def runner_of(engine: LoadedEngine) -> weakref.ref[object]:
    assert isinstance(engine.core._runner, ModelRunner)
    return weakref.ref(engine.core._runner)


def test_a_model_that_was_ready_goes_with_the_load_that_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_cycles_found: None
) -> None:
    runners: list[weakref.ref[object]] = []
    alive: list[bool] = []
    put = ModelLoader._put

    def unloading(self: ModelLoader, outcome: LoadOutcome) -> None:
        if isinstance(outcome, LoadedEngine):
            runners.append(runner_of(outcome))
            self.outcomes.append(outcome)
            # It finds the model ready, and nobody has taken it yet.
            talk.send(UnloadModel())
            self._changed()
        else:
            put(self, outcome)

    monkeypatch.setattr(ModelLoader, "_put", unloading)
    monkeypatch.setattr("engine.model_commands._FAREWELL_S", 60.0)
    monkeypatch.setattr(
        "engine.model_commands.give_back",
        lambda: alive.append(any(runner() is not None for runner in runners)),
    )
    with talk_with_engine() as talk:
        talk.send(load_of(tmp_path))
        talk.until(ModelUnloaded, timeout_s=60.0)
        assert alive == [False]


def test_a_load_that_is_cancelled_as_it_ends_keeps_no_model(tmp_path: Path) -> None:
    class LateDeque(deque[LoadOutcome]):
        """The cancellation comes after the look whether there is one, before the model."""

        def append(self, outcome: LoadOutcome) -> None:
            if isinstance(outcome, LoadedEngine):
                made.append(outcome.info.name)
                loader.cancel()
            super().append(outcome)

    made: list[str] = []
    begin = threading.Event()

    class Held(ModelLoader):
        def _load(self) -> LoadedEngine:
            assert begin.wait(60.0)
            return super()._load()

    loader = Held(load_of(tmp_path), lambda: None)
    loader.outcomes = LateDeque()
    begin.set()
    assert loader.join(60.0)
    assert len(made) == 1
    assert not loader.outcomes


@pytest.mark.parametrize("ends", ["well", "with an error", "cancelled"])
def test_a_load_that_comes_to_nothing_gives_back_what_it_had(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[weakref.ref[object]] = []
    alive: list[bool] = []
    build = build_engine

    def watched(*args: object) -> LoadedEngine:
        engine = build(*args)  # type: ignore[arg-type]
        runner = engine.core._runner
        assert isinstance(runner, ModelRunner)
        parts.append(weakref.ref(runner))
        if ends == "with an error":
            raise ModelFileError("broken")
        if ends == "cancelled":
            loader.cancel()
        return engine

    monkeypatch.setattr("engine.engine_builder.build_engine", watched)
    monkeypatch.setattr(
        "engine.model_loader.give_back",
        lambda: alive.append(any(part() is not None for part in parts)),
    )
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = EngineConfig(device="cpu", dtype="float32", num_blocks=64)
    loader = ModelLoader(LoadModel(str(tmp_path), str(path), config=config), lambda: None)
    assert loader.join(60.0)
    assert len(parts) == 1
    assert alive == ([] if ends == "well" else [False])
    kinds = [type(outcome) for outcome in loader.outcomes if type(outcome) is not ModelLoading]
    assert kinds == {"well": [LoadedEngine], "with an error": [ErrorInfo], "cancelled": []}[ends]
