"""Where the settings are kept, what in the file is not used, and a reset of everything."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.i18n import tr
from app.settings import Settings


class FilePart(QWidget):
    """``reset_requested``: all settings back to their defaults."""

    reset_requested = Signal()

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.where = _text_label()
        self.unused = _text_label()
        self.unused.setProperty("tone", "warning")
        self.open_button = QPushButton(tr("Open the folder"))
        self.open_button.setObjectName("settings folder")
        self.open_button.clicked.connect(self._on_open_clicked)
        if settings.path is None:
            self.open_button.hide()
        self.reset_button = QPushButton(tr("Reset all settings"))
        self.reset_button.setObjectName("settings reset all")
        self.reset_button.clicked.connect(self.reset_requested)
        note = _text_label()
        note.setProperty("tone", "muted")
        note.setText(tr("Shortcuts, the language and the default system prompt are kept."))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.open_button)
        row.addWidget(self.reset_button)
        row.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 6, 0, 6)
        column.setSpacing(8)
        column.addWidget(self.where)
        column.addWidget(self.unused)
        column.addLayout(row)
        column.addWidget(note)
        self.refresh()

    def matches(self, words: list[str]) -> bool:
        said = " ".join((tr("Settings file"), self.where.text(), self.unused.text(), "reset"))
        return all(word in said.lower() for word in words)

    def refresh(self) -> None:
        """The settings changed."""
        path = self._settings.path
        self.where.setText(tr("Kept for this run only.") if path is None else str(path))
        lines = list(_unused_lines(self._settings.unused, ""))
        words = tr("In the file, but not used:")
        self.unused.setText("\n".join([words, *lines]) if lines else "")
        self.unused.setVisible(bool(lines))

    def _on_open_clicked(self) -> None:
        if self._settings.path is not None:
            folder = self._settings.path.parent
            folder.mkdir(parents=True, exist_ok=True)
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))


def _unused_lines(unused: dict[str, object], prefix: str) -> list[str]:
    lines: list[str] = []
    for name, value in unused.items():
        if isinstance(value, dict) and not prefix:
            lines += _unused_lines(value, f"{name}.")
        else:
            shown = repr(value)
            lines.append(f"{prefix}{name} = {shown if len(shown) <= 80 else shown[:80] + '…'}")
    return lines


def _text_label() -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
