"""Loads a model in a thread of its own, so that the engine thread goes on serving commands.

torch is first imported here. The result is everything the worker needs to serve requests.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.api.commands import LoadModel
from engine.api.errors import (
    EngineError,
    ErrorInfo,
    LoadCancelledError,
    StarterModelMissingError,
    is_out_of_memory,
    out_of_memory,
    unexpected,
)
from engine.api.events import ModelInfo, ModelLoading
from engine.held_memory import give_back
from engine.host_heap import trim_heap
from engine.limits import device_lost
from engine.loading.progress import Cancelled
from engine.torch_preload import import_torch

if TYPE_CHECKING:
    from engine.chat_encoder import ChatEncoder
    from engine.core import EngineCore
    from engine.parity import ParityInspector
    from engine.reconfigure import Reconfigurer
    from engine.tokenizer import Tokenizer


_PATIENCE_S = 60.0
"""With a load that was cancelled; one that hangs on a dead network drive must not hold up all."""


class TextSide(Protocol):
    """What encoding needs of an engine; it holds neither weights nor pool."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def encoder(self) -> ChatEncoder: ...
    @property
    def info(self) -> ModelInfo: ...


@dataclass(frozen=True, slots=True)
class _TextSide:
    tokenizer: Tokenizer
    encoder: ChatEncoder
    info: ModelInfo


@dataclass(slots=True)
class LoadedEngine:
    """A model that is ready to answer. ``block_bytes``: of one block's KV over all layers.

    ``inspector``: None where the core has no real model behind it. ``background_encoder``: another
    ``encoder`` of the same model, for another thread; None where one will do for both.
    ``reconfigurer``: None where nothing can be changed. ``prepare``: makes ready for something that
    will come up, while there is nothing to do; False when nothing is left. It leaves what it has
    begun when what it is given says that there is something to do.
    """

    core: EngineCore
    tokenizer: Tokenizer
    encoder: ChatEncoder
    info: ModelInfo
    block_bytes: int
    load_s: float
    inspector: ParityInspector | None = None
    background_encoder: ChatEncoder | None = None
    reconfigurer: Reconfigurer | None = None
    prepare: Callable[[Cancelled], bool] | None = None

    def text_beside(self) -> TextSide:
        """The text side for a thread beside the engine's. A tokenizer serves both threads."""
        return _TextSide(self.tokenizer, self.background_encoder or self.encoder, self.info)


LoadOutcome = ModelLoading | LoadedEngine | ErrorInfo


class ModelLoader:
    """One load in progress. ``outcomes`` fills with progress and ends with an engine or an error.

    ``changed`` is called from the loader's thread after each addition. ``before``: a load that was
    cancelled; this one begins when that has ended, so that there are never two models in memory.
    """

    def __init__(
        self,
        command: LoadModel,
        changed: Callable[[], None],
        before: ModelLoader | None = None,
    ) -> None:
        self.command = command
        self._before = before
        self.outcomes: deque[LoadOutcome] = deque()
        self._changed = changed
        self._cancelled = threading.Event()
        self._uses_torch = False
        self._thread = threading.Thread(target=self._run, name="quire-loader", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Asks the load to stop, which it does within a fraction of a second as a rule; its outcome
        is dropped.
        """
        self._cancelled.set()
        # A model that is ready must not stay for as long as this is kept.
        self.outcomes.clear()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread, and for loads before it; False if it is still alive."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _put(self, outcome: LoadOutcome) -> None:
        if not self._cancelled.is_set():
            self.outcomes.append(outcome)
            if self._cancelled.is_set():
                # Between the look and the append.
                self.outcomes.clear()
            self._changed()

    def _progress(self, stage: str, fraction: float, detail: str) -> None:
        if self._cancelled.is_set():
            raise LoadCancelledError("Loading was stopped.")
        self._put(ModelLoading(stage, fraction, detail, self.command.command_id))

    def _run(self) -> None:
        outcome = self._outcome()
        if self._cancelled.is_set():
            outcome = None
        if self._uses_torch and not isinstance(outcome, LoadedEngine):
            # torch would keep what was to be had of a GPU.
            try:
                give_back()
            except Exception as error:
                # So it is with a device that died, and the outcome has to be told all the same.
                if outcome is not None and device_lost(error) is not None:
                    outcome = _failure(error).info()
        # Last: whoever takes the engine may let it go at once, and then nothing here holds it.
        if outcome is not None:
            self._put(outcome)

    def _outcome(self) -> LoadedEngine | ErrorInfo | None:
        """What the load comes to; None if it was stopped."""
        try:
            self._wait_for_the_one_before()
            started = time.perf_counter()
            loaded = self._load()
            loaded.load_s = time.perf_counter() - started
            return loaded
        except LoadCancelledError:
            # Nobody waits for the outcome any more.
            return None
        except EngineError as error:
            return error.info()
        except BaseException as error:
            # Whatever it is: without an outcome the load would never end.
            return _failure(error).info()
        finally:
            # What reading took for a time; of a load that failed, everything.
            trim_heap()

    def _wait_for_the_one_before(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            # Also if this one is cancelled meanwhile: the next one waits for this.
            before.join(_PATIENCE_S)
        if self._cancelled.is_set():
            raise LoadCancelledError("Loading was stopped.")

    def _load(self) -> LoadedEngine:
        # Imported here and not above: torch takes a second, and the window is already open.
        import_torch(self.command.config.device)
        from engine.engine_builder import build_engine

        self._uses_torch = True
        path = self._find_model()
        return build_engine(
            path,
            Path(self.command.models_dir),
            self.command.config,
            self._progress,
            self._cancelled.is_set,
        )

    def _find_model(self) -> Path:
        if self.command.path:
            return Path(self.command.path)
        from engine.loading import starter_model

        models_dir = Path(self.command.models_dir)
        if starter_model.is_present(models_dir):
            return starter_model.starter_path(models_dir)
        if not (self.command.fetch_starter or starter_model.is_bundled()):
            raise StarterModelMissingError(
                f"The starter model is not in {models_dir}.", models_dir=str(models_dir)
            )
        return starter_model.fetch(models_dir, self._progress, self._cancelled.is_set)


def _failure(error: BaseException) -> EngineError:
    """What the exception that ended a load is told as."""
    lost = device_lost(error)
    if lost is not None:
        return lost
    if is_out_of_memory(error):
        return out_of_memory(error, " while loading")
    return unexpected(error)
