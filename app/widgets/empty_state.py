"""What an empty tab offers: the system prompt, the model and three questions to begin with."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.widgets.template_words import template_words
from app.widgets.words import model_words

_PROMPT_LINES = 5


def example_questions() -> tuple[str, str, str]:
    """Three first questions in the user's language."""
    return (
        tr("Explain in three sentences how a cache saves work."),
        tr("Write a Python function that checks whether a text is a palindrome."),
        tr("Give me five ideas for a rainy Sunday."),
    )


class EmptyState(QWidget):
    """``question_chosen(text)``: an example was clicked. ``prompt_edited(text)``: each change."""

    question_chosen = Signal(str)
    prompt_edited = Signal(str)

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        title = QLabel(tr("What shall we talk about?"))
        title.setProperty("role", "title")
        self.model = QLabel()
        self.model.setTextFormat(Qt.TextFormat.PlainText)
        self.model.setProperty("tone", "muted")
        self.template = QLabel()
        self.template.setTextFormat(Qt.TextFormat.PlainText)
        self.template.setWordWrap(True)
        self.template.setProperty("tone", "muted")
        column = QVBoxLayout()
        column.setSpacing(8)
        column.addWidget(title)
        column.addWidget(self.model)
        column.addWidget(self.template)
        column.addSpacing(12)
        self.prompt = QPlainTextEdit()
        self._add_prompt(column)
        column.addSpacing(12)
        self.examples = [QPushButton(text) for text in example_questions()]
        for button in self.examples:
            button.setProperty("kind", "example")
            button.clicked.connect(lambda _c=False, b=button: self.question_chosen.emit(b.text()))
            column.addWidget(button)
        holder = QWidget()
        holder.setMaximumWidth(600)
        holder.setLayout(column)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(20, 20, 20, 12)
        outer.addStretch(2)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(holder, 100)
        row.addStretch(1)
        outer.addLayout(row)
        outer.addStretch(3)
        session.model_state_changed.connect(self.refresh_model)
        self.refresh_model()

    def _add_prompt(self, column: QVBoxLayout) -> None:
        label = QLabel(tr("System prompt"))
        label.setProperty("role", "heading")
        label.setBuddy(self.prompt)
        self.prompt.setAccessibleName(tr("System prompt"))
        self.prompt.setPlaceholderText(tr("How the model should behave; may be empty"))
        self.prompt.setTabChangesFocus(True)
        self.prompt.setFixedHeight(self.fontMetrics().lineSpacing() * _PROMPT_LINES + 12)
        self.prompt.textChanged.connect(lambda: self.prompt_edited.emit(self.prompt.toPlainText()))
        self.default_button = QPushButton(tr("Use as default for new tabs"))
        self.default_button.setProperty("kind", "quiet")
        self.default_button.clicked.connect(self._on_default_clicked)
        self.shared = QLabel()
        self.shared.setProperty("tone", "muted")
        row = QHBoxLayout()
        row.addWidget(label)
        row.addStretch(1)
        row.addWidget(self.shared)
        row.addWidget(self.default_button)
        column.addLayout(row)
        column.addWidget(self.prompt)

    def set_prompt(self, text: str) -> None:
        """Shows another system prompt, without telling that it changed."""
        if text != self.prompt.toPlainText():
            self.prompt.blockSignals(True)
            self.prompt.setPlainText(text)
            self.prompt.blockSignals(False)
        self.refresh_default()

    def refresh_default(self) -> None:
        """Tells whether this prompt is what new tabs begin with."""
        is_default = self.prompt.toPlainText() == self._session.default_system_prompt
        self.default_button.setVisible(not is_default)
        self.shared.setText(tr("Shared by new tabs") if is_default else "")

    def refresh_model(self) -> None:
        """The model's state changed."""
        state = self._session.model_state
        self.model.setText(model_words(state))
        info = state.info if state.status is ModelStatus.READY else None
        self.template.setText(template_words(info) if info is not None else "")
        self.template.setVisible(bool(self.template.text()))

    def _on_default_clicked(self) -> None:
        self._session.set_default_system_prompt(self.prompt.toPlainText())
        self.refresh_default()
