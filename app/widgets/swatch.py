"""The mark of a conversation: its hue with its number, and what its answer is doing."""

from __future__ import annotations

from enum import StrEnum

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPen, QPixmap

from app.i18n import tr
from app.theme import Theme

SIDE = 16
MARK_WIDTH = 10


class Activity(StrEnum):
    """``DONE_UNSEEN``: an answer was finished while another tab was in front; ``FAILED_UNSEEN``: it
    ended with an error, or failed before it began. One that was stopped leaves no mark.
    """

    IDLE = "idle"
    STREAMING = "streaming"
    WAITING = "waiting"
    DONE_UNSEEN = "done_unseen"
    FAILED_UNSEEN = "failed_unseen"


def activity_words(activity: Activity) -> str:
    """The activity in words; empty for idle."""
    return {
        Activity.STREAMING: tr("answering"),
        Activity.WAITING: tr("waiting"),
        Activity.DONE_UNSEEN: tr("new answer"),
        Activity.FAILED_UNSEEN: tr("failed"),
    }.get(activity, "")


def mark_size() -> QSize:
    """Logical size of ``mark_pixmap``."""
    return QSize(SIDE + MARK_WIDTH, SIDE)


def mark_pixmap(theme: Theme, number: int, activity: Activity, ratio: float) -> QPixmap:
    """Swatch and activity mark side by side, for a tab."""
    pixmap = QPixmap(mark_size() * ratio)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    draw_swatch(painter, theme, QRectF(0, 0, SIDE, SIDE), number)
    draw_activity(painter, theme, QPointF(SIDE + MARK_WIDTH / 2.0 + 1.0, SIDE / 2.0), activity)
    painter.end()
    return pixmap


def swatch_pixmap(theme: Theme, number: int, ratio: float) -> QPixmap:
    """The swatch alone, for a menu."""
    pixmap = QPixmap(QSize(SIDE, SIDE) * ratio)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    draw_swatch(painter, theme, QRectF(0, 0, SIDE, SIDE), number)
    painter.end()
    return pixmap


def draw_swatch(painter: QPainter, theme: Theme, rect: QRectF, number: int) -> None:
    """The hue as a rounded square with the number on it."""
    hue = theme.hue(number)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(hue)
    painter.drawRoundedRect(rect, 4.0, 4.0)
    font = QFont(painter.font())
    font.setPixelSize(round(rect.height() * (0.68 if number < 10 else 0.56)))
    font.setBold(True)
    painter.setFont(font)
    painter.setPen(theme.on(hue))
    painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, str(number))


def draw_activity(painter: QPainter, theme: Theme, center: QPointF, activity: Activity) -> None:
    """A different shape for each activity, so that colour is not all there is."""
    if activity is Activity.STREAMING:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color("accent"))
        painter.drawEllipse(center, 3.5, 3.5)
    elif activity is Activity.WAITING:
        painter.setPen(QPen(theme.color("warning"), 1.6))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(center, 3.0, 3.0)
    elif activity is Activity.DONE_UNSEEN:
        painter.setPen(QPen(theme.color("success"), 2.0))
        x, y = center.x(), center.y()
        points = [QPointF(x - 3.5, y), QPointF(x - 1.0, y + 3.0), QPointF(x + 3.5, y - 3.0)]
        painter.drawPolyline(points)
    elif activity is Activity.FAILED_UNSEEN:
        painter.setPen(QPen(theme.color("error"), 2.0))
        x, y = center.x(), center.y()
        painter.drawLine(QPointF(x, y - 4.0), QPointF(x, y + 1.0))
        painter.drawPoint(QPointF(x, y + 4.0))
