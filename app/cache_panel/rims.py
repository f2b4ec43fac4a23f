"""Rims around cells that a step has just written. They fade; nothing blinks."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from PySide6.QtCore import QObject, QRect, Qt, QTimer
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QWidget

FADE_MS = 300
FRAME_MS = 100


@dataclass(frozen=True, slots=True)
class _Written:
    """Cells written at one moment, and the rows of pixels that they lie in."""

    at_s: float
    rects: list[QRect]
    top: int
    bottom: int


class Rims(QObject):
    """Rims on ``canvas``, whose paint event calls ``paint``. A timer runs only while some fade."""

    def __init__(self, canvas: QWidget) -> None:
        super().__init__(canvas)
        self._canvas = canvas
        self._written: deque[_Written] = deque()
        self._timer = QTimer(self)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._on_timer_timeout)

    @property
    def are_fading(self) -> bool:
        """Whether the timer runs."""
        return self._timer.isActive()

    def put(self, rects: list[QRect], *, fades: bool) -> None:
        """Adds rims. Those that do not fade (reduced motion) stand until the next ones come."""
        self._update_canvas()
        if fades:
            # Starting again puts the next frame off: this paint shows the older rims paler anyway.
            self._drop_faded()
            self._timer.start()
        else:
            self.end()
        top = min(rect.top() for rect in rects)
        bottom = max(rect.bottom() for rect in rects)
        self._written.append(_Written(time.monotonic(), rects, top, bottom))

    def end(self) -> None:
        """Takes all rims away without painting."""
        self._written.clear()
        self._timer.stop()

    def paint(self, painter: QPainter, color: QColor) -> None:
        """Draws the rims as they are now."""
        now = time.monotonic()
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for written in self._written:
            shade = QColor(color)
            if self.are_fading:
                shade.setAlphaF(max(0.0, 1.0 - (now - written.at_s) * 1000 / FADE_MS))
            painter.setPen(QPen(shade, 1))
            painter.drawRects(written.rects)

    def _on_timer_timeout(self) -> None:
        self._update_canvas()
        self._drop_faded()
        if not self._written:
            self._timer.stop()

    def _drop_faded(self) -> None:
        now = time.monotonic()
        while self._written and (now - self._written[0].at_s) * 1000 >= FADE_MS:
            self._written.popleft()

    def _update_canvas(self) -> None:
        if self._written:
            top = min(written.top for written in self._written) - 1
            bottom = max(written.bottom for written in self._written) + 1
            self._canvas.update(0, top, self._canvas.width(), bottom - top + 1)
