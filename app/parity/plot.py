"""The error of each layer as bars on a logarithmic scale, and the bound as a line."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme as themes
from app.i18n import tr
from app.parity import words
from app.theme import Theme, ThemeManager
from engine.api.events import ParityReport

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 12.0, 40.0
_MOST_BAR = 28.0
_MOST_DECADES = 14
_ROOM_DECADES = 0.4
_LABEL_WIDTH = 28


class LayerPlot(QWidget):
    """Shows a report; ``layer_chosen(index)`` follows the mouse and the arrow keys, -1 for none."""

    layer_chosen = Signal(int)

    def __init__(self, manager: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme: Theme = manager.theme
        self._report: ParityReport | None = None
        self.chosen = -1
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(tr("Error of each layer"))
        manager.changed.connect(self._on_theme_changed)

    def sizeHint(self) -> QSize:
        return QSize(560, 280)

    def minimumSizeHint(self) -> QSize:
        return QSize(240, 160)

    def show_report(self, report: ParityReport | None) -> None:
        """Shows another report, or an empty plot."""
        self._report = report
        self._choose(-1)
        text = ""
        if report is not None:
            text = "\n".join(words.layer(report, i) for i in range(len(report.layer_errors)))
        self.setAccessibleDescription(text)
        self.update()

    def _on_theme_changed(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    # --- scale ---

    def decades(self) -> tuple[int, int]:
        """Exponents of the lowest and the highest line: all errors and the bound lie between."""
        report = self._report
        values = [1e-8, 1e-3]
        if report is not None:
            known = [e for e in report.layer_errors if e > 0.0 and math.isfinite(e)]
            values = [*known, report.bound]
        low = math.floor(math.log10(min(values)))
        # Room above for the words at the bound.
        high = math.ceil(math.log10(max(values)) + _ROOM_DECADES)
        if report is not None and any(not math.isfinite(e) for e in report.layer_errors):
            high += 1
        high = max(high, low + 2)
        return max(low - 1, high - _MOST_DECADES), high

    def _area(self) -> QRectF:
        return QRectF(self.rect()).adjusted(_LEFT, _TOP, -_RIGHT, -_BOTTOM)

    def y_of(self, value: float) -> float:
        """Height of a value in pixels from the top."""
        area, (low, high) = self._area(), self.decades()
        if not math.isfinite(value):
            return area.top()
        exponent = math.log10(value) if value > 0.0 else low
        share = (min(max(exponent, low), high) - low) / (high - low)
        return area.bottom() - share * area.height()

    def _bar(self, index: int, count: int) -> QRectF:
        area = self._area()
        pitch = area.width() / count
        width = min(_MOST_BAR, pitch * 0.7)
        assert self._report is not None
        top = min(self.y_of(self._report.layer_errors[index]), area.bottom() - 1)
        left = area.left() + pitch * (index + 0.5) - width / 2
        return QRectF(left, top, width, area.bottom() - top)

    # --- painting ---

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.color("background"))
        painter.setFont(themes.number_font(9.0))
        self._paint_lines(painter)
        if self._report is not None:
            self._paint_bars(painter, self._report)
            self._paint_bound(painter, self._report)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.color("accent"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()

    def _paint_lines(self, painter: QPainter) -> None:
        area, theme = self._area(), self._theme
        low, high = self.decades()
        every = max(1, math.ceil((high - low) * 18 / max(1.0, area.height())))
        for exponent in range(low, high + 1):
            y = round(self.y_of(10.0**exponent)) + 0.5
            painter.setPen(QPen(theme.color("line"), 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            if (exponent - low) % every == 0:
                painter.setPen(theme.color("muted"))
                label = QRectF(0, y - 9, area.left() - 8, 18)
                flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                painter.drawText(label, flags, words.power(10.0**exponent))

    def _paint_bars(self, painter: QPainter, report: ParityReport) -> None:
        theme, count = self._theme, len(report.layer_errors)
        area = self._area()
        every = max(1, math.ceil(count * _LABEL_WIDTH / max(1.0, area.width())))
        for index, error in enumerate(report.layer_errors):
            bar = self._bar(index, count)
            is_over = error > report.bound or not math.isfinite(error)
            painter.fillRect(bar, theme.color("error" if is_over else "accent"))
            if is_over:
                # Not by colour alone: a wrong layer is hatched too.
                painter.fillRect(bar, Qt.BrushStyle.BDiagPattern)
            if index == self.chosen:
                painter.setPen(QPen(theme.color("text"), 2))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(bar.adjusted(-1, -1, 1, 1))
            if index % every == 0:
                painter.setPen(theme.color("muted"))
                label = QRectF(bar.center().x() - 20, area.bottom() + 3, 40, 16)
                painter.drawText(label, Qt.AlignmentFlag.AlignCenter, str(index))
        painter.setPen(theme.color("muted"))
        axis = QRectF(area.left(), area.bottom() + 20, area.width(), 16)
        painter.drawText(axis, Qt.AlignmentFlag.AlignCenter, tr("layer"))

    def _paint_bound(self, painter: QPainter, report: ParityReport) -> None:
        area, theme = self._area(), self._theme
        y = round(self.y_of(report.bound)) + 0.5
        painter.setPen(QPen(theme.color("warning"), 2, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
        text = tr("bound {bound}", bound=words.power(report.bound))
        width = painter.fontMetrics().horizontalAdvance(text) + 8
        label = QRectF(area.right() - width, y - 20, width, 18)
        painter.fillRect(label, theme.color("background"))
        painter.setPen(theme.color("warning"))
        painter.drawText(label, Qt.AlignmentFlag.AlignCenter, text)

    # --- pointing ---

    def _choose(self, index: int) -> None:
        if index != self.chosen:
            self.chosen = index
            self.layer_chosen.emit(index)
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        report, area = self._report, self._area()
        count = 0 if report is None else len(report.layer_errors)
        x = event.position().x() - area.left()
        inside = count > 0 and 0 <= x < area.width()
        self._choose(int(x * count / area.width()) if inside else -1)

    def leaveEvent(self, event: QEvent) -> None:
        self._choose(-1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        count = 0 if self._report is None else len(self._report.layer_errors)
        steps = {
            Qt.Key.Key_Left: self.chosen - 1,
            Qt.Key.Key_Right: self.chosen + 1,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: count - 1,
        }
        key = Qt.Key(event.key())
        if count and key in steps:
            self._choose(min(max(steps[key], 0), count - 1))
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()
