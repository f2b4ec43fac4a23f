"""Commands about the model: loading it, changing its settings, letting it go."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from engine.api.client import QueueClient
from engine.api.commands import Command, Configure, LoadModel, UnloadModel
from engine.api.errors import (
    DeviceLostError,
    ErrorInfo,
    InterruptedQueryError,
    LoadCancelledError,
    NoModelError,
    NotSupportedYetError,
)
from engine.api.events import (
    EngineStatus,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
)
from engine.held_memory import give_back
from engine.inspections import Inspections
from engine.model_loader import LoadedEngine, ModelLoader
from engine.publisher import Publisher
from engine.questions import Questions
from engine.request_commands import Handler, RequestCommands
from engine.roster import Roster
from engine.slot import Slot
from engine.snapshotter import Snapshotter
from engine.standing import Standing
from engine.submissions import Submissions

_FAREWELL_S = 1.0
"""At most, with a loader that has told its outcome."""


class ModelCommands:
    """``handlers``: what serves each kind of command. ``wake`` is called from the loader's thread
    whenever it has something to tell.
    """

    def __init__(
        self,
        slot: Slot,
        standing: Standing,
        roster: Roster,
        publisher: Publisher,
        submissions: Submissions,
        requests: RequestCommands,
        questions: Questions,
        inspections: Inspections,
        wake: Callable[[], None],
    ) -> None:
        self._slot = slot
        self._standing = standing
        self._roster = roster
        self._publisher = publisher
        self._submissions = submissions
        self._requests = requests
        self._questions = questions
        self._inspections = inspections
        self._wake = wake
        self._ending: ModelLoader | None = None
        """A load that was stopped, until the next one waits for its end."""
        self.handlers: dict[type[Command], Handler] = {
            LoadModel: self._load_model,
            UnloadModel: self._unload_model,
            Configure: self._configure,
        }

    def _load_model(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, LoadModel)
        self.stop_loader()
        self.drop_engine()
        if "torch" in sys.modules:
            # What an engine that died has left behind sits in reference cycles.
            _collect()
        self._standing.change(EngineStatus.LOADING)
        self._slot.loader = ModelLoader(command, self._wake, self._ending)
        self._ending = None

    def _unload_model(self, client: QueueClient, command: Command) -> None:
        self.stop_loader()
        self._submissions.cancel_held()
        self.drop_engine()
        self._standing.change(EngineStatus.NO_MODEL)
        self._roster.tell_all(ModelUnloaded(command.command_id))

    def _configure(self, client: QueueClient, command: Command) -> None:
        assert isinstance(command, Configure)
        engine = self._slot.loaded()
        if engine.reconfigurer is None:
            raise NotSupportedYetError(f"{engine.info.backend} has no settings to change.")
        self._inspections.drop(InterruptedQueryError("The engine's settings have changed.").info())
        configured = engine.reconfigurer.configure(command.config, command.command_id)
        engine.info = configured.model
        self._slot.ready = False
        self._submissions.post(engine.core.take_events())
        self._roster.tell_all(configured)

    def take_load_outcomes(self) -> None:
        """What the loader has to tell: progress, or the model, or why there is none."""
        loader = self._slot.loader
        while loader is not None and loader.outcomes:
            outcome = loader.outcomes.popleft()
            if isinstance(outcome, ModelLoading):
                self._roster.tell_all(outcome)
                continue
            self._slot.loader = None
            # Its thread has ended but for a few instructions, in which it holds the engine too.
            loader.join(_FAREWELL_S)
            if isinstance(outcome, LoadedEngine):
                self._install(outcome, loader.command.command_id)
            else:
                self._load_failed(loader.command.command_id, outcome)
            return

    def _install(self, engine: LoadedEngine, command_id: str) -> None:
        slot = self._slot
        slot.engine, slot.ready = engine, False
        slot.snapshotter = Snapshotter(engine.core, engine.block_bytes)
        engine.core.scheduler.focus = slot.focus
        now = time.perf_counter()
        self._publisher.attach(engine.core.log, slot.snapshotter, now)
        self._standing.change(EngineStatus.READY)
        self._roster.tell_all(ModelLoaded(command_id, engine.info, engine.load_s))
        self._publisher.stats(self._roster.clients, now, force=True)
        self._submissions.release_held(engine)

    def _load_failed(self, command_id: str, error: ErrorInfo) -> None:
        self._standing.change(EngineStatus.NO_MODEL)
        self._submissions.refuse_held(error)
        self._roster.tell_all(ModelLoadFailed(command_id, error))
        if error.code == DeviceLostError.code:
            raise DeviceLostError(error.message)

    def stop_loader(self) -> None:
        """Ends a load in progress; nothing happens without one."""
        loader, self._slot.loader = self._slot.loader, None
        if loader is not None:
            is_ready = loader.outcomes and isinstance(loader.outcomes[-1], LoadedEngine)
            loader.cancel()
            self._ending = loader
            if is_ready:
                # The model goes as one that was in use does.
                loader.join(_FAREWELL_S)
                _collect()
                give_back()
            error = LoadCancelledError("Loading was stopped.").info()
            self._roster.tell_all(ModelLoadFailed(loader.command.command_id, error))

    def join_loader(self, timeout_s: float) -> bool:
        """Waits for the end of loads that were stopped; False if that takes longer."""
        return self._ending is None or self._ending.join(timeout_s)

    def drop_engine(self) -> None:
        """Ends what runs and lets the model go; nothing happens without one."""
        if self._slot.engine is None:
            return
        self._submissions.cancel_all(self._slot.engine)
        self._questions.drop(NoModelError("The model was unloaded.").info())
        self._requests.forget_pins()
        self._publisher.detach()
        self._slot.engine = self._slot.snapshotter = None
        # Weights and pool are large and may sit in reference cycles.
        _collect()
        give_back()


def _collect() -> None:
    """Looks for reference cycles, unless whoever runs the engine does so itself.

    A program with a window does: objects of the window must not be taken apart in this thread.
    """
    if gc.isenabled():
        gc.collect()
