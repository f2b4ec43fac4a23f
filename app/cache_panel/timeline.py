"""The pool's last minute as a stacked area: used, saved by sharing, cached, free."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.cache_panel.history import SPAN_S, History, Moment
from app.cache_panel.meter import Meter
from app.cache_panel.pool_model import Array
from app.cache_panel.tiles import CACHED_AMOUNT, RGB
from app.i18n import tr
from app.theme import Theme, blend, number_font

PLOT_HEIGHT, AXIS_HEIGHT = 48, 15
HEADROOM = 1.2
EMPTY, USED, SAVED, CACHED, FREE, EDGE = range(6)


class Timeline(QWidget):
    """Paints ``History.moments``; the height shows what was touched, so that little is seen too.

    Signals:
        time_chosen(float): a click or drag, on the history's clock.
        stepped(int): -1 or 1, one engine step; the keyboard's Left and Right.
        live_requested(): to the present; the End key.
    """

    time_chosen = Signal(float)
    stepped = Signal(int)
    live_requested = Signal()

    def __init__(self, theme: Theme, meter: Meter, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._meter = meter
        self._moments: list[Moment] = []
        self._total = 0
        self._watermark = 0
        self._end_s = 0.0
        self._cursor_s: float | None = None
        self._picture: QImage | None = None
        self._drawn_top = 1
        self.words = ""
        self._stands_out = False
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("The last minute of the pool"))

    def sizeHint(self) -> QSize:
        return QSize(340, PLOT_HEIGHT + AXIS_HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, PLOT_HEIGHT + AXIS_HEIGHT)

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        self._picture = None
        self.update()

    def show_history(
        self, history: History, total: int, watermark: int, end_s: float, cursor_s: float | None
    ) -> None:
        """The minute before ``end_s``; ``cursor_s`` is the moment that the panel shows."""
        self._moments = history.moments
        self._total, self._watermark = total, watermark
        self._end_s, self._cursor_s = end_s, cursor_s
        self._picture = None
        self.update()

    def show_words(self, words: str, *, stands_out: bool) -> None:
        """A few words under the middle of the plot."""
        if (words, stands_out) != (self.words, self._stands_out):
            self.words, self._stands_out = words, stands_out
            self.update()

    @property
    def top_blocks(self) -> int:
        """Blocks at the upper edge of the plot."""
        return self._top(self._edges(max(1, self.width())))

    def clear(self) -> None:
        """There is no pool."""
        self._moments, self._cursor_s, self._picture = [], None, None
        self.update()

    # --- painting ---

    def paintEvent(self, event: QPaintEvent) -> None:
        with self._meter:
            painter = QPainter(self)
            painter.fillRect(event.rect(), self._theme.color("background"))
            if self._picture is None:
                self._picture = self._draw()
            painter.drawImage(0, 0, self._picture)
            self._paint_axis(painter)
            self._paint_cursor(painter)
            painter.end()

    def _draw(self) -> QImage:
        """All layers as pixels: a step function, one look-up for each column."""
        ratio = self.devicePixelRatioF()
        width, height = max(1, int(self.width() * ratio)), int(PLOT_HEIGHT * ratio)
        edges = self._edges(width)
        top = self._drawn_top = self._top(edges)
        from_below = np.arange(height, 0, -1)[:, None] - 0.5
        layer = np.full((height, width), FREE, np.uint8)
        heights = edges / top * height
        for code, upper in ((CACHED, heights[2]), (SAVED, heights[1]), (USED, heights[0])):
            layer[from_below < upper] = code
        layer[np.broadcast_to(edges[0] < 0, layer.shape)] = EMPTY
        # Where two layers meet, a line: the areas must not be told apart by colour alone.
        meets = layer[:-1] != layer[1:]
        layer[:-1][meets & (layer[1:] != EMPTY)] = EDGE
        colors = self._colors()
        pixels = np.ascontiguousarray(colors[layer])
        self._pattern(pixels, layer, max(1, round(ratio)))
        image = QImage(pixels.tobytes(), width, height, 4 * width, RGB).copy()
        image.setDevicePixelRatio(ratio)
        return image

    def _edges(self, width: int) -> Array:
        """float[3, width]: upper edges of used, saved and cached in blocks; -1 before the first."""
        moments = self._moments
        if not moments:
            return np.full((3, width), -1.0)
        times = np.array([moment.time_s for moment in moments])
        rows = np.array(
            [(m.counts.used, m.saved_blocks, m.counts.cached) for m in moments], np.float64
        )
        at = self._end_s - SPAN_S + (np.arange(width) + 1) / width * SPAN_S
        index = np.searchsorted(times, at, "right") - 1
        edges: Array = np.cumsum(rows, axis=1)[np.maximum(index, 0)].T
        edges[:, index < 0] = -1.0
        return edges

    def _top(self, edges: Array) -> int:
        """Blocks at the upper edge of the plot."""
        most = float(edges[2].max(initial=0.0)) * HEADROOM
        saved = float((edges[1] - edges[0]).max(initial=0.0))
        return max(16, round(min(most, self._total + saved)))

    def _colors(self) -> Array:
        theme = self._theme
        ground, accent = theme.color("background"), theme.color("accent")
        chosen = [
            ground, accent, theme.shared, blend(ground, accent, CACHED_AMOUNT),
            theme.color("raised"), theme.color("text"),
        ]  # fmt: skip
        return np.array([color.rgb() for color in chosen], np.uint32)

    def _pattern(self, pixels: Array, layer: Array, dot: int) -> None:
        """A hatch on what sharing saves and dots on what is cached, as in the grid."""
        rows, columns = np.arange(layer.shape[0])[:, None], np.arange(layer.shape[1])
        hatch = ((rows + columns) // dot) % 5 == 0
        dots = ((rows // dot) % 4 == 0) & ((columns // dot) % 4 == 0)
        light = blend(self._theme.shared, self._theme.color("background"), 0.8).rgb()
        pixels[(layer == SAVED) & hatch] = light
        pixels[(layer == CACHED) & dots] = self._theme.color("text").rgb()

    def _paint_axis(self, painter: QPainter) -> None:
        theme = self._theme
        painter.setPen(QPen(theme.color("line"), 1))
        painter.drawLine(QPointF(0, PLOT_HEIGHT + 0.5), QPointF(self.width(), PLOT_HEIGHT + 0.5))
        if self._watermark and self._total - self._watermark < self._drawn_top:
            y = PLOT_HEIGHT * (1 - (self._total - self._watermark) / self._drawn_top)
            painter.setPen(QPen(theme.color("warning"), 2))
            painter.drawLine(QPointF(0, y), QPointF(self.width(), y))
        painter.setFont(number_font(8.5))
        painter.setPen(theme.color("muted"))
        rect = QRectF(0, PLOT_HEIGHT + 1, self.width(), AXIS_HEIGHT - 1)
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(rect, int(left), tr("−{n} s", n=f"{SPAN_S:.0f}"))
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(rect, int(right), tr("{n} s", n=0))
        painter.setPen(theme.color("warning" if self._stands_out else "muted"))
        painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), self.words)

    def _paint_cursor(self, painter: QPainter) -> None:
        if self._cursor_s is not None:
            x = self._x_of(self._cursor_s)
            self._line(painter, x, self._theme.color("background"), 4.0)
            self._line(painter, x, self._theme.color("error"), 2.0)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.color("accent"), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(1, 1, self.width() - 2, PLOT_HEIGHT - 2))

    def _line(self, painter: QPainter, x: float, color: QColor, width: float) -> None:
        painter.setPen(QPen(color, width))
        painter.drawLine(QPointF(x, 0), QPointF(x, PLOT_HEIGHT))

    def _x_of(self, time_s: float) -> float:
        share = (time_s - self._end_s + SPAN_S) / SPAN_S
        return min(max(share, 0.0) * self.width(), self.width() - 1.0)

    # --- choosing ---

    def _choose(self, x: float) -> None:
        if self._moments:
            share = min(1.0, max(0.0, x / max(1, self.width())))
            self.time_chosen.emit(self._end_s - SPAN_S + share * SPAN_S)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._choose(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._choose(event.position().x())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self.stepped.emit(-1 if key == Qt.Key.Key_Left else 1)
        elif key == Qt.Key.Key_Home:
            self._choose(0.0)
        elif key == Qt.Key.Key_End:
            self.live_requested.emit()
        elif key in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            at = self._end_s if self._cursor_s is None else self._cursor_s
            step = -5.0 if key == Qt.Key.Key_PageUp else 5.0
            if self._moments:
                self.time_chosen.emit(at + step)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.DevicePixelRatioChange, QEvent.Type.Resize):
            self._picture = None
        return super().event(event)
