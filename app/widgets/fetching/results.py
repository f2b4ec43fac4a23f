"""The list of models that a search found."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QRectF, Qt
from PySide6.QtGui import QPainter

from app.fetching.catalogue import SearchResult
from app.markdown_inline import visible_text
from app.theme import Theme
from app.widgets.buttons import plain_tip
from app.widgets.fetching.words import result_words
from app.widgets.row_list import RowDelegate, RowListModel, paint_two_lines


class ResultModel(RowListModel[SearchResult]):
    """One row a repository."""

    def key(self, row: SearchResult) -> str:
        return row.repo_id

    def set_rows(self, rows: Sequence[SearchResult]) -> bool:
        """Shows ``rows``; more of the same search are added below and keep the selection."""
        num = len(self._rows)
        if not num or rows[:num] != self._rows:
            return super().set_rows(rows)
        if len(rows) == num:
            return False
        self.beginInsertRows(QModelIndex(), num, len(rows) - 1)
        self._rows = rows
        self.endInsertRows()
        return True

    def shown(self, row: SearchResult, role: int) -> str | None:
        if role == Qt.ItemDataRole.DisplayRole:
            return visible_text(row.repo_id)
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip(visible_text(row.repo_id))
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{visible_text(row.repo_id)}, {result_words(row)}"
        return None


class ResultDelegate(RowDelegate[SearchResult]):
    """The name; below it what is known of the model."""

    def paint_content(
        self, painter: QPainter, theme: Theme, rect: QRectF, row: SearchResult
    ) -> None:
        lines = (visible_text(row.repo_id), result_words(row))
        paint_two_lines(painter, theme, rect, lines, elide=Qt.TextElideMode.ElideMiddle)
