"""The system prompt of one conversation, with what another one would cost it."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.session import Session
from app.widgets.prompt_combo import PromptCombo
from app.widgets.prompt_cost_row import PromptCostRow
from app.widgets.text_edits import replace_text, written_text


class SystemPromptDialog(QDialog):
    """Changes nothing before Save."""

    def __init__(self, session: Session, conversation_id: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        self._conversation_id = conversation_id
        self._before = session.conversation(conversation_id).system_prompt
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("System prompt"))
        self.resize(560, 380)
        self.combo = PromptCombo(session.prompts)
        self.combo.show_text(self._before)
        library = QPushButton(tr("Library…"))
        library.clicked.connect(self._on_library_clicked)
        self.edit = QPlainTextEdit(self._before)
        self.edit.setAccessibleName(tr("System prompt"))
        self.edit.setTabChangesFocus(True)
        self.edit.textChanged.connect(self._on_edit_text_changed)
        self.combo.prompt_chosen.connect(partial(replace_text, self.edit))
        self.cost = PromptCostRow(session)
        self.default_box = QCheckBox(tr("Use as default for new tabs"))
        kinds = QDialogButtonBox.StandardButton
        self.buttons = QDialogButtonBox(kinds.Save | kinds.Cancel)
        self.buttons.accepted.connect(self.accept)
        self.buttons.rejected.connect(self.reject)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.combo)
        row.addStretch(1)
        row.addWidget(library)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addLayout(row)
        for widget in (self.edit, self.cost, self.default_box, self.buttons):
            column.addWidget(widget)
        self.edit.setFocus()

    def accept(self) -> None:
        text = written_text(self.edit)
        if self._conversation_id in self._session.conversation_ids():
            self._session.set_system_prompt(self._conversation_id, text)
        if self.default_box.isChecked():
            self._session.set_default_system_prompt(text)
        super().accept()

    def _on_edit_text_changed(self) -> None:
        text = written_text(self.edit)
        self.combo.show_text(text)
        if text == self._before:
            self.cost.withdraw()
        else:
            self.cost.offer([self._conversation_id], text, tr("Used from the next answer on."))

    def _on_library_clicked(self) -> None:
        prompt = self._session.prompts.with_text(written_text(self.edit))
        self._session.prompts.library_requested.emit("" if prompt is None else prompt.prompt_id)
