"""What an empty tab offers: the system prompt, the model and three questions to begin with."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.widgets.buttons import plain_tip
from app.widgets.prompt_combo import PromptCombo
from app.widgets.template_words import template_words
from app.widgets.text_edits import replace_text, written_text
from app.widgets.words import model_words

_PROMPT_LINES = 5
_EXAMPLE_PADDING = 32


def example_questions() -> tuple[str, str, str]:
    """Three first questions in the user's language."""
    return (
        tr("Explain in three sentences how a cache saves work."),
        tr("Write a Python function that checks whether a text is a palindrome."),
        tr("Give me five ideas for a rainy Sunday."),
    )


class ExampleButton(QPushButton):
    """A question; as much of it as there is room for."""

    def __init__(self, question: str, parent: QWidget | None = None) -> None:
        super().__init__(question, parent)
        self.question = question
        self.setProperty("kind", "example")
        self.setAccessibleName(question)
        # As narrow as need be.
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        room = self.width() - _EXAMPLE_PADDING
        shown = self.fontMetrics().elidedText(self.question, Qt.TextElideMode.ElideRight, room)
        if shown != self.text():
            self.setText(shown)
            self.setToolTip(plain_tip(self.question) if shown != self.question else "")


class EmptyState(QWidget):
    """``question_chosen(text)``: an example was clicked. ``prompt_edited(text)``: each change."""

    question_chosen = Signal(str)
    prompt_edited = Signal(str)

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        column = self._add_column()
        title = QLabel(tr("What shall we talk about?"))
        title.setProperty("role", "title")
        title.setWordWrap(True)
        self.model = QLabel()
        self.model.setTextFormat(Qt.TextFormat.PlainText)
        self.model.setProperty("tone", "muted")
        self.template = QLabel()
        self.template.setTextFormat(Qt.TextFormat.PlainText)
        self.template.setWordWrap(True)
        self.template.setProperty("tone", "muted")
        column.addWidget(title)
        column.addWidget(self.model)
        column.addWidget(self.template)
        column.addSpacing(12)
        self.prompt = QPlainTextEdit()
        self._add_prompt(column)
        column.addSpacing(12)
        self.examples = [ExampleButton(text) for text in example_questions()]
        for button in self.examples:
            button.clicked.connect(lambda _c=False, b=button: self.question_chosen.emit(b.question))
            column.addWidget(button)
        session.model_state_changed.connect(self.refresh_model)
        self.refresh_model()

    def _add_column(self) -> QVBoxLayout:
        """Where everything stands. It is there first: what is moved is styled anew each time."""
        # In a low window it scrolls, and leaves the composer its room.
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setAccessibleName(tr("New conversation"))
        area.setMinimumHeight(60)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)
        content = QWidget()
        area.setWidget(content)
        outer = QVBoxLayout(content)
        outer.setContentsMargins(12, 20, 12, 12)
        outer.addStretch(2)
        row = QHBoxLayout()
        outer.addLayout(row)
        outer.addStretch(3)
        holder = QWidget()
        holder.setMaximumWidth(600)
        row.addStretch(1)
        row.addWidget(holder, 100)
        row.addStretch(1)
        column = QVBoxLayout(holder)
        column.setSpacing(8)
        return column

    def _add_prompt(self, column: QVBoxLayout) -> None:
        label = QLabel(tr("System prompt"))
        label.setProperty("role", "heading")
        label.setBuddy(self.prompt)
        self.prompt.setAccessibleName(tr("System prompt"))
        self.prompt.setPlaceholderText(tr("How the model should behave; may be empty"))
        self.prompt.setTabChangesFocus(True)
        self.prompt.setFixedHeight(self.fontMetrics().lineSpacing() * _PROMPT_LINES + 12)
        self.prompt.textChanged.connect(lambda: self.prompt_edited.emit(written_text(self.prompt)))
        self.default_button = QPushButton(tr("Use as default for new tabs"))
        self.default_button.setProperty("kind", "quiet")
        self.default_button.clicked.connect(self._on_default_clicked)
        self.shared = QLabel()
        self.shared.setProperty("tone", "muted")
        self.combo = PromptCombo(self._session.prompts)
        self.combo.prompt_chosen.connect(partial(replace_text, self.prompt))
        self.library_button = QPushButton(tr("Library…"))
        self.library_button.setProperty("kind", "quiet")
        self.library_button.clicked.connect(self._on_library_clicked)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(label)
        row.addWidget(self.combo, 100)
        row.addStretch(1)
        below = QHBoxLayout()
        below.addWidget(self.library_button)
        below.addStretch(1)
        below.addWidget(self.shared)
        below.addWidget(self.default_button)
        column.addLayout(row)
        column.addWidget(self.prompt)
        column.addLayout(below)

    def set_prompt(self, text: str) -> None:
        """Shows another system prompt, without telling that it changed."""
        if text != written_text(self.prompt):
            self.prompt.blockSignals(True)
            self.prompt.setPlainText(text)
            self.prompt.blockSignals(False)
        self.refresh_default()

    def refresh_default(self) -> None:
        """Tells whether this prompt is what new tabs begin with."""
        text = written_text(self.prompt)
        self.combo.show_text(text)
        is_default = text == self._session.default_system_prompt
        self.default_button.setVisible(not is_default)
        self.shared.setText(tr("Shared by new tabs") if is_default else "")

    def refresh_model(self) -> None:
        """The model's state changed."""
        state = self._session.model_state
        self.model.setText(model_words(state))
        info = state.info if state.status is ModelStatus.READY else None
        self.template.setText(template_words(info) if info is not None else "")
        self.template.setVisible(bool(self.template.text()))

    def _on_library_clicked(self) -> None:
        prompts = self._session.prompts
        prompt = prompts.with_text(written_text(self.prompt))
        prompts.library_requested.emit("" if prompt is None else prompt.prompt_id)

    def _on_default_clicked(self) -> None:
        self._session.set_default_system_prompt(written_text(self.prompt))
        self.refresh_default()
