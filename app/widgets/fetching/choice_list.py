"""The list of what can be fetched of a repository: each with its size and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from app import theme as themes_module
from app.fetching.catalogue import Choice
from app.theme import Theme, ThemeManager
from app.widgets.buttons import plain_tip
from app.widgets.fetching.words import choice_words
from app.widgets.library.words import size_words
from app.widgets.row_list import RowDelegate, RowListModel, paint_elided

_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_SIZE_WIDTH = 76.0
_GAP = 16.0


# The columns of all follow the widest: where one has changed all are painted.
@dataclass(frozen=True, slots=True, eq=False)
class ChoiceRow:
    """``fit``: whether it fits, in one or two words; ``tone``: the colour of them."""

    choice: Choice
    fit: str
    tone: str


class ChoiceModel(RowListModel[ChoiceRow]):
    """One row a choice."""

    def key(self, row: ChoiceRow) -> Choice:
        return row.choice

    def shown(self, row: ChoiceRow, role: int) -> str | None:
        words = choice_words(row.choice)
        if role == Qt.ItemDataRole.DisplayRole:
            return words
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip("\n".join(file.name for file in row.choice.files))
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{words}, {size_words(row.choice.total_bytes)}, {row.fit}"
        return None


class ChoiceDelegate(RowDelegate[ChoiceRow]):
    """Name, size and fit in one line, in columns."""

    HEIGHT = 30
    MARGIN = 0.0

    def __init__(self, themes: ThemeManager, model: ChoiceModel, parent: QWidget) -> None:
        super().__init__(themes, parent)
        self._model = model

    def paint_content(self, painter: QPainter, theme: Theme, rect: QRectF, row: ChoiceRow) -> None:
        painter.setFont(themes_module.interface_font())
        painter.setPen(theme.color("muted" if row.choice.unusable else "text"))
        metrics = painter.fontMetrics()
        fits = max(metrics.horizontalAdvance(other.fit) for other in self._model.rows())
        room = rect.width() - _SIZE_WIDTH - fits - _GAP
        name = QRectF(rect.left(), rect.top(), room, rect.height())
        paint_elided(painter, name, choice_words(row.choice), Qt.TextElideMode.ElideMiddle)
        painter.setFont(themes_module.number_font(9.0))
        size = QRectF(rect.left() + room, rect.top(), _SIZE_WIDTH, rect.height())
        painter.drawText(size, _RIGHT, size_words(row.choice.total_bytes))
        painter.setPen(theme.color(row.tone))
        painter.drawText(rect, _RIGHT, row.fit)
