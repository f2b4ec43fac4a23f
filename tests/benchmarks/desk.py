"""The engine thread behind its client, as the window has it: commands in, events out with the
moment at which they reached the client."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest import mock

from app.switch_interval import SWITCH_S
from engine.api.client import start_engine
from engine.api.commands import Command, CountTokens, LoadModel
from engine.api.events import (
    CommandFailed,
    EngineStats,
    EngineStatus,
    EngineStatusChanged,
    Event,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    TokensCounted,
)
from engine.api.params import EngineConfig
from engine.model_loader import LoadedEngine, ModelLoader
from tests.benchmarks import engines
from tests.benchmarks.options import RANDOM, Options, model_path, models_dir

_LOAD_TIMEOUT_S = 600.0
_REPLY_TIMEOUT_S = 60.0


class Desk:
    """A loaded engine in its thread. ``peak_used_blocks`` is seen twice a second.

    Raises:
        RuntimeError: a command failed, or the engine thread ended.
    """

    def __init__(self, load: LoadModel, build: Callable[[], LoadedEngine] | None = None) -> None:
        self.peak_used_blocks = 0
        self._switch_s = sys.getswitchinterval()
        self._woken = threading.Event()
        self._client = start_engine()
        self._client.set_wakeup(self._woken.set)
        self.info = self._load(load, build)

    def __enter__(self) -> Self:
        # As in the application: else what has come is told only when the engine lets go of Python.
        sys.setswitchinterval(SWITCH_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.setswitchinterval(self._switch_s)
        gc.unfreeze()
        if not self._client.close(_REPLY_TIMEOUT_S) and error is None:
            raise RuntimeError("the engine thread did not end")

    def send(self, command: Command) -> None:
        self._client.send(command)

    def poll(self, timeout_s: float) -> tuple[float, list[Event]]:
        """Waits for events as an event loop does; returns when they came and what came."""
        self._woken.wait(max(timeout_s, 0.0))
        self._woken.clear()
        now = time.perf_counter()
        events = self._client.poll_events()
        for event in events:
            if isinstance(event, CommandFailed):
                raise RuntimeError(f"{event.command} failed: {event.error.message}")
            if isinstance(event, EngineStatusChanged) and event.status is EngineStatus.FAILED:
                raise RuntimeError(f"the engine failed: {event.error}")
            if isinstance(event, EngineStats):
                self.peak_used_blocks = max(self.peak_used_blocks, event.used_blocks)
        return now, events

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` as the content of a message; drops what else comes meanwhile."""
        self.send(CountTokens(text, command_id="count"))
        event = self._until(TokensCounted, _REPLY_TIMEOUT_S)
        assert isinstance(event, TokensCounted)
        return event.num_tokens

    def _load(self, load: LoadModel, build: Callable[[], LoadedEngine] | None) -> ModelInfo:
        if build is None:
            self.send(load)
            event = self._until(ModelLoaded, _LOAD_TIMEOUT_S)
        else:
            # Made in the loader's thread, as a real one; it has no files that could be loaded.
            with mock.patch.object(ModelLoader, "_load", side_effect=build):
                self.send(load)
                event = self._until(ModelLoaded, _LOAD_TIMEOUT_S)
        assert isinstance(event, ModelLoaded)
        # As the application does: what loading left is large, and a collection would walk it.
        gc.freeze()
        return event.model

    def _until(self, kind: type[Event], timeout_s: float) -> Event:
        deadline = time.perf_counter() + timeout_s
        while (left := deadline - time.perf_counter()) > 0.0:
            for event in self.poll(left)[1]:
                if isinstance(event, ModelLoadFailed):
                    raise RuntimeError(f"the model was not loaded: {event.error.message}")
                if isinstance(event, kind):
                    return event
        raise RuntimeError(f"no {kind.__name__} within {timeout_s:.0f} s")


def open_desk(options: Options, model: str, **settings: object) -> Desk:
    """The engine thread with a model: a path, ``random:NAME``, or empty for the starter model."""
    if model.startswith(RANDOM):

        def build() -> LoadedEngine:
            return engines.loaded(engines.open_bench(options, model, **settings))

        return Desk(LoadModel(models_dir="", path=model), build)
    config = EngineConfig.from_mapping(options.engine_settings(**settings))
    path = Path(model) if model else model_path(options)
    return Desk(LoadModel(str(models_dir(options)), str(path), config=config))
