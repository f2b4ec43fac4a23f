"""Gathers what a diagnostics bundle holds from a running window."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot, qVersion
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMainWindow

from app import logs
from app.bridge import Bridge
from app.session import Session
from app.settings import Settings
from engine.api.events import EngineStats

if TYPE_CHECKING:
    from app.diagnostics import Entry


class Report(QObject):
    """Keeps the engine's last counters, so that a bundle can show them."""

    def __init__(
        self, session: Session, bridge: Bridge, settings: Settings, window: QMainWindow
    ) -> None:
        super().__init__()
        self._session = session
        self._bridge = bridge
        self._settings = settings
        self._window = window
        self._stats: EngineStats | None = None
        bridge.stats_changed.connect(self._on_bridge_stats_changed)

    def entries(self, with_text: bool) -> list[Entry]:
        """The files of a bundle; ``with_text``: with the conversation in front."""
        # Imported late: the first paint can do without.
        from app.diagnostics import Entry as File
        from app.diagnostics import collect
        from app.exporting import to_json

        logging.getLogger(__name__).info("diagnostics gathered")
        entries = collect(
            self._settings,
            logs.log_file(),
            self._session.model_state.info,
            self._stats,
            self._bridge.latest_snapshot(),
            self._window_facts(),
        )
        conversation_id = self._session.active_conversation_id
        if with_text and conversation_id in self._session.conversation_ids():
            text = to_json([self._session.conversation(conversation_id)])
            entries.append(File("conversation.json", text))
        return entries

    def _window_facts(self) -> dict[str, str]:
        state = self._session.model_state
        facts = {
            "qt": qVersion(),
            "qt_platform": QGuiApplication.platformName(),
            "window": f"{self._window.width()} x {self._window.height()}",
            "tabs": str(len(self._session.conversation_ids())),
            "model_status": state.status.value,
        }
        if state.error is not None:
            facts["model_error"] = f"{state.error.code}: {state.error.message}"
        for index, screen in enumerate(QGuiApplication.screens()):
            size = screen.size()
            ratio = screen.devicePixelRatio()
            facts[f"screen_{index}"] = f"{size.width()} x {size.height()} at {ratio:g}"
        return facts

    @Slot(object)
    def _on_bridge_stats_changed(self, stats: EngineStats) -> None:
        self._stats = stats
