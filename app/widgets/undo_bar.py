"""What was just taken away, and the way back."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton


class UndoBar(QFrame):
    """One line; hidden while there is nothing to undo."""

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._undo: Callable[[], object] | None = None
        self.setProperty("role", "notice")
        self.label = QLabel()
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.undo_button = QPushButton(tr("Undo"))
        self.undo_button.clicked.connect(self._on_undo_clicked)
        self.close_button = IconButton(themes, "close", tr("Dismiss"), self, "muted")
        self.close_button.clicked.connect(self.hide)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.setSpacing(8)
        row.addWidget(self.label, 1)
        row.addWidget(self.undo_button)
        row.addWidget(self.close_button)
        self.hide()

    def offer(self, words: str, undo: Callable[[], object]) -> None:
        """Says what is gone; ``undo`` brings it back."""
        self._undo = undo
        self.label.setText(words)
        self.show()

    def _on_undo_clicked(self) -> None:
        undo, self._undo = self._undo, None
        self.hide()
        if undo is not None:
            undo()
