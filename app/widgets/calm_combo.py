"""A combo box on a page that scrolls."""

from __future__ import annotations

from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox


class CalmComboBox(QComboBox):
    """The wheel scrolls the page; it would otherwise change what it happens to pass."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()
