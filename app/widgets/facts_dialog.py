"""How an answer was made: a window beside the main one."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.i18n import tr
from app.widgets.answer_words import Section, facts_text


class FactsDialog(QDialog):
    """``repeat`` runs the answer again; ``obstacle`` says why that cannot be, or is empty."""

    def __init__(
        self,
        sections: list[Section],
        repeat: Callable[[], object],
        obstacle: str,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._sections = sections
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("About this answer"))
        table = QWidget()
        grid = QGridLayout(table)
        grid.setContentsMargins(20, 16, 20, 16)
        grid.setHorizontalSpacing(24)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 1)
        self.values: dict[str, QLabel] = {}
        for section in sections:
            self._add_section(grid, section)
        grid.setRowStretch(grid.rowCount(), 1)
        area = QScrollArea()
        area.setWidget(table)
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        area.setAccessibleName(tr("About this answer"))
        self.repeat_button = QPushButton(tr("Run again identically"))
        self.repeat_button.setEnabled(not obstacle)
        self.copy_button = QPushButton(tr("Copy"))
        self.close_button = QPushButton(tr("Close"))
        self.close_button.setDefault(True)
        self.note = QLabel(obstacle)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setWordWrap(True)
        self.note.setProperty("tone", "muted")
        self.note.setContentsMargins(20, 0, 20, 0)
        if not obstacle:
            self.note.hide()
        row = QHBoxLayout()
        row.setContentsMargins(16, 8, 16, 16)
        row.setSpacing(8)
        row.addWidget(self.repeat_button)
        row.addStretch(1)
        row.addWidget(self.copy_button)
        row.addWidget(self.close_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(area, 1)
        column.addWidget(self.note)
        column.addLayout(row)
        self.repeat_button.clicked.connect(repeat)
        self.repeat_button.clicked.connect(self.accept)
        self.copy_button.clicked.connect(self._copy)
        self.close_button.clicked.connect(self.reject)
        self.resize(540, min(table.sizeHint().height() + 80, 640))
        self.close_button.setFocus()

    def _add_section(self, grid: QGridLayout, section: Section) -> None:
        heading = QLabel(section.heading)
        heading.setProperty("role", "heading")
        row = grid.rowCount()
        if row > 1:
            grid.setRowMinimumHeight(row, 10)
            row += 1
        grid.addWidget(heading, row, 0, 1, 2)
        for name, value in section.rows:
            row += 1
            label = QLabel(name)
            label.setProperty("tone", "muted")
            shown = QLabel(value)
            shown.setTextFormat(Qt.TextFormat.PlainText)
            shown.setWordWrap(True)
            shown.setFont(theme.number_font(label.font().pointSizeF()))
            shown.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            grid.addWidget(label, row, 0)
            grid.addWidget(shown, row, 1)
            self.values[name] = shown

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(facts_text(self._sections))
