"""Widgets in a row that goes on in the next line where it does not fit."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QRect, QSize
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

SPACING = 4


class FlowRow(QWidget):
    """Left to right, then the next line.

    It takes its height itself: a layout with height-for-width would make everything around it as
    high as wanted, and leave a low panel to overlap.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._widgets: list[QWidget] = []
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def add(self, widget: QWidget) -> None:
        """Puts ``widget`` at the end."""
        widget.setParent(self)
        widget.show()
        self._widgets.append(widget)
        self._place()

    def sizeHint(self) -> QSize:
        return QSize(sum(w.sizeHint().width() + SPACING for w in self._widgets), self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self._place()
        return handled

    def _place(self) -> None:
        x = y = line = 0
        for widget in self._widgets:
            size = widget.sizeHint()
            if line and x + size.width() > self.width():
                x, y, line = 0, y + line + SPACING, 0
            widget.setGeometry(QRect(QPoint(x, y), size))
            x += size.width() + SPACING
            line = max(line, size.height())
        height = y + line
        if (self.minimumHeight(), self.maximumHeight()) != (height, height):
            self.setFixedHeight(height)
