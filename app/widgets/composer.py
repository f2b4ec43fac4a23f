"""Where a message is written: grows to eight lines, Enter sends, safe for input methods."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal
from PySide6.QtGui import QFocusEvent, QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from app import theme
from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.attachments import Attachments
from app.widgets.buttons import IconButton

MAX_LINES = 8
LARGE_PASTE = 64 * 1024


class ComposerEdit(QPlainTextEdit):
    """The text box. ``submit_requested`` on Enter; ``large_text_pasted`` instead of inserting."""

    submit_requested = Signal()
    large_text_pasted = Signal(str)
    focus_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_composing = False
        self.setFont(theme.body_font())
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(2)

    @property
    def is_composing(self) -> bool:
        """True while an input method shows text that is not committed yet."""
        return self._is_composing or bool(self.textCursor().block().layout().preeditAreaText())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if is_enter and not shift and not self.is_composing:
            self.submit_requested.emit()
            event.accept()
            return
        super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._is_composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        text = source.text()
        if len(text) > LARGE_PASTE:
            self.large_text_pasted.emit(text)
        else:
            self.insertPlainText(text)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._is_composing = False
        super().focusOutEvent(event)
        self.focus_changed.emit(False)


class Composer(QFrame):
    """Text box, large pastes, Send or Stop.

    Signals:
        submitted(text): the user wants to send; the text stays until ``clear``.
        stop_requested()
        draft_changed(text): after each change.
        system_prompt_requested()
    """

    submitted = Signal(str)
    stop_requested = Signal()
    draft_changed = Signal(str)
    system_prompt_requested = Signal()

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._is_busy = False
        self.edit = ComposerEdit()
        self.edit.setAccessibleName(tr("Message"))
        self.edit.setPlaceholderText(tr("Write a message"))
        self.attachments = Attachments(themes)
        self.send_button = IconButton(themes, "send", tr("Send"), self, "on_accent")
        self.send_button.setProperty("kind", "send")
        self.prompt_button = IconButton(themes, "prompt", tr("System prompt"), self, "muted")
        self.gauge = QLabel()
        self.gauge.setProperty("tone", "muted")
        self.gauge.setFont(theme.number_font())
        self._lay_out()
        self._connect()
        self._fit()
        self._update_button()

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.prompt_button)
        row.addStretch(1)
        row.addWidget(self.gauge)
        row.addWidget(self.send_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 8, 8, 8)
        layout.setSpacing(4)
        layout.addWidget(self.attachments)
        layout.addWidget(self.edit)
        layout.addLayout(row)

    def _connect(self) -> None:
        self.edit.submit_requested.connect(self.submit)
        self.edit.large_text_pasted.connect(self.attachments.add)
        self.edit.textChanged.connect(self._on_text_changed)
        self.edit.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.edit.focus_changed.connect(self._on_focus_changed)
        self.attachments.changed.connect(self._on_text_changed)
        self.send_button.clicked.connect(self._on_send_clicked)
        self.prompt_button.clicked.connect(self.system_prompt_requested)

    def text(self) -> str:
        """All that would be sent: large pastes first, then what was typed."""
        return "\n\n".join([*self.attachments.texts, self.edit.toPlainText()]).strip("\n")

    def set_text(self, text: str) -> None:
        """Replaces everything; a large text becomes an attachment."""
        self.attachments.clear()
        if len(text) > LARGE_PASTE:
            self.edit.clear()
            self.attachments.add(text)
        else:
            self.edit.setPlainText(text)
            self.edit.moveCursor(self.edit.textCursor().MoveOperation.End)

    def clear(self) -> None:
        self.attachments.clear()
        self.edit.clear()

    def submit(self) -> None:
        """As if Enter was pressed; does nothing while an answer runs or nothing is written."""
        if not self._is_busy and not self.edit.is_composing and self.text().strip():
            self.submitted.emit(self.text())

    def set_busy(self, is_busy: bool) -> None:
        """While busy the button stops the answer; typing goes on."""
        if is_busy != self._is_busy:
            self._is_busy = is_busy
            self._update_button()

    def _on_send_clicked(self) -> None:
        if self._is_busy:
            self.stop_requested.emit()
        else:
            self.submit()

    def _on_text_changed(self) -> None:
        self._update_button()
        self.draft_changed.emit(self.text())

    def _update_button(self) -> None:
        can_send = bool(self.attachments.texts) or bool(self.edit.toPlainText().strip())
        enabled = self._is_busy or can_send
        icon = "stop" if self._is_busy else "send"
        self.send_button.set_icon(icon, "on_accent" if enabled else "muted")
        self.send_button.set_name(tr("Stop") if self._is_busy else tr("Send"))
        self.send_button.setEnabled(enabled)

    def _on_focus_changed(self, has_focus: bool) -> None:
        self.setProperty("active", has_focus)
        self.style().unpolish(self)
        self.style().polish(self)

    def _fit(self) -> None:
        """As high as its text, between one and ``MAX_LINES`` lines."""
        lines = self.edit.document().size().height()
        shown = min(float(MAX_LINES), max(1.0, lines))
        height = shown * self.edit.fontMetrics().lineSpacing() + 12
        self.edit.setFixedHeight(round(height))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit()
