"""Lists whose rows are values made in advance: their model, and the delegate that paints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app import theme as themes_module
from app.theme import Theme, ThemeManager
from app.widgets.rows import paint_row

ROLE = Qt.ItemDataRole.UserRole
Index = QModelIndex | QPersistentModelIndex
Row = TypeVar("Row")


class RowListModel(QAbstractListModel, Generic[Row]):
    """One value a row, under ``ROLE``. A subclass has ``key`` and ``shown``."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._rows: Sequence[Row] = ()

    def key(self, row: Row) -> object:
        """What a row is of, which stays when what is said of it changes."""
        raise NotImplementedError

    def shown(self, row: Row, role: int) -> Any:
        """The text of a row for ``role``; None if it has none."""
        raise NotImplementedError

    def set_rows(self, rows: Sequence[Row]) -> bool:
        """Shows ``rows``; the same keys keep their selection. True if some came, went or moved."""
        before = self._rows
        if [self.key(row) for row in rows] == [self.key(row) for row in before]:
            self._rows = rows
            for place, row in enumerate(rows):
                if row != before[place]:
                    self.dataChanged.emit(self.index(place), self.index(place))
            return False
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()
        return True

    def rows(self) -> Sequence[Row]:
        return self._rows

    def row_at(self, index: Index) -> Row | None:
        """What is shown at an index."""
        return self._rows[index.row()] if index.isValid() else None

    def index_of(self, key: object) -> QModelIndex:
        """Where the row with a key is; invalid if it is not shown."""
        for place, row in enumerate(self._rows):
            if self.key(row) == key:
                return self.index(place)
        return QModelIndex()

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self.row_at(index)
        if row is None:
            return None
        return row if role == ROLE else self.shown(row, role)


class RowDelegate(QStyledItemDelegate, Generic[Row]):
    """Paints the rows of such a model, all of one height. A subclass has ``paint_content``."""

    HEIGHT = 46
    MARGIN = 4.0
    """Above and below what is painted, in pixels."""

    def __init__(self, themes: ThemeManager, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes = themes

    def paint_content(self, painter: QPainter, theme: Theme, rect: QRectF, row: Row) -> None:
        """Paints a row into ``rect``, over its background."""
        raise NotImplementedError

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(0, themes_module.row_height(self.HEIGHT))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme = self._themes.theme
        painter.save()
        rect = paint_row(painter, theme, option).adjusted(10.0, self.MARGIN, -10.0, -self.MARGIN)
        self.paint_content(painter, theme, rect, index.data(ROLE))
        painter.restore()


def paint_elided(
    painter: QPainter,
    rect: QRectF,
    text: str,
    elide: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
) -> None:
    """Text at the left of ``rect``, shortened to its width."""
    shown = painter.fontMetrics().elidedText(text, elide, int(rect.width()))
    painter.drawText(rect, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)


def paint_two_lines(
    painter: QPainter,
    theme: Theme,
    rect: QRectF,
    lines: tuple[str, str],
    *,
    room_at_right: float = 0.0,
    elide: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
) -> None:
    """What a row is of, and below it smaller what is said of it.

    ``room_at_right``: left free beside the upper line, in pixels. ``elide``: of the upper line.
    """
    half = rect.height() / 2.0
    painter.setFont(themes_module.interface_font())
    painter.setPen(theme.color("text"))
    upper = QRectF(rect.left(), rect.top(), rect.width() - room_at_right, half)
    paint_elided(painter, upper, lines[0], elide)
    painter.setFont(themes_module.number_font(8.5))
    painter.setPen(theme.color("muted"))
    paint_elided(painter, QRectF(rect.left(), rect.top() + half, rect.width(), half), lines[1])
