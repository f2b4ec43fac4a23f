"""The controls of a recording: play, one step, a slider through time."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from app.cache_panel.parts import plain_label, set_text
from app.cache_panel.units import rate_words
from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton

RATES = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
FIRST_RATE = 10.0


class TraceBar(QWidget):
    """Says what the user wants; ``show_place`` shows where the recording stands.

    Signals:
        play_requested(bool): to play, or to pause.
        step_requested(int): so many steps on; -1 is one back.
        place_requested(int): to the place after so many steps.
    """

    play_requested = Signal(bool)
    step_requested = Signal(int)
    place_requested = Signal(int)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.is_playing = False
        self.back_button = IconButton(themes, "step_back", tr("One step back"))
        self.play_button = IconButton(themes, "play", tr("Play"))
        self.step_button = IconButton(themes, "step", tr("One step on"))
        self.rate_box = QComboBox()
        self.rate_box.setAccessibleName(tr("Speed of playing"))
        self.rate_box.setToolTip(tr("Speed of playing"))
        self.rate_box.view().setAccessibleName(tr("Speed of playing"))
        for rate in RATES:
            self.rate_box.addItem(rate_words(rate), rate)
        self.rate_box.setCurrentIndex(RATES.index(FIRST_RATE))
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(tr("Place in the recording"))
        self.slider.setRange(0, 0)
        self.place_label = plain_label(tone="muted")
        row = QHBoxLayout()
        row.setSpacing(4)
        for button in (self.back_button, self.play_button, self.step_button):
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            row.addWidget(button)
        row.addWidget(self.rate_box)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self.slider)
        layout.addWidget(self.place_label)
        self.back_button.clicked.connect(lambda: self.step_requested.emit(-1))
        self.step_button.clicked.connect(lambda: self.step_requested.emit(1))
        self.play_button.clicked.connect(lambda: self.play_requested.emit(not self.is_playing))
        self.slider.valueChanged.connect(self.place_requested)

    @property
    def rate(self) -> float:
        """Steps a second."""
        return float(self.rate_box.currentData())

    def show_playing(self, is_playing: bool) -> None:
        """Makes the middle button what it does next."""
        self.is_playing = is_playing
        self.play_button.set_icon("pause" if is_playing else "play", "text")
        self.play_button.set_name(tr("Pause") if is_playing else tr("Play"))

    def show_place(self, index: int, num_steps: int, step: int, event: int, loaded: bool) -> None:
        """The recording stands after ``index`` of ``num_steps`` steps, in the engine's ``step``."""
        self.slider.blockSignals(True)
        self.slider.setMaximum(num_steps)
        # The user's hand is on it: it says where to go, not where we are.
        if not self.slider.isSliderDown():
            self.slider.setValue(index)
        self.slider.blockSignals(False)
        text = tr(
            "Step {step} · {index} of {total} · {events} events",
            step=f"{step:,}",
            index=f"{index:,}",
            total=f"{num_steps:,}",
            events=f"{event:,}",
        )
        if not loaded:
            text = tr("{place} · reading …", place=text)
        set_text(self.place_label, text)
