"""How long the event loop was kept from running."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Qt, QTimer, Slot

INTERVAL_MS = 2


class GapMeter(QObject):
    """Ticks every INTERVAL_MS on its thread and keeps the longest time between two ticks.

    The interval itself is part of a gap, so that the figure is never too good.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._longest_s = 0.0
        self._last_s = 0.0
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._on_timer_timeout)

    def start(self) -> None:
        """Forgets what was measured and measures from now on."""
        self._longest_s = 0.0
        self._last_s = time.perf_counter()
        self._timer.start()

    def take_ms(self) -> float:
        """The longest gap since ``start`` or the last call, the one that is going on included."""
        self._measure()
        longest_ms, self._longest_s = self._longest_s * 1000.0, 0.0
        return longest_ms

    def resume(self, longest_ms: float) -> None:
        """Goes on after something that does not count, with the figure that ``take_ms`` gave
        before.
        """
        self._longest_s = longest_ms / 1000.0
        self._last_s = time.perf_counter()

    def stop(self) -> None:
        """Stops ticking."""
        self._timer.stop()

    @Slot()
    def _on_timer_timeout(self) -> None:
        self._measure()

    def _measure(self) -> None:
        now = time.perf_counter()
        self._longest_s = max(self._longest_s, now - self._last_s)
        self._last_s = now
