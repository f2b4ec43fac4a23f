"""How full the context is, with the draft in it, and on request what that means for the pool."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.cache_panel.parts import WrappedLabel
from app.gauges import Gauge
from app.i18n import tr, tr_n
from app.theme import ThemeManager, blend
from app.widgets.words import SEPARATOR
from engine.api.events import RequestUsage

_BAR = QSize(56, 6)
_CACHED_AMOUNT = 0.45


class TokenGauge(QWidget):
    """A line of figures that is a button, and a bar. ``clicked``: show the details."""

    clicked = Signal()

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines: list[str] = []
        self.button = QToolButton()
        self.button.setFont(theme.number_font())
        self.button.setProperty("kind", "gauge")
        self.button.setCheckable(True)
        self.button.clicked.connect(self.clicked)
        self.bar = GaugeBar(themes)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addStretch(1)
        row.addWidget(self.button)
        row.addWidget(self.bar)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumWidth(60)
        self.show_figures([], 0, 0, 0)

    @property
    def text(self) -> str:
        """The figures that are shown."""
        return self.button.text()

    def show_figures(self, lines: list[str], cached: int, used: int, limit: int) -> None:
        """``lines``: the figures, the shortest first. The bar: tokens cached, used, the most."""
        self._lines = lines
        self.bar.set_values(cached, used, limit)
        self.button.setVisible(bool(lines))
        self.bar.setVisible(bool(lines) and limit > 0)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """The longest line that there is room for."""
        if not self._lines:
            self.button.setText("")
            return
        room = self.width() - _BAR.width() - 24
        metrics = self.button.fontMetrics()
        fitting = [line for line in self._lines if metrics.horizontalAdvance(line) <= room]
        self.button.setText(fitting[-1] if fitting else self._lines[0])
        self.button.setAccessibleName(tr("Tokens: {figures}", figures=self._lines[-1]))


class GaugeBar(QWidget):
    """Cached tokens pale, others full, against the limit; over it all in the colour of errors."""

    def __init__(self, themes: ThemeManager) -> None:
        super().__init__()
        self._themes = themes
        self._values = (0, 0, 0)
        self.setFixedSize(_BAR)
        themes.changed.connect(self.update)

    def set_values(self, cached: int, used: int, limit: int) -> None:
        if (cached, used, limit) != self._values:
            self._values = (cached, used, limit)
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        cached, used, limit = self._values
        shown = self._themes.theme
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        whole = QRectF(self.rect())
        painter.setBrush(shown.color("strong_line"))
        painter.drawRoundedRect(whole, 3, 3)
        if limit <= 0:
            return
        full = shown.color("error" if used >= limit else "accent")
        pale = blend(shown.color("surface"), full, _CACHED_AMOUNT)
        for amount, color in ((used, full), (min(cached, used), pale)):
            width = whole.width() * min(1.0, amount / limit)
            painter.setBrush(color)
            if width > 0:
                painter.drawRoundedRect(QRectF(0, 0, max(width, 3.0), whole.height()), 3, 3)
        painter.end()


class GaugeDetails(QFrame):
    """What the figures mean, in sentences."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "notice")
        self.label = WrappedLabel(lines=1)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 6, 12, 6)
        column.addWidget(self.label)
        self.hide()

    @property
    def has_lines(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.label.text())

    def show_lines(self, lines: list[str]) -> None:
        """Replaces the sentences."""
        self.label.show_text("\n".join(lines))


def gauge_lines(gauge: Gauge | None, usage: RequestUsage | None, limit: int) -> list[str]:
    """The figures in one line, from the shortest form to the longest; none if nothing is known."""
    if gauge is not None and gauge.prompt_tokens is not None:
        used, cached = gauge.prompt_tokens, gauge.cached_tokens
    elif usage is not None:
        used, cached = usage.prompt_tokens + usage.output_tokens, 0
    else:
        return []
    context = tr("{used} of {total} tokens", used=f"{used:,}", total=f"{limit:,}")
    lines = [f"{used:,} / {limit:,}", context]
    if gauge is not None and gauge.draft_tokens is not None:
        context = tr("Draft {n}", n=f"{gauge.draft_tokens:,}") + SEPARATOR + context
        lines.append(context)
    if cached:
        lines.append(context + SEPARATOR + tr("{cached} cached", cached=f"{cached:,}"))
    return lines


def gauge_sentences(gauge: Gauge, title_of: Callable[[str], str]) -> list[str]:
    """What sending the draft would take, a sentence each."""
    lines: list[str] = []
    if gauge.draft_tokens is not None:
        lines.append(
            tr_n("This message: {n} token.", "This message: {n} tokens.", gauge.draft_tokens)
        )
    if gauge.prompt_tokens is None:
        return lines
    used, limit = f"{gauge.prompt_tokens:,}", f"{gauge.limit_tokens:,}"
    if gauge.is_over:
        words = tr(
            "With it the model would read {used} tokens; the limit is {limit}.",
            used=used,
            limit=limit,
        )
        return [*lines, words]
    lines.append(tr("With it the model reads {used} of {limit} tokens.", used=used, limit=limit))
    new = gauge.prompt_tokens - gauge.cached_tokens
    lines.append(
        tr(
            "{cached} of them are cached, {new} are computed.",
            cached=f"{gauge.cached_tokens:,}",
            new=f"{max(0, new):,}",
        )
    )
    if gauge.blocks_needed:
        lines.append(
            tr(
                "Blocks for it and the longest answer: {needed}, of which {shared} are there.",
                needed=f"{gauge.blocks_needed:,}",
                shared=f"{gauge.blocks_shared:,}",
            )
        )
    if gauge.blocks_evicted:
        lines.append(_evicted_words(gauge, title_of))
    if gauge.blocks_short:
        lines.append(
            tr_n(
                "The pool is {n} block short: the answer waits until another one ends.",
                "The pool is {n} blocks short: the answer waits until another one ends.",
                gauge.blocks_short,
            )
        )
    return lines


def _evicted_words(gauge: Gauge, title_of: Callable[[str], str]) -> str:
    words = tr_n(
        "{n} cached block goes for it.", "{n} cached blocks go for it.", gauge.blocks_evicted
    )
    titles = list(dict.fromkeys(title_of(owner) for owner in gauge.evicted_ids if owner))
    if not titles:
        return words
    quoted = tr(", ").join(tr("“{title}”", title=title) for title in titles)
    return words + " " + tr("They were of {titles}.", titles=quoted)
