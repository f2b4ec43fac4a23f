"""A short list to choose a page from."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QListWidget, QListWidgetItem, QWidget

from app import theme

_ROW = 30


class SectionList(QListWidget):
    """Rows of one line each; the current one says which page is shown."""

    def __init__(self, name: str, width: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "sections")
        self.setAccessibleName(name)
        self.setFixedWidth(width)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)

    def add(self, text: str) -> None:
        """Adds a row."""
        item = QListWidgetItem(text)
        item.setSizeHint(QSize(0, theme.row_height(_ROW)))
        item.setToolTip(text)
        self.addItem(item)
