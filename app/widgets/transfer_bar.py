"""How far an export or import is, with a way to stop it."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QWidget

from app.i18n import tr

PATIENCE_MS = 300
_PARTS = 1000


class TransferBar(QFrame):
    """Seen only while something takes longer than ``PATIENCE_MS``. ``cancelled()``: the button."""

    cancelled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "transfer")
        self.label = QLabel()
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setAccessibleName(tr("Progress"))
        self.button = QPushButton(tr("Cancel"))
        self.button.clicked.connect(self.cancelled)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 8, 12, 8)
        row.setSpacing(12)
        row.addWidget(self.label)
        row.addWidget(self.progress, 1)
        row.addWidget(self.button)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(PATIENCE_MS)
        self._patience.timeout.connect(self.show)
        self.hide()

    def begin(self, text: str) -> None:
        """Something begins that may take long."""
        self.label.setText(text)
        self.set_part(0.0)
        self.button.setEnabled(True)
        self._patience.start()

    def set_part(self, part: float) -> None:
        """``part`` of it, 0 to 1, is done."""
        self.progress.setRange(0, _PARTS)
        self.progress.setValue(round(part * _PARTS))

    def wait(self, text: str) -> None:
        """The rest cannot be measured, nor stopped."""
        self.label.setText(text)
        self.progress.setRange(0, 0)
        self.button.setEnabled(False)

    def end(self) -> None:
        """It is over."""
        self._patience.stop()
        self.hide()
