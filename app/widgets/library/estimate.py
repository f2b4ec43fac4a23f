"""What loading a model would take here, in words, figures and a bar."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from app.i18n import tr
from app.library.speeds import Speed
from app.theme import ThemeManager
from app.widgets.library.memory_bar import MemoryBar
from app.widgets.library.words import (
    cache_words,
    fit_words,
    held_words,
    kept_words,
    parts_words,
    speed_words,
    taken_words,
)
from engine.api.events import ModelInfo
from engine.api.model_description import ModelDescription


class EstimateView(QWidget):
    """Said before loading; of the loaded model it is what it takes."""

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.heading = QLabel()
        self.heading.setProperty("role", "heading")
        self.bar = MemoryBar(themes)
        self.fit = _line()
        self.parts = _line("muted")
        self.cache = _line()
        self.speed = _line()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        for widget in (self.heading, self.bar, self.fit, self.cache, self.speed, self.parts):
            column.addWidget(widget)

    def show_description(
        self, about: ModelDescription, speed: Speed, info: ModelInfo | None
    ) -> None:
        """Shows another estimate. ``info``: of the model if it is the loaded one."""
        device = f"{about.device}, {about.dtype}"
        if info is None:
            self.heading.setText(tr("If it is loaded here ({device})", device=device))
            self.fit.setText(fit_words(about))
            self.cache.setText(cache_words(about))
        else:
            device = f"{info.device}, {info.dtype}"
            self.heading.setText(tr("Loaded here ({device})", device=device))
            self.fit.setText(taken_words(info))
            self.cache.setText(held_words(info))
        self.bar.show_description(about)
        tone = "" if about.fits or info is not None else "error"
        if (self.fit.property("tone") or "") != tone:
            self.fit.setProperty("tone", tone)
            self.fit.style().unpolish(self.fit)
            self.fit.style().polish(self.fit)
        self.parts.setText(parts_words(about) if info is None else kept_words(info))
        self.parts.setVisible(bool(self.parts.text()))
        self.cache.setVisible(about.fits or info is not None)
        self.speed.setText(speed_words(speed))
        self.speed.setVisible(bool(self.speed.text()))


def _line(tone: str = "") -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if tone:
        label.setProperty("tone", tone)
    return label
