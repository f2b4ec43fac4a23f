"""A frame around the part of the panel that the lesson speaks of."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.theme import ThemeManager

_WIDTH = 3.0
_OUTSIDE = 5


class Pointer(QWidget):
    """Lies over ``area`` and lets everything through; frames one widget inside it."""

    def __init__(self, area: QWidget, themes: ThemeManager) -> None:
        super().__init__(area)
        self._area = area
        self._themes = themes
        self._target: QWidget | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.installEventFilter(self)
        self.hide()

    @property
    def target(self) -> QWidget | None:
        """What is framed now."""
        return self._target

    def point_at(self, target: QWidget | None) -> None:
        """Frames ``target``, or nothing."""
        if self._target is not None:
            self._target.removeEventFilter(self)
        self._target = target
        if target is not None:
            target.installEventFilter(self)
        self._place()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (
            QEvent.Type.Resize,
            QEvent.Type.Move,
            QEvent.Type.Show,
            QEvent.Type.Hide,
            QEvent.Type.LayoutRequest,
        ):
            self._place()
        return False

    def _place(self) -> None:
        target = self._target
        if target is None or not target.isVisibleTo(self._area):
            self.hide()
            return
        corner = target.mapTo(self._area, QPoint(0, 0))
        rect = QRect(corner, target.size()).adjusted(-_OUTSIDE, -_OUTSIDE, _OUTSIDE, _OUTSIDE)
        self.setGeometry(rect.intersected(self._area.rect()))
        self.raise_()
        self.show()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._themes.theme.color("accent"), _WIDTH))
        half = _WIDTH / 2
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(half, half, -half, -half), 6, 6)
        painter.end()
