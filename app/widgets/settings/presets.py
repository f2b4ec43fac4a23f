"""Sampling presets to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.i18n import tr
from app.sampling_presets import (
    BALANCED,
    CREATIVE,
    LIKELIEST,
    PRECISE,
    PRESETS,
    preset_of,
    with_preset,
)
from engine.api.params import SamplingParams


def preset_words() -> dict[str, tuple[str, str]]:
    """(name, explanation) of each preset."""
    return {
        PRECISE: (tr("Precise"), tr("For facts, code and summaries.")),
        BALANCED: (tr("Balanced"), tr("For most things.")),
        CREATIVE: (tr("Creative"), tr("For ideas and stories.")),
        LIKELIEST: (tr("Greedy"), tr("Always the likeliest word: the same answer each time.")),
    }


class PresetRow(QWidget):
    """A button for each preset; the one in force is checked.

    ``chosen``: the parameters that differ, by name.
    """

    chosen = Signal(object)

    def __init__(self, params: Callable[[], SamplingParams]) -> None:
        super().__init__()
        self._params = params
        label = QLabel(tr("Presets"))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 6, 0, 6)
        row.setSpacing(8)
        row.addWidget(label)
        row.addStretch(1)
        self.buttons: dict[str, QPushButton] = {}
        words = preset_words()
        for name in PRESETS:
            text, help_text = words[name]
            button = QPushButton(text)
            button.setObjectName(f"preset {name}")
            button.setCheckable(True)
            button.setToolTip(help_text)
            button.setAccessibleDescription(help_text)
            button.clicked.connect(lambda _checked=False, name=name: self._choose(name))
            self.buttons[name] = button
            row.addWidget(button)
        self.refresh()

    def matches(self, words: list[str]) -> bool:
        said = " ".join(part for pair in preset_words().values() for part in pair).lower()
        return all(word in f"{tr('Presets')} {said}".lower() for word in words)

    def refresh(self) -> None:
        """The parameters changed."""
        present = preset_of(self._params())
        for name, button in self.buttons.items():
            button.setChecked(name == present)

    def _choose(self, name: str) -> None:
        before, after = asdict(self._params()), asdict(with_preset(self._params(), name))
        self.chosen.emit({key: value for key, value in after.items() if value != before[key]})
        self.refresh()
