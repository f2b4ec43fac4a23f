"""What the painted rows of the side bar's lists have in common."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyleOptionViewItem

from app.theme import Theme

RADIUS = 6.0


def paint_row(
    painter: QPainter, theme: Theme, option: QStyleOptionViewItem, is_framed: bool = False
) -> QRectF:
    """Background of a row by its state, with a frame where the keyboard is, or one is asked for.
    Returns its room.
    """
    rect = QRectF(option.rect).adjusted(6, 1, -6, -1)
    state, flag = option.state, QStyle.StateFlag
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    if state & flag.State_Selected:
        painter.setBrush(theme.color("accent_soft"))
    elif state & flag.State_MouseOver:
        painter.setBrush(theme.color("hover"))
    else:
        painter.setBrush(Qt.BrushStyle.NoBrush)
    has_keyboard = state & flag.State_HasFocus and state & flag.State_KeyboardFocusChange
    if has_keyboard or is_framed:
        painter.setPen(QPen(theme.color("accent"), 1.0))
        painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS, RADIUS)
    elif painter.brush().style() != Qt.BrushStyle.NoBrush:
        painter.drawRoundedRect(rect, RADIUS, RADIUS)
    return rect
