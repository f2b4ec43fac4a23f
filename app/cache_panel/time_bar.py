"""The last minute above the live pool: a timeline, one step back and forth, back to the present."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QToolButton, QVBoxLayout, QWidget

from app.cache_panel import words
from app.cache_panel.history import SPAN_S, Moment
from app.cache_panel.meter import Meter
from app.cache_panel.timeline import Timeline
from app.i18n import tr
from app.theme import Theme, ThemeManager
from app.widgets.buttons import IconButton


class TimeBar(QWidget):
    """Says which moment the user wants to see; its ``buttons`` stand where the owner puts them.

    Signals:
        time_chosen(float): on the history's clock.
        step_requested(int): -1 or 1, one engine step.
        live_requested(): to the present.
    """

    time_chosen = Signal(float)
    step_requested = Signal(int)
    live_requested = Signal()

    def __init__(self, themes: ThemeManager, meter: Meter, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.timeline = Timeline(themes.theme, meter)
        self.back_button = IconButton(themes, "step_back", tr("One step back in the last minute"))
        self.step_button = IconButton(themes, "step", tr("One step on in the last minute"))
        self.live_button = QToolButton()
        self.live_button.setText(tr("Live"))
        self.live_button.setAccessibleName(tr("Back to the present"))
        self.live_button.setToolTip(tr("Back to the present"))
        for button in self.buttons:
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.timeline)
        self.back_button.clicked.connect(lambda: self.step_requested.emit(-1))
        self.step_button.clicked.connect(lambda: self.step_requested.emit(1))
        self.live_button.clicked.connect(self.live_requested)
        self.timeline.time_chosen.connect(self.time_chosen)
        self.timeline.stepped.connect(self.step_requested)
        self.timeline.live_requested.connect(self.live_requested)
        themes.changed.connect(self._on_theme_changed)
        self.show_nothing()

    @property
    def buttons(self) -> list[QToolButton]:
        """One step back, one step on, back to the present."""
        return [self.back_button, self.step_button, self.live_button]

    def show_nothing(self) -> None:
        """There is no pool."""
        self.timeline.clear()
        self._show("", is_live=True, has_past=False)

    def show_live(self, moment: Moment, span_s: float) -> None:
        """The present is shown; so many seconds before it are kept."""
        parts = [tr("height: {blocks}", blocks=words.blocks(self.timeline.top_blocks))]
        if span_s > 0:
            parts.insert(0, tr("the last {time}", time=words.seconds(min(span_s, SPAN_S))))
        self._show(" · ".join(parts), is_live=True, has_past=True)
        self._describe(moment)

    def show_past(self, moment: Moment, step: int, ago_s: float) -> None:
        """An earlier moment is shown, within ``step``."""
        text = tr("Step {step} · {time} ago", time=words.seconds(ago_s), step=f"{step:,}")
        self._show(text, is_live=False, has_past=True)
        self._describe(moment)

    def _show(self, text: str, *, is_live: bool, has_past: bool) -> None:
        self.timeline.show_words(text, stands_out=not is_live)
        self.live_button.setEnabled(not is_live)
        self.step_button.setEnabled(not is_live)
        self.back_button.setEnabled(has_past)

    def _describe(self, moment: Moment) -> None:
        counts = moment.counts
        self.timeline.setAccessibleDescription(
            tr(
                "{when}: {used} used, {saved} saved by sharing, {cached} cached, {free} free. "
                "Left and Right go one step back and on, End returns to the present.",
                when=self.timeline.words,
                used=words.blocks(counts.used),
                saved=words.blocks(moment.saved_blocks),
                cached=words.blocks(counts.cached),
                free=words.blocks(counts.free),
            )
        )

    def _on_theme_changed(self, theme: Theme) -> None:
        self.timeline.set_theme(theme)
