"""A message edited where it stands in the transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout

from app.i18n import tr
from app.widgets.composer import ComposerEdit
from app.widgets.text_edits import written_text
from app.widgets.transcript.message import MessageItem

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_MIN_LINES, _MAX_LINES = 2, 16


class MessageEditor(QFrame):
    """Lies over its message, which makes room for it.

    ``saved(message_id, text)`` on Enter or Save; ``closed()`` on Esc and without saving;
    ``changed()`` with the text.
    """

    saved = Signal(str, str)
    closed = Signal()
    changed = Signal()

    def __init__(self, view: Transcript, item: MessageItem) -> None:
        super().__init__(view.viewport())
        self._view = view
        self.item = item
        self.setObjectName("message_editor")
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.edit = ComposerEdit()
        self.edit.setAccessibleName(tr("Edit message"))
        self.edit.setPlainText(item.text)
        # Not the message's own: a text box knows one kind of line ends.
        self._given = written_text(self.edit)
        is_user = item.view.is_user
        note = tr("The old version stays.") if is_user else tr("Saved as another version.")
        self.note = QLabel(note)
        self.note.setProperty("tone", "muted")
        self.save_button = QPushButton(tr("Save and send") if is_user else tr("Save as a version"))
        self.save_button.setProperty("kind", "primary")
        self.cancel_button = QPushButton(tr("Keep as it was"))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.note, 1)
        row.addWidget(self.cancel_button)
        row.addWidget(self.save_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(10, 8, 8, 8)
        column.setSpacing(8)
        column.addWidget(self.edit)
        column.addLayout(row)
        self.save_button.clicked.connect(self.save)
        self.cancel_button.clicked.connect(self.closed)
        self.edit.submit_requested.connect(self.save)
        # There are no attachments here.
        self.edit.large_text_pasted.connect(self.edit.insertPlainText)
        self.edit.files_dropped.connect(view.files_dropped)
        self.edit.picture_pasted.connect(view.picture_pasted)
        self.edit.textChanged.connect(self._on_text_changed)
        self.edit.document().documentLayout().documentSizeChanged.connect(self.fit)
        self.edit.moveCursor(self.edit.textCursor().MoveOperation.End)
        self._on_text_changed()

    @property
    def is_changed(self) -> bool:
        """Whether the text is another than the message's."""
        return written_text(self.edit) != self._given

    def save(self) -> None:
        """Hands the text over; an empty one is not saved."""
        text = written_text(self.edit) if self.is_changed else self.item.text
        if text.strip():
            self.saved.emit(self.item.view.message_id, text)

    def fit(self) -> None:
        """As high as its text, within bounds; the message below makes room."""
        self.edit.setFixedHeight(self.edit.fitting_height(_MIN_LINES, _MAX_LINES))
        if self.edit.document().size().height() <= _MAX_LINES:
            # It was too small when the last line came, and has scrolled.
            self.edit.verticalScrollBar().setValue(0)
        height = float(self.sizeHint().height())
        if height != self.item.room:
            self.item.room = height
            self._view.room_changed(self.item)
        self.place()

    def place(self) -> None:
        """Over the body of its message."""
        page = self._view.page
        top = self.item.top + self.item.head_height - self._view.verticalScrollBar().value()
        self.setGeometry(round(page.left), round(top), round(page.column), self.sizeHint().height())

    def event(self, event: QEvent) -> bool:
        # Esc would otherwise be the window's Stop, and Ctrl+Enter would send its composer's text.
        if isinstance(event, QKeyEvent) and (is_escape(event) or is_ctrl_enter(event)):
            if event.type() == QEvent.Type.ShortcutOverride:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress:
                if is_escape(event):
                    self.closed.emit()
                else:
                    self.save()
                return True
        return super().event(event)

    def _on_text_changed(self) -> None:
        # A line may have become taller with a letter.
        self.fit()
        self.save_button.setEnabled(bool(written_text(self.edit).strip()))
        self.changed.emit()


def is_escape(event: QKeyEvent) -> bool:
    """Whether it is the Esc key."""
    return event.key() == Qt.Key.Key_Escape


def is_ctrl_enter(event: QKeyEvent) -> bool:
    """Whether it is Enter with Ctrl, on either part of the keyboard."""
    with_ctrl = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
    return with_ctrl and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
