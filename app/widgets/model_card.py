"""What stands in the way of an answer: no model, a fetch in progress, a model that failed, or one
that is to be another.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
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
from app.i18n import tr, tr_n
from app.library.places import model_of
from app.session import Session
from app.session_state import ModelState, ModelStatus
from app.widgets.words import stage_words

STARTER_MISSING = "starter_model_missing"
ENGINE_DIED = "engine_died"
DEVICE_LOST = "device_lost"
_SIDE, _SPACING = 16, 8


class ModelCard(QFrame):
    """Shown only while there is something to do or to wait for; otherwise it takes no room.

    ``left()``: it goes, and the keyboard was on it.
    """

    left = Signal()

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
        self.wake_button = QPushButton(tr("Load it now"))
        self.stop_button = QPushButton(tr("Stop them now"))
        self.stay_button = QPushButton(tr("Stay with this model"))
        self.cancel_button = QPushButton(tr("Cancel"))
        self.choose_button = QPushButton(tr("Choose a model file…"))
        self.library_button = QPushButton(tr("Model library…"))
        self._buttons = (
            self.fetch_button,
            self.restart_engine_button,
            self.restart_program_button,
            self.retry_button,
            self.wake_button,
            self.stop_button,
            self.stay_button,
            self.cancel_button,
            self.choose_button,
            self.library_button,
        )
        for button in self._buttons:
            # Enter presses it, as the space bar does.
            button.setAutoDefault(True)
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        self._rows = (QHBoxLayout(), QHBoxLayout())
        for button in self._buttons:
            self._rows[0].addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(_SIDE, 12, _SIDE, 14)
        column.setSpacing(_SPACING)
        for widget in (self.heading, self.cause, self.action, self.progress):
            column.addWidget(widget)
        for row in self._rows:
            row.setSpacing(_SPACING)
            row.addStretch(1)
            column.addLayout(row)

    def _connect(self) -> None:
        session = self._session
        self.fetch_button.clicked.connect(lambda: session.fetch_starter())
        self.retry_button.clicked.connect(session.retry_model)
        self.restart_engine_button.clicked.connect(session.retry_model)
        self.restart_program_button.clicked.connect(session.restart_program)
        self.wake_button.clicked.connect(session.wake_model)
        self.stop_button.clicked.connect(self._on_stop_clicked)
        self.stay_button.clicked.connect(session.stay_with_model)
        self.cancel_button.clicked.connect(session.stay_with_model)
        self.choose_button.clicked.connect(self._on_choose_clicked)
        self.library_button.clicked.connect(lambda: session.model_library_requested.emit(""))
        session.model_state_changed.connect(self.refresh)
        session.request_state_changed.connect(self._on_request_state_changed)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_buttons()

    def _place_buttons(self) -> None:
        """In a second line those that the first one has no room for."""
        right = self.width() - 2 * _SIDE
        for button in self._buttons:
            if not button.isHidden():
                right -= button.sizeHint().width()
            wanted, other = self._rows if right >= 0 else reversed(self._rows)
            right -= 0 if button.isHidden() else _SPACING
            if wanted.indexOf(button) < 0:
                other.removeWidget(button)
                # Before the stretch.
                wanted.insertWidget(wanted.count() - 1, button)

    def refresh(self) -> None:
        """Fits the card to the state of the model."""
        state = self._session.model_state
        window_focus = self.window().focusWidget()
        had_focus = window_focus is not None and self.isAncestorOf(window_focus)
        is_fetching = state.status is ModelStatus.LOADING and state.stage == "fetch"
        failed = state.status in (ModelStatus.FAILED, ModelStatus.NO_MODEL)
        is_waiting = state.next_path is not None
        self.setVisible(failed or is_fetching or is_waiting)
        self.progress.setVisible(is_fetching)
        for button in self._buttons:
            button.hide()
        if is_fetching:
            self._show_fetching(state)
        elif is_waiting:
            self._show_waiting(state)
        elif state.is_asleep:
            self._show_asleep()
        elif failed:
            self._show_failed(state)
        for label in (self.cause, self.action):
            label.setVisible(bool(label.text()))
        self._place_buttons()
        if had_focus:
            self._keep_focus(window_focus)

    def _keep_focus(self, focused: QWidget | None) -> None:
        """Left to itself the keyboard would go on to the next button, which may be *Stop*."""
        shown = [button for button in self._buttons if not button.isHidden()]
        if self.isHidden() or not shown:
            self.left.emit()
        elif focused is None or focused.isHidden():
            shown[0].setFocus(Qt.FocusReason.OtherFocusReason)
        else:
            focused.setFocus(Qt.FocusReason.OtherFocusReason)

    def _show_waiting(self, state: ModelState) -> None:
        running = self._session.num_running_answers
        path = self._session.library.full_path(state.next_path or "")
        self.heading.setText(tr("Another model is loaded next: {name}", name=Path(path).name))
        self.cause.setText(
            tr_n(
                "{n} answer is still being written.",
                "{n} answers are still being written.",
                running,
            )
        )
        self.action.setText(tr("What you ask meanwhile waits for the new model."))
        self.stop_button.show()
        self.stay_button.show()

    def _show_asleep(self) -> None:
        self.heading.setText(tr("The model is not in memory"))
        self.cause.setText(tr("Your next message loads it again, and is answered."))
        self.action.setText("")
        self.wake_button.show()
        self.library_button.show()

    def _show_fetching(self, state: ModelState) -> None:
        self.cancel_button.show()
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
        self.library_button.setVisible(not is_over)
        if code == STARTER_MISSING:
            self.heading.setText(tr("One thing is missing: a model"))
            self.cause.setText(
                tr("The starter model, SmolLM2-135M-Instruct, is fetched once and kept.")
            )
            self.action.setText(tr("Nothing else uses the network unless you ask for it."))
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

    def _on_request_state_changed(self) -> None:
        if self._session.model_state.next_path is not None:
            self.refresh()

    def _on_stop_clicked(self) -> None:
        path = self._session.model_state.next_path
        if path is not None:
            self._session.switch_model(path, wait=False)

    def _on_choose_clicked(self) -> None:
        dialog = QFileDialog(self, tr("Choose a model file"))
        dialog.setNameFilters([tr("Model files (*.gguf *.safetensors)"), tr("All files (*)")])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self._on_file_selected)
        dialog.open()

    def _on_file_selected(self, path: str) -> None:
        self._session.load_model(model_of(path))


def _wrapped_label() -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
