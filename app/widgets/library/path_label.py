"""Where a model lies, to read and to copy."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QLabel, QMenu

from app.i18n import tr
from app.markdown_inline import visible_text

_BREAK = "\u200b"


class PathLabel(QLabel):
    """A path that breaks after each of its parts, however long it is. What is copied of it is the
    path as it is.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        shown = visible_text(path).replace("/", f"/{_BREAK}").replace("\\", f"\\{_BREAK}")
        self.setText(shown)

    def copy(self) -> None:
        """Copies what is selected, or all."""
        chosen = self.selectedText()
        is_all = not chosen or len(chosen) == len(self.text())
        text = self._path if is_all else chosen.replace(_BREAK, "")
        QGuiApplication.clipboard().setText(text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Copy"), self.copy)
        menu.popup(event.globalPos())
