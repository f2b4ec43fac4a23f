"""Conversations as their swatches, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme as themes_module
from app.conversation import Conversation
from app.i18n import tr
from app.theme import Theme, ThemeManager
from app.widgets.buttons import plain_tip
from app.widgets.swatch import SIDE, draw_swatch
from app.widgets.words import shown_title

GAP = 4
_MORE_WIDTH = 26


def row_width(count: int, limit: int) -> int:
    """Pixels that ``count`` swatches take, of which at most ``limit`` are drawn."""
    drawn = min(count, limit)
    return drawn * (SIDE + GAP) + (_MORE_WIDTH if count > limit else 0)


def draw_row(
    painter: QPainter, theme: Theme, place: QPointF, numbers: Sequence[int], limit: int
) -> None:
    """Swatches from ``place`` (left, middle) on, and how many more there are."""
    left = place.x()
    for number in numbers[:limit]:
        draw_swatch(painter, theme, QRectF(left, place.y() - SIDE / 2.0, SIDE, SIDE), number)
        left += SIDE + GAP
    if len(numbers) > limit:
        painter.setFont(themes_module.number_font(8.5))
        painter.setPen(theme.color("muted"))
        painter.drawText(QPointF(left, place.y() + 4.0), f"+{len(numbers) - limit}")


def sharing_words(conversations: Sequence[Conversation]) -> str:
    """The same for who does not see them."""
    numbers = ", ".join(str(c.number) for c in conversations)
    return tr("Tabs: {numbers}", numbers=numbers) if conversations else tr("No open tab")


class SwatchRow(QWidget):
    """Swatches of conversations; their titles are the tool tip."""

    LIMIT = 12

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._numbers: tuple[int, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        themes.changed.connect(self.update)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the conversations shown."""
        return self._numbers

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Shows these."""
        self._numbers = tuple(c.number for c in conversations)
        titles = "\n".join(f"{c.number}: {shown_title(c.title)}" for c in conversations)
        self.setToolTip(plain_tip(titles) if titles else "")
        self.setAccessibleName(sharing_words(conversations))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(row_width(len(self._numbers), self.LIMIT), SIDE + 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = QPointF(0.0, self.height() / 2.0)
        draw_row(painter, self._themes.theme, middle, self._numbers, self.LIMIT)
        painter.end()
