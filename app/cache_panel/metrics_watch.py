"""Feeds the metrics page from the engine's events, while the panel can be seen."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Slot

from app.bridge import Bridge
from app.cache_panel.meter import Meter
from app.cache_panel.metrics import Metrics
from app.cache_panel.metrics_view import MetricsView
from app.theme import Theme, ThemeManager
from engine.api.events import EngineStats, Event


class MetricsWatch(QObject):
    """``start`` and ``stop`` with the panel; ``view`` shows what was seen."""

    def __init__(
        self, bridge: Bridge, themes: ThemeManager, meter: Meter, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.metrics = Metrics()
        self.view = MetricsView(self.metrics, themes.theme)
        self._bridge = bridge
        self._meter = meter
        self._is_parted = False
        themes.changed.connect(self._on_theme_changed)

    def start(self) -> None:
        """Counts from now on."""
        self.metrics.interrupt(time.monotonic())
        self._bridge.engine_event.connect(self._on_bridge_engine_event)
        self._bridge.stats_changed.connect(self._on_bridge_stats_changed)

    def stop(self) -> None:
        """Counts nothing until the next ``start``."""
        self._bridge.engine_event.disconnect(self._on_bridge_engine_event)
        self._bridge.stats_changed.disconnect(self._on_bridge_stats_changed)

    def part(self) -> None:
        """The model went: its figures are no longer those of now, and the last ones come late."""
        if not self._is_parted:
            self._is_parted = True
            self.metrics.interrupt(time.monotonic())
            self.view.show_metrics()

    def join(self) -> None:
        """A model is there."""
        self._is_parted = False

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        self.metrics.note_event(time.monotonic(), event)

    @Slot(object)
    def _on_bridge_stats_changed(self, stats: EngineStats) -> None:
        if self._is_parted:
            return
        with self._meter:
            self.metrics.note_stats(time.monotonic(), stats)
            self.view.show_metrics()

    def _on_theme_changed(self, theme: Theme) -> None:
        self.view.set_theme(theme)
