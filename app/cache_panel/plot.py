"""A small plot of values over time, with a cursor for mouse and keyboard."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QEnterEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.i18n import tr
from app.theme import Theme, number_font

HEIGHT, TITLE_HEIGHT, AXIS_HEIGHT, LEFT = 118, 20, 15, 52
KEY_STEP_S = 1.0
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One series: ``token`` of the theme and ``style`` tell it from others; or single dots."""

    name: str
    points: Points
    token: str
    style: Qt.PenStyle = Qt.PenStyle.SolidLine
    dots: bool = False


class Plot(QWidget):
    """Shows curves between two moments; ``words`` turns a value into text, ``axis_words`` at the
    axis. ``pointed()``: somebody begins to read values, by mouse or keyboard.
    """

    pointed = Signal()

    def __init__(
        self,
        title: str,
        words: Callable[[float], str],
        theme: Theme,
        parent: QWidget | None = None,
        *,
        axis_words: Callable[[float], str] | None = None,
    ) -> None:
        super().__init__(parent)
        self.title = title
        self._words = words
        self._axis_words = axis_words or words
        self._theme = theme
        self._curves: list[Curve] = []
        self._start_s, self._end_s = 0.0, 1.0
        self._summary = ""
        self._least_top = 0.0
        self._cursor_s: float | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(title)

    def sizeHint(self) -> QSize:
        return QSize(340, HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(160, HEIGHT)

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        self.update()

    def show_curves(
        self,
        curves: list[Curve],
        start_s: float,
        end_s: float,
        summary: str,
        *,
        least_top: float = 0.0,
    ) -> None:
        """``summary`` stands at the right of the title; the axis reaches to ``least_top``."""
        self._curves, self._summary, self._least_top = curves, summary, least_top
        self._start_s, self._end_s = start_s, max(end_s, start_s + 1.0)
        self.setAccessibleDescription(self.cursor_words() or summary)
        self.update()

    # --- painting ---

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        self.paint(painter)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.color("accent"), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self._area().adjusted(1, 1, -1, -1))
        painter.end()

    def paint(self, painter: QPainter) -> None:
        """Draws everything but the focus."""
        theme, area = self._theme, self._area()
        painter.fillRect(self.rect(), theme.color("background"))
        painter.fillRect(area, theme.color("surface"))
        top = self._top()
        self._paint_title(painter)
        self._paint_axes(painter, area, top)
        painter.save()
        painter.setClipRect(area)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for curve in self._curves:
            self._paint_curve(painter, curve, area, top)
        painter.restore()
        if self._cursor_s is not None:
            x = self._x_of(self._cursor_s, area)
            painter.setPen(QPen(theme.color("text"), 1))
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))

    def _paint_title(self, painter: QPainter) -> None:
        theme = self._theme
        rect = QRectF(0, 0, self.width(), TITLE_HEIGHT)
        painter.setFont(number_font(9.5))
        painter.setPen(theme.color("text"))
        painter.drawText(rect, int(_LEFT_MIDDLE), self.title)
        room = rect.width() - painter.fontMetrics().horizontalAdvance(self.title) - 12
        words = self.cursor_words() or self._summary
        painter.setPen(theme.color("muted"))
        elided = painter.fontMetrics().elidedText(words, Qt.TextElideMode.ElideRight, int(room))
        painter.drawText(rect, int(_RIGHT_MIDDLE), elided)

    def _paint_axes(self, painter: QPainter, area: QRectF, top: float) -> None:
        theme = self._theme
        painter.setFont(number_font(8.0))
        for share in (0.0, 0.5, 1.0):
            y = area.bottom() - share * (area.height() - 1)
            painter.setPen(QPen(theme.color("line"), 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            painter.setPen(theme.color("muted"))
            # The highest one must not run into the title.
            label = QRectF(0, max(y - 7, area.top() - 1), LEFT - 4, 14)
            painter.drawText(label, int(_RIGHT_MIDDLE), self._axis_words(share * top))
        below = QRectF(area.left(), area.bottom() + 1, area.width(), AXIS_HEIGHT - 1)
        span = self._end_s - self._start_s
        painter.drawText(below, int(_LEFT_MIDDLE), tr("−{n} s", n=f"{span:.0f}"))
        painter.drawText(below, int(_RIGHT_MIDDLE), tr("{n} s", n=0))
        self._paint_legend(painter, below)

    def _paint_legend(self, painter: QPainter, below: QRectF) -> None:
        named = [curve for curve in self._curves if curve.name]
        if len(named) < 2:
            return
        metrics = painter.fontMetrics()
        widths = [26 + metrics.horizontalAdvance(curve.name) + 10 for curve in named]
        x = below.center().x() - sum(widths) / 2
        for curve, width in zip(named, widths, strict=True):
            middle = below.center().y()
            painter.setPen(QPen(self._theme.color(curve.token), 2, curve.style))
            painter.drawLine(QPointF(x, middle), QPointF(x + 22, middle))
            painter.setPen(self._theme.color("muted"))
            painter.drawText(
                QRectF(x + 26, below.top(), width, below.height()), int(_LEFT_MIDDLE), curve.name
            )
            x += width

    def _paint_curve(self, painter: QPainter, curve: Curve, area: QRectF, top: float) -> None:
        color = self._theme.color(curve.token)
        parts = self._parts(curve, area, top)
        if curve.dots:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            for part in parts:
                for point in part:
                    painter.drawEllipse(point, 3.0, 3.0)
            return
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(_pen(color, curve.style))
        for part in parts:
            if len(part) == 1:
                painter.drawPoint(part[0])
            else:
                painter.drawPolyline(QPolygonF(part))

    def _parts(self, curve: Curve, area: QRectF, top: float) -> list[list[QPointF]]:
        """Points as they are drawn, parted where a value is missing."""
        parts: list[list[QPointF]] = [[]]
        for time_s, value in curve.points:
            if time_s < self._start_s:
                continue
            if math.isnan(value):
                parts.append([])
                continue
            y = area.bottom() - min(1.0, value / top) * (area.height() - 1)
            parts[-1].append(QPointF(self._x_of(time_s, area), y))
        return [part for part in parts if part]

    def _area(self) -> QRectF:
        return QRectF(LEFT, TITLE_HEIGHT, self.width() - LEFT, HEIGHT - TITLE_HEIGHT - AXIS_HEIGHT)

    def _top(self) -> float:
        largest = max(
            (
                value
                for curve in self._curves
                for time_s, value in curve.points
                if time_s >= self._start_s and not math.isnan(value)
            ),
            default=0.0,
        )
        return nice_top(max(largest * 1.05, self._least_top))

    def _x_of(self, time_s: float, area: QRectF) -> float:
        share = (time_s - self._start_s) / (self._end_s - self._start_s)
        return area.left() + min(1.0, max(0.0, share)) * (area.width() - 1)

    # --- the cursor ---

    def cursor_words(self) -> str:
        """The values under the cursor; empty without one."""
        if self._cursor_s is None:
            return ""
        ago = tr("{n} s ago", n=f"{max(0.0, self._end_s - self._cursor_s):.0f}")
        parts = [ago]
        for curve in self._curves:
            index = bisect_right(curve.points, self._cursor_s, key=lambda point: point[0])
            value = curve.points[index - 1][1] if index else math.nan
            if not math.isnan(value):
                text = self._words(value)
                parts.append(f"{curve.name} {text}" if curve.name else text)
        return " · ".join(parts)

    def _move_cursor(self, time_s: float | None) -> None:
        if time_s is not None:
            time_s = min(self._end_s, max(self._start_s, time_s))
        self._cursor_s = time_s
        self.setAccessibleDescription(self.cursor_words() or self._summary)
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        area = self._area()
        share = (event.position().x() - area.left()) / max(1.0, area.width() - 1)
        self._move_cursor(self._start_s + share * (self._end_s - self._start_s))

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.pointed.emit()

    def leaveEvent(self, event: QEvent) -> None:
        self._move_cursor(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -KEY_STEP_S, Qt.Key.Key_Right: KEY_STEP_S}
        key = event.key()
        if key in steps:
            at = self._end_s if self._cursor_s is None else self._cursor_s
            self._move_cursor(at + steps[Qt.Key(key)])
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self._move_cursor(self._start_s if key == Qt.Key.Key_Home else self._end_s)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.pointed.emit()
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._move_cursor(None)


_LEFT_MIDDLE = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT_MIDDLE = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def _pen(color: QColor, style: Qt.PenStyle) -> QPen:
    pen = QPen(color, 1.6, style)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    return pen


def nice_top(value: float) -> float:
    """The next of 1, 2, 5, 10 … that is not smaller; 1 for nothing."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= value * 0.999999)
