"""Engine settings that the user changes: at once where the engine can, else with the next load."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge import Bridge
from app.conversation import new_id
from app.session import Session
from app.session_state import ModelStatus
from app.settings import Settings
from engine.api.commands import Configure
from engine.api.errors import ErrorInfo
from engine.api.events import CommandFailed, Configured, Event
from engine.api.params import EngineConfig


class EngineSettings(QObject):
    """Hands changed settings to the engine and tells what came of it.

    Signals:
        pending_changed(): see ``pending``.
        refused(ErrorInfo): the engine cannot do this; the settings are what they were before.
    """

    pending_changed = Signal()
    refused = Signal(object)

    def __init__(
        self, session: Session, bridge: Bridge, settings: Settings, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._bridge = bridge
        self._settings = settings
        self._in_force: EngineConfig = settings.values.engine
        self._asked = ""
        self._pending: tuple[str, ...] = ()
        session.settings_changed.connect(self._on_session_settings_changed)
        session.model_state_changed.connect(self._on_session_model_state_changed)
        bridge.engine_event.connect(self._on_bridge_engine_event)

    @property
    def pending(self) -> tuple[str, ...]:
        """Names of the settings that take effect when the model is loaded again."""
        return self._pending

    def reload(self) -> None:
        """Loads the model again."""
        self._session.retry_model()

    @Slot(object)
    def _on_session_settings_changed(self, names: frozenset[str]) -> None:
        if "engine" not in names or self._session.model_state.status is not ModelStatus.READY:
            return
        self._asked = new_id()
        config = self._session.engine_config(self._session.model_state.path)
        self._bridge.send(Configure(config, command_id=self._asked))

    @Slot()
    def _on_session_model_state_changed(self) -> None:
        if self._session.model_state.status is ModelStatus.LOADING:
            self._in_force = self._settings.values.engine
            self._asked = ""
            self._set_pending(())

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if isinstance(event, Configured) and event.command_id == self._asked:
            self._in_force = self._settings.values.engine
            self._set_pending(event.needs_reload)
        elif isinstance(event, CommandFailed) and event.command_id == self._asked != "":
            self._asked = ""
            self._go_back(event.error)

    def _go_back(self, error: ErrorInfo) -> None:
        self._session.change_settings(engine=self._in_force)
        self.refused.emit(error)

    def _set_pending(self, names: tuple[str, ...]) -> None:
        if names != self._pending:
            self._pending = names
            self.pending_changed.emit()
