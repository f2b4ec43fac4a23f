"""Loading models, and what is known about the one that is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from app.bridge import Bridge
from app.conversation import new_id
from app.session_signals import SessionSignals
from app.session_state import ModelState, ModelStatus, Notice, Severity
from app.settings import Settings
from engine.api.commands import LoadModel
from engine.api.errors import DeviceLostError, ErrorInfo
from engine.api.events import (
    EngineStatus,
    EngineStatusChanged,
    Event,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
)

_LOG = logging.getLogger(__name__)


class ModelControl:
    """Keeps ``state`` and the ``path`` asked for last.

    Tells ``on_ready`` / ``on_unavailable`` when answers can or cannot be made.
    """

    def __init__(
        self,
        bridge: Bridge,
        settings: Settings,
        models_dir: str,
        signals: SessionSignals,
        on_ready: Callable[[ModelInfo], None],
        on_unavailable: Callable[[ErrorInfo], None],
    ) -> None:
        self.state = ModelState()
        self._bridge = bridge
        self._settings = settings
        self._models_dir = models_dir
        self._signals = signals
        self._on_ready = on_ready
        self._on_unavailable = on_unavailable
        self._load_id = ""
        self._death: ErrorInfo | None = None
        self.path = ""
        self._last_info: ModelInfo | None = None

    def load(self, path: str, fetch_starter: bool = False) -> None:
        """Asks for a model; an answer to an earlier ``load`` no longer counts."""
        if self._death is not None:
            self._fail(self._death)
            return
        self._load_id = new_id()
        self.path = path
        self._bridge.send(
            LoadModel(
                models_dir=self._models_dir,
                path=path,
                fetch_starter=fetch_starter,
                config=self._settings.values.engine,
                command_id=self._load_id,
            )
        )
        self._set(ModelState(ModelStatus.LOADING))

    def handle(self, event: Event) -> bool:
        """Takes the events that concern the model; True if this was one."""
        match event:
            case ModelLoading():
                if self.state.status is ModelStatus.LOADING:
                    self._set(
                        replace(
                            self.state,
                            stage=event.stage,
                            fraction=event.fraction,
                            detail=event.detail,
                        )
                    )
            case ModelLoaded(command_id=self._load_id):
                self._last_info = event.model
                self._set(ModelState(ModelStatus.READY, info=event.model, load_s=event.load_s))
                self._on_ready(event.model)
            case ModelLoadFailed(command_id=self._load_id):
                self._fail(event.error)
            case ModelLoaded() | ModelLoadFailed():
                _LOG.info("answer to a load that no longer counts: %s", type(event).__name__)
            case ModelUnloaded():
                self._last_info = None
                if self.state.status is ModelStatus.READY:
                    self._set(ModelState(ModelStatus.NO_MODEL))
            case EngineStatusChanged():
                self._on_engine_status(event)
            case _:
                return False
        return True

    def engine_died(self, error: ErrorInfo) -> None:
        """The engine thread ended by a fault; told from two sides, the first counts."""
        if self._death is None:
            self._death = error
            self._last_info = None
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
            if self.state.status in (ModelStatus.STARTING, ModelStatus.READY):
                self._set(ModelState(ModelStatus.NO_MODEL))

    def _fail(self, error: ErrorInfo) -> None:
        _LOG.warning("no model: %s: %s", error.code, error.message)
        self._set(ModelState(ModelStatus.FAILED, error=error))
        if error.code != "starter_model_missing":
            self._signals.notice_raised.emit(Notice(Severity.ERROR, error))
        self._on_unavailable(error)

    def _set(self, state: ModelState) -> None:
        if state != self.state:
            self.state = state
            self._signals.model_state_changed.emit()


def engine_died_error(message: str) -> ErrorInfo:
    """``message``: what the engine's thread said last, or empty."""
    action = "Your conversations are saved. Restart the engine to go on."
    return ErrorInfo("engine_died", message or "The engine stopped because of a fault.", action)
