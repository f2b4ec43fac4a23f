"""What can be done with the chosen model, and what it asks back before it is done."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.i18n import sentences, tr, tr_n
from app.library.status import Standing
from app.session import Session
from app.session_state import ModelStatus
from app.widgets.library.model_list import ModelRow
from app.widgets.words import stage_words

_LOADABLE = (
    *(Standing.PLAIN, Standing.ASLEEP, Standing.FAILED, Standing.TOO_LARGE),
    *(Standing.UNKNOWN, Standing.UNREADABLE, Standing.ABSENT),
)


class DeedBar(QFrame):
    """Load, unload, cancel, make default. While answers run, loading another model asks whether to
    wait for them or to stop them: in the bar, and nothing else of the window is blocked.

    Signals: default_chosen(), folder_requested(), removal_requested(), deletion_requested().
    """

    default_chosen = Signal()
    folder_requested = Signal()
    removal_requested = Signal()
    deletion_requested = Signal()

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._row: ModelRow | None = None
        self._asks = ""
        self.says = QLabel()
        self.says.setTextFormat(Qt.TextFormat.PlainText)
        self.says.setWordWrap(True)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 1000)
        self.progress.setAccessibleName(tr("Loading the model"))
        self.load = _button(tr("Load"), "model load", self._on_load_clicked, is_primary=True)
        self.unload = _button(tr("Unload"), "model unload", self.ask_unload)
        self.cancel = _button(tr("Cancel"), "model cancel", self._on_cancel_clicked)
        self.wait = _button(tr("Wait for them"), "model wait", lambda: self._go(True))
        self.stop = _button(tr("Stop them"), "model stop", lambda: self._go(False))
        self.default = _button(tr("Make default"), "model default", self.default_chosen.emit)
        self.folder = _button(tr("Show folder"), "model folder", self.folder_requested.emit)
        self.remove = _button(tr("Remove from list"), "model remove", self.removal_requested.emit)
        self.delete = _button(tr("Delete…"), "model delete", self.deletion_requested.emit)
        for button in (self.folder, self.remove, self.delete):
            button.setProperty("kind", "quiet")
        self._lay_out()

    def _lay_out(self) -> None:
        first, second = QHBoxLayout(), QHBoxLayout()
        for row, buttons in (
            (first, (self.load, self.unload, self.wait, self.stop, self.cancel, self.default)),
            (second, (self.folder, self.remove, self.delete)),
        ):
            row.setSpacing(8)
            for button in buttons:
                row.addWidget(button)
            row.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(4, 8, 4, 0)
        column.setSpacing(8)
        column.addWidget(self.says)
        column.addWidget(self.progress)
        column.addLayout(first)
        column.addLayout(second)

    def show_row(self, row: ModelRow | None) -> None:
        """Shows what can be done with another model, or now with this one."""
        focused = self.window().focusWidget()
        if row is None or self._row is None or row.entry.path != self._row.entry.path:
            self._asks = ""
        self._row = row
        self.setVisible(row is not None)
        if row is None:
            return
        standing, state = row.standing, self._session.model_state
        running = self._session.num_running_answers
        if self._asks and not running:
            self._asks = ""
        is_next, is_loading = standing is Standing.NEXT, standing is Standing.LOADING
        asks = bool(self._asks)
        self.progress.setVisible(is_loading)
        self.progress.setValue(round(state.progress * 1000))
        self.load.setText(self._load_words(row))
        set_property(self.load, "kind", "" if standing is Standing.TOO_LARGE else "primary")
        self.load.setVisible(not asks and (standing in _LOADABLE or self._wants_reload(row)))
        self.unload.setVisible(not asks and standing is Standing.LOADED)
        self.wait.setVisible(self._asks == "load")
        self.stop.setVisible(asks or is_next)
        self.stop.setText(tr("Stop them now") if is_next else tr("Stop them"))
        self.cancel.setVisible(asks or is_next or is_loading)
        can_start = row.entry.exists and row.entry.error is None
        self.default.setVisible(not asks and not row.is_default and can_start)
        self.folder.setEnabled(row.entry.exists)
        self.remove.setEnabled(standing not in (Standing.LOADED, Standing.LOADING))
        self.delete.setEnabled(self.remove.isEnabled() and row.entry.exists)
        self._say(row, running)
        if focused is not None and self.isAncestorOf(focused) and focused.isHidden():
            # The button that was pressed is gone; what can be done next is reached first.
            deeds = (self.load, self.wait, self.stop, self.cancel, self.unload, self.default)
            next((b for b in deeds if not b.isHidden()), self.folder).setFocus()

    def _say(self, row: ModelRow, running: int) -> None:
        state, words = self._session.model_state, ""
        if self._asks or row.standing is Standing.NEXT:
            words = tr_n(
                "{n} answer is still being written.",
                "{n} answers are still being written.",
                running,
            )
            if row.standing is Standing.NEXT:
                then = tr("Then this model is loaded; new questions wait for it.")
            else:
                then = tr("What has come stays, and a stopped answer can be continued.")
            words = sentences(words, then)
        elif row.standing is Standing.LOADING:
            words = f"{stage_words(state)} · {state.progress * 100:.0f} %"
            words += f" · {state.detail}" if state.detail else ""
        self.says.setText(words)
        self.says.setVisible(bool(words))

    def _load_words(self, row: ModelRow) -> str:
        if row.standing is Standing.ABSENT:
            return tr("Fetch (94 MB)")
        return {
            Standing.FAILED: tr("Try again"),
            Standing.UNREADABLE: tr("Look again"),
            Standing.TOO_LARGE: tr("Load anyway"),
            Standing.LOADED: tr("Load again"),
        }.get(row.standing, tr("Load"))

    def _wants_reload(self, row: ModelRow) -> bool:
        """Whether the loaded model has another chat template than was chosen for it."""
        info = self._session.model_state.info
        if row.standing is not Standing.LOADED or info is None:
            return False
        chosen = self._session.library.places.chat_templates.get(row.entry.path, "")
        return info.chat_template != chosen

    # --- acts ---

    def _on_load_clicked(self) -> None:
        row = self._row
        if row is not None and row.standing is Standing.ABSENT:
            self._ask_or("fetch")
        elif row is not None and row.standing is Standing.UNREADABLE:
            self._session.library.look_again(row.entry.path)
        else:
            self._ask_or("load")

    def ask_load(self) -> None:
        """Loads the chosen model; while answers run it asks first."""
        if self._row is not None and self._row.standing is not Standing.LOADED:
            self._ask_or("load")

    def ask_unload(self) -> None:
        """Unloads the model; while answers run it asks first."""
        self._ask_or("unload")

    def _ask_or(self, act: str) -> None:
        self._asks = act
        can_wait = self._session.model_state.status is ModelStatus.READY
        if self._session.num_running_answers and can_wait:
            self.show_row(self._row)
            (self.wait if act == "load" else self.stop).setFocus()
        else:
            self._go(False)

    def _go(self, wait: bool) -> None:
        act, self._asks, row = self._asks, "", self._row
        if row is None:
            return
        path = self._session.library.load_path(row.entry.path)
        if act == "unload":
            self._session.unload_model()
        elif act == "fetch":
            self._session.fetch_starter(remember=False)
        elif act == "load" or row.standing is Standing.NEXT:
            self._session.switch_model(path, wait=wait)
        self.show_row(self._row)

    def _on_cancel_clicked(self) -> None:
        if self._asks:
            self._asks = ""
            self.show_row(self._row)
        else:
            self._session.stay_with_model()


def set_property(widget: QWidget, name: str, value: str) -> None:
    """Sets what the style sheet asks for, and has it asked again."""
    if (widget.property(name) or "") != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def _button(text: str, name: str, slot: object, is_primary: bool = False) -> QPushButton:
    button = QPushButton(text)
    button.setObjectName(name)
    if is_primary:
        button.setProperty("kind", "primary")
    button.clicked.connect(lambda _checked=False: slot())  # type: ignore[operator]
    return button
