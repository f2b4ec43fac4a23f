"""Lets the model go when nothing has been asked of it for as long as the settings say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot

from app.session_state import ModelStatus
from app.settings import Settings

if TYPE_CHECKING:
    from app.session import Session

_LOG = logging.getLogger(__name__)
MINUTE_MS = 60_000


class IdleUnload(QObject):
    """Counts from the end of the last answer, or of the load. The next message loads the model
    again.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        super().__init__(session)
        self._session = session
        self._settings = settings
        self._is_over = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._on_timeout)
        session.model_state_changed.connect(self._restart)
        session.request_state_changed.connect(self._restart)
        session.settings_changed.connect(self._restart)

    def stop(self) -> None:
        """The program ends."""
        self._is_over = True
        self._timer.stop()

    @Slot()
    def _restart(self) -> None:
        minutes = self._settings.values.idle_unload_minutes
        is_ready = self._session.model_state.status is ModelStatus.READY
        if self._is_over or not minutes or not is_ready or self._session.num_running_answers:
            self._timer.stop()
        else:
            self._timer.start(minutes * MINUTE_MS)

    @Slot()
    def _on_timeout(self) -> None:
        if self._session.num_running_answers:
            return
        _LOG.info("the model is let go: idle for %s min", self._settings.values.idle_unload_minutes)
        self._session.unload_model()
