"""Chooses a system prompt of the library by name."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QWidget

from app.i18n import tr
from app.prompts import Prompts
from app.widgets.calm_combo import CalmComboBox

_WIDTH = 8
"""In characters, at least."""
_MAX_WIDTH = 240


class PromptCombo(CalmComboBox):
    """``prompt_chosen(text)``: one of the library was chosen."""

    prompt_chosen = Signal(str)

    def __init__(self, prompts: Prompts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._prompts = prompts
        self._text = ""
        self.setAccessibleName(tr("System prompt of the library"))
        self.view().setAccessibleName(tr("System prompts"))
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(_WIDTH)
        self.setMinimumWidth(80)
        self.setMaximumWidth(_MAX_WIDTH)
        self.activated.connect(self._on_activated)
        prompts.changed.connect(self._fill)
        self._fill()

    def show_text(self, text: str) -> None:
        """Shows which prompt reads so, or that none does."""
        if text != self._text:
            self._text = text
            self._choose()

    def _fill(self) -> None:
        self.clear()
        for prompt in self._prompts.all():
            self.addItem(prompt.name, prompt.prompt_id)
        self.addItem(tr("A text of its own"), "")
        self._choose()

    def _choose(self) -> None:
        default = self._prompts.default
        fits = default is not None and default.text == self._text
        found = default if fits else self._prompts.with_text(self._text)
        index = self.findData(found.prompt_id if found is not None else "")
        self.setCurrentIndex(index)

    def _on_activated(self, index: int) -> None:
        prompt = self._prompts.get(str(self.itemData(index)))
        if prompt is None:
            # A text of its own begins with what is there.
            self._choose()
        elif prompt.text != self._text:
            self._text = prompt.text
            self.prompt_chosen.emit(prompt.text)
