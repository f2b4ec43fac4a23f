"""Large pastes as chips: kept out of the text box, where they would make every key press slow."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton

_PREVIEW = 60


class Attachments(QWidget):
    """Texts that will be sent before what is typed. ``changed`` after each change."""

    changed = Signal()

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._chips: list[tuple[str, QFrame]] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(4)
        self.hide()

    @property
    def texts(self) -> list[str]:
        return [text for text, _chip in self._chips]

    def add(self, text: str) -> None:
        """Adds a chip for ``text``."""
        chip = QFrame()
        chip.setProperty("role", "notice")
        row = QHBoxLayout(chip)
        row.setContentsMargins(8, 2, 4, 2)
        preview = " ".join(text[:_PREVIEW].split())
        words = tr("Pasted text, {size} KB: {preview}…", size=len(text) // 1000, preview=preview)
        label = QLabel(words)
        label.setTextFormat(Qt.TextFormat.PlainText)
        row.addWidget(label, 1)
        remove = IconButton(self._themes, "close", tr("Remove pasted text"), chip, "muted")
        remove.clicked.connect(lambda: self._remove(chip))
        row.addWidget(remove)
        self._chips.append((text, chip))
        self._column.addWidget(chip)
        self.show()
        self.changed.emit()

    def clear(self) -> None:
        """Takes all chips away."""
        if not self._chips:
            return
        for _text, chip in self._chips:
            chip.deleteLater()
        self._chips.clear()
        self.hide()
        self.changed.emit()

    def _remove(self, chip: QFrame) -> None:
        self._chips = [entry for entry in self._chips if entry[1] is not chip]
        chip.deleteLater()
        self.setVisible(bool(self._chips))
        self.changed.emit()
