"""How a model would share the free memory: weights, workspace, cache."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import ThemeManager, blend
from engine.api.model_description import ModelDescription

_HEIGHT = 10
_GAP = 1.0


class MemoryBar(QWidget):
    """The whole is the free memory, or what the model takes where that is more. The sentences
    beside it say the same, so it has no name of its own.
    """

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._about: ModelDescription | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        themes.changed.connect(self.update)

    def show_description(self, about: ModelDescription) -> None:
        """Draws another one."""
        self._about = about
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, _HEIGHT)

    def parts(self) -> list[tuple[str, float]]:
        """(colour token, share of the whole) from left to right."""
        about = self._about
        if about is None:
            return []
        cache = about.cache_tokens * about.kv_bytes_per_1000_tokens // 1000
        taken = about.weights_bytes + about.workspace_bytes + cache
        whole = max(about.free_bytes, taken, 1)
        strong = "accent" if about.fits else "error"
        return [
            (strong, about.weights_bytes / whole),
            ("muted", about.workspace_bytes / whole),
            ("cache", cache / whole),
        ]

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self._themes.theme
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        whole = QRectF(self.rect())
        outline = QPainterPath()
        outline.addRoundedRect(whole, 4.0, 4.0)
        painter.setClipPath(outline)
        painter.fillRect(whole, theme.color("line"))
        left = 0.0
        for token, share in self.parts():
            soft = blend(theme.color("surface"), theme.color("accent"), 0.4)
            width = share * whole.width()
            color = soft if token == "cache" else theme.color(token)
            painter.fillRect(QRectF(left, 0.0, max(width - _GAP, 0.0), whole.height()), color)
            left += width
        painter.end()
