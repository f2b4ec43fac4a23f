"""What stands in the way of an answer: no model, a fetch in progress, a model that failed."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.error_text import describe_error
from app.i18n import tr
from app.session import Session
from app.session_state import ModelState, ModelStatus
from app.widgets.words import stage_words

STARTER_MISSING = "starter_model_missing"
ENGINE_DIED = "engine_died"
DEVICE_LOST = "device_lost"


class ModelCard(QFrame):
    """Shown only while there is something to do or to wait for; otherwise it takes no room."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.setProperty("role", "card")
        self.heading = QLabel()
        self.heading.setProperty("role", "heading")
        self.cause = _wrapped_label()
        self.action = _wrapped_label()
        self.action.setProperty("tone", "muted")
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 1000)
        self.progress.setAccessibleName(tr("Progress"))
        self.fetch_button = QPushButton(tr("Fetch (94 MB)"))
        self.fetch_button.setProperty("kind", "primary")
        self.retry_button = QPushButton(tr("Try again"))
        self.restart_engine_button = QPushButton(tr("Restart the engine"))
        self.restart_program_button = QPushButton(tr("Restart Quire"))
        for button in (self.restart_engine_button, self.restart_program_button):
            button.setProperty("kind", "primary")
        self.choose_button = QPushButton(tr("Choose a model file…"))
        row = QHBoxLayout()
        row.setSpacing(8)
        self._buttons = (
            self.fetch_button,
            self.restart_engine_button,
            self.restart_program_button,
            self.retry_button,
            self.choose_button,
        )
        for button in self._buttons:
            row.addWidget(button)
        row.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 14)
        column.setSpacing(8)
        for widget in (self.heading, self.cause, self.action, self.progress):
            column.addWidget(widget)
        column.addLayout(row)
        self.fetch_button.clicked.connect(session.fetch_starter)
        self.retry_button.clicked.connect(session.retry_model)
        self.restart_engine_button.clicked.connect(session.retry_model)
        self.restart_program_button.clicked.connect(session.restart_program)
        self.choose_button.clicked.connect(self._on_choose_clicked)
        session.model_state_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Fits the card to the state of the model."""
        state = self._session.model_state
        is_fetching = state.status is ModelStatus.LOADING and state.stage == "fetch"
        failed = state.status in (ModelStatus.FAILED, ModelStatus.NO_MODEL)
        self.setVisible(failed or is_fetching)
        self.progress.setVisible(is_fetching)
        for button in self._buttons:
            button.hide()
        if is_fetching:
            self._show_fetching(state)
        elif failed:
            self._show_failed(state)

    def _show_fetching(self, state: ModelState) -> None:
        self.heading.setText(stage_words(state))
        self.progress.setValue(round(state.fraction * 1000))
        percent = f"{state.fraction * 100:.0f} %"
        self.cause.setText(" · ".join(part for part in (percent, state.detail) if part))
        self.action.setText(tr("You can already write; your message is sent when the model is up."))

    def _show_failed(self, state: ModelState) -> None:
        error = state.error
        code = "" if error is None else error.code
        is_over = code in (ENGINE_DIED, DEVICE_LOST)
        self.fetch_button.setVisible(code == STARTER_MISSING)
        self.restart_engine_button.setVisible(code == ENGINE_DIED)
        self.restart_program_button.setVisible(code == DEVICE_LOST)
        self.retry_button.setVisible(not is_over and code != STARTER_MISSING)
        self.choose_button.setVisible(not is_over)
        if code == STARTER_MISSING:
            self.heading.setText(tr("One thing is missing: a model"))
            self.cause.setText(
                tr("The starter model, SmolLM2-135M-Instruct, is fetched once and kept.")
            )
            self.action.setText(tr("This is the only thing that uses the network."))
        elif error is None:
            self.heading.setText(tr("No model is loaded"))
            self.cause.setText("")
            self.action.setText(tr("Load the starter model, or choose a model file."))
        else:
            cause, action = describe_error(error)
            self.heading.setText(
                tr("The engine has stopped") if is_over else tr("The model could not be loaded")
            )
            self.cause.setText(cause)
            self.action.setText(action)
        for label in (self.cause, self.action):
            label.setVisible(bool(label.text()))

    def _on_choose_clicked(self) -> None:
        dialog = QFileDialog(self, tr("Choose a model file"))
        dialog.setNameFilters([tr("Model files (*.gguf *.safetensors)"), tr("All files (*)")])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self._session.load_model)
        dialog.open()


def _wrapped_label() -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
