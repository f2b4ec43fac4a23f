"""The messages that a search found, for the side bar."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt

from app.conversation import USER
from app.i18n import tr
from app.store_search import SearchHit
from app.widgets.words import shown_title

Index = QModelIndex | QPersistentModelIndex
HIT_ROLE = Qt.ItemDataRole.UserRole


class SearchHitModel(QAbstractListModel):
    """One row a hit."""

    def __init__(self) -> None:
        super().__init__()
        self._hits: tuple[SearchHit, ...] = ()

    def set_hits(self, hits: tuple[SearchHit, ...]) -> None:
        """Shows other hits."""
        if hits != self._hits:
            self.beginResetModel()
            self._hits = hits
            self.endResetModel()

    def hit(self, index: Index) -> SearchHit | None:
        """The hit at an index."""
        return self._hits[index.row()] if index.isValid() else None

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._hits)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        hit = self.hit(index)
        if hit is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return hit.snippet
        if role == HIT_ROLE:
            return hit
        if role == Qt.ItemDataRole.AccessibleTextRole:
            who = tr("You") if hit.role == USER else tr("Answer")
            return f"{shown_title(hit.title)}, {who}: {hit.snippet}"
        return None
