"""Which chat template a model is talked to with."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.i18n import tr
from app.widgets.calm_combo import CalmComboBox
from app.widgets.library.words import template_title
from app.widgets.template_words import template_words
from engine.api.chat_templates import CHAT_TEMPLATES
from engine.api.events import ModelInfo, TemplateNote


class TemplateRow(QWidget):
    """``chosen(name)``: by the user; empty for the model's own."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.note = QLabel()
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setWordWrap(True)
        self.name = QLabel(tr("Chat template"))
        self.name.setProperty("tone", "muted")
        self.combo = CalmComboBox()
        self.combo.setObjectName("model template")
        self.combo.setAccessibleName(tr("Chat template"))
        self.combo.activated.connect(lambda _n: self.chosen.emit(str(self.combo.currentData())))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.name)
        row.addWidget(self.combo, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.note)
        column.addLayout(row)

    def show_choice(self, has_own: bool, name: str, info: ModelInfo | None) -> None:
        """``name``: the template chosen for the model. ``info``: of the loaded model, which knows
        what its tokenizer has the control tokens for.
        """
        fitting = CHAT_TEMPLATES if info is None else info.chat_template_choices
        names = ["", *fitting, *([name] if name and name not in fitting else [])]
        if names != [self.combo.itemData(n) for n in range(self.combo.count())]:
            self.combo.clear()
            for each in names:
                self.combo.addItem(template_title(each, has_own), each)
        else:
            self.combo.setItemText(0, template_title("", has_own))
        self.combo.setCurrentIndex(max(self.combo.findData(name), 0))
        self.note.setText(_note(has_own, name, info))
        self.note.setVisible(bool(self.note.text()))


def _note(has_own: bool, name: str, info: ModelInfo | None) -> str:
    if info is not None and info.chat_template != name:
        return tr("Takes effect when the model is loaded again.")
    if info is not None and info.template_note is not TemplateNote.ABSENT:
        return template_words(info)
    if not has_own and not name:
        return tr(
            "The model brings no chat template. Choose the one that it was trained with, or it is "
            "given plain text."
        )
    return ""
