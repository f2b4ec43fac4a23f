"""Loading models, letting them go, and what is known about the one that is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath

from app.bridge import Bridge
from app.conversation import new_id
from app.library.entry import STARTER_FILE
from app.library.load_errors import LoadErrors
from app.load_progress import LoadProgress
from app.session_signals import SessionSignals
from app.session_state import ModelState, ModelStatus, Notice, Severity
from engine.api.commands import LoadModel, UnloadModel
from engine.api.errors import DeviceLostError, ErrorInfo, LoadCancelledError
from engine.api.events import (
    Configured,
    EngineStatus,
    EngineStatusChanged,
    Event,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
)
from engine.api.params import EngineConfig

_LOG = logging.getLogger(__name__)
WENT_BACK = "model_went_back"


class ModelControl:
    """Keeps ``state`` and the ``path`` asked for last.

    Tells ``on_ready`` / ``on_unavailable`` when answers can or cannot be made. ``config_for`` gives
    the engine's settings for the model at a path.
    """

    def __init__(
        self,
        bridge: Bridge,
        config_for: Callable[[str], EngineConfig],
        models_dir: str,
        signals: SessionSignals,
        on_ready: Callable[[ModelInfo], None],
        on_unavailable: Callable[[ErrorInfo], None],
    ) -> None:
        self.state = ModelState()
        self._bridge = bridge
        self._config_for = config_for
        self._models_dir = models_dir
        self._signals = signals
        self._on_ready = on_ready
        self._on_unavailable = on_unavailable
        self._load_id = ""
        self._is_cancelled = False
        self._progress = LoadProgress()
        self._death: ErrorInfo | None = None
        self.path = ""
        self._last_info: ModelInfo | None = None
        self._before: str | None = None
        self.load_errors = LoadErrors()

    def load(self, path: str, fetch_starter: bool = False) -> None:
        """Asks for a model; an answer to an earlier ``load`` no longer counts.

        If it cannot be loaded, the model that was there is loaded again.
        """
        if self._death is not None:
            self._fail(self._death)
            return
        if self.state.status is ModelStatus.READY:
            self._before = self.path
        self._load_id = new_id()
        self._is_cancelled = False
        self._progress = LoadProgress()
        self.path = path
        self.load_errors.trying(path, Path(path or Path(self._models_dir) / STARTER_FILE))
        self._bridge.send(
            LoadModel(
                models_dir=self._models_dir,
                path=path,
                fetch_starter=fetch_starter,
                config=self._config_for(path),
                command_id=self._load_id,
            )
        )
        self._set(ModelState(ModelStatus.LOADING, path=path))

    def cancel(self) -> None:
        """Stops loading; the model that was there is loaded again."""
        if self.state.status is ModelStatus.LOADING:
            self._is_cancelled = True
            self._bridge.send(UnloadModel(command_id=new_id()))

    def unload(self) -> None:
        """Frees the memory of the model. The next message loads it again, or what was to follow."""
        if self.state.status is ModelStatus.READY:
            if self.state.next_path is not None:
                self.path = self.state.next_path
            self._bridge.send(UnloadModel(command_id=new_id()))
            self._let_go()

    def plan(self, path: str | None) -> None:
        """Which model is loaded when the running answers have ended; None: none, this one stays."""
        if self.state.status is ModelStatus.READY:
            self._set(replace(self.state, next_path=path))

    def handle(self, event: Event) -> bool:
        """Takes the events that concern the model; True if this was one."""
        match event:
            case ModelLoading(command_id=self._load_id):
                self._on_progress(event)
            case ModelLoading():
                # Of a load that was stopped; the next one begins at its own beginning.
                pass
            case ModelLoaded(command_id=self._load_id) if self._is_cancelled:
                # It was on its way when loading was stopped; the engine lets it go at once.
                self._on_load_failed(LoadCancelledError("Loading was stopped.").info())
            case ModelLoaded(command_id=self._load_id):
                self._on_loaded(event)
            case ModelLoadFailed(command_id=self._load_id):
                self._on_load_failed(event.error)
            case ModelLoaded() | ModelLoadFailed():
                _LOG.info("answer to a load that no longer counts: %s", type(event).__name__)
            case ModelUnloaded():
                if self.state.status is ModelStatus.READY:
                    self._let_go()
            case Configured():
                # Another attention backend is another fact of the model.
                if self.state.status is ModelStatus.READY:
                    self._last_info = event.model
                    self._set(replace(self.state, info=event.model))
            case EngineStatusChanged():
                self._on_engine_status(event)
            case _:
                return False
        return True

    def engine_died(self, error: ErrorInfo) -> None:
        """The engine thread ended by a fault; told from two sides, the first counts."""
        if self._death is None:
            self._death = error
            self._last_info = self._before = None
            self._fail(error)

    @property
    def is_dead(self) -> bool:
        """Whether the engine thread has ended by a fault."""
        return self._death is not None

    def revive(self) -> bool:
        """Starts a new engine, without a model. False if only a new process would help."""
        if self._death is not None and self._death.code == DeviceLostError.code:
            return False
        self._death = None
        self._bridge.restart()
        return True

    def _on_progress(self, event: ModelLoading) -> None:
        if self.state.status is ModelStatus.LOADING:
            self._progress.tell(event.stage, event.fraction)
            self._set(
                replace(
                    self.state,
                    stage=event.stage,
                    fraction=event.fraction,
                    detail=event.detail,
                    progress=self._progress.fraction,
                )
            )

    def _on_loaded(self, event: ModelLoaded) -> None:
        self._last_info, self._before = event.model, None
        state = ModelState(ModelStatus.READY, info=event.model, load_s=event.load_s, path=self.path)
        self._set(state)
        self._on_ready(event.model)

    def _on_load_failed(self, error: ErrorInfo) -> None:
        is_cancelled = error.code == LoadCancelledError.code
        if not is_cancelled:
            self.load_errors.failed(self.path, error)
        before, self._before = self._before, None
        if error.code != DeviceLostError.code and before is not None and before != self.path:
            self._go_back(before, None if is_cancelled else error)
        elif is_cancelled:
            self._on_unavailable(error)
            self._let_go()
        else:
            self._fail(error)

    def _go_back(self, before: str, error: ErrorInfo | None) -> None:
        """What waits for a model waits for the one that was there."""
        failed = self.path
        self.load(before)
        if error is not None:
            _LOG.warning("back to the model before: %s: %s", error.code, error.message)
            self._signals.notice_raised.emit(Notice(Severity.ERROR, error))
            self._signals.notice_raised.emit(Notice(Severity.INFO, _went_back(failed)))

    def _on_engine_status(self, event: EngineStatusChanged) -> None:
        if event.status is EngineStatus.FAILED:
            error = event.error
            if error is None or error.code != DeviceLostError.code:
                error = engine_died_error("" if error is None else error.message)
            self.engine_died(error)
        elif event.status is EngineStatus.READY and self._last_info is not None:
            # A load failed and the engine went back to the model that it had.
            if self.state.status is ModelStatus.FAILED:
                self._set(ModelState(ModelStatus.READY, info=self._last_info))
                self._on_ready(self._last_info)
        elif event.status is EngineStatus.NO_MODEL:
            self._last_info = None
            if self.state.status is ModelStatus.STARTING:
                self._set(ModelState(ModelStatus.NO_MODEL))
            elif self.state.status is ModelStatus.READY:
                self._let_go()

    def _let_go(self) -> None:
        self._last_info = None
        self._set(ModelState(ModelStatus.NO_MODEL, path=self.path, is_asleep=True))

    def _fail(self, error: ErrorInfo) -> None:
        _LOG.warning("no model: %s: %s", error.code, error.message)
        self._set(ModelState(ModelStatus.FAILED, error=error, path=self.path))
        if error.code != "starter_model_missing":
            self._signals.notice_raised.emit(Notice(Severity.ERROR, error))
        self._on_unavailable(error)

    def _set(self, state: ModelState) -> None:
        if state != self.state:
            self.state = state
            self._signals.model_state_changed.emit()


def _went_back(path: str) -> ErrorInfo:
    name = PurePath(path).name
    words = f"{name} was not loaded. The model that was there before is loaded again."
    return ErrorInfo(WENT_BACK, words, numbers=(("name", name),))


def engine_died_error(message: str) -> ErrorInfo:
    """``message``: what the engine's thread said last, or empty."""
    action = "Your conversations are saved. Restart the engine to go on."
    return ErrorInfo("engine_died", message or "The engine stopped because of a fault.", action)
