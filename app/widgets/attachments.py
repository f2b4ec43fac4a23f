"""Large pastes and text files as chips: in the text box they would make every key press slow."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.conversation import Attachment
from app.i18n import tr
from app.text_files import sent_text
from app.theme import ThemeManager
from app.widgets.buttons import IconButton

_PREVIEW = 60
_CHIP_PADDING = 24
_MAX_SHOWN = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class _Chip:
    """``text``: what is put into the message, made once and not at every key press."""

    attachment: Attachment
    text: str
    frame: QFrame


class Attachments(QWidget):
    """Texts that will be sent before what is typed.

    ``changed`` after each change; ``removed(Attachment, place)``: the user took one away.
    """

    changed = Signal()
    removed = Signal(object, int)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._chips: list[_Chip] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(4)
        self.hide()

    @property
    def items(self) -> tuple[Attachment, ...]:
        return tuple(chip.attachment for chip in self._chips)

    @property
    def texts(self) -> list[str]:
        """What is put into the message."""
        return [chip.text for chip in self._chips]

    def add(self, text: str) -> None:
        """Adds a chip for a pasted text."""
        self.add_item(Attachment("", text))

    def add_item(self, attachment: Attachment) -> None:
        """Adds a chip."""
        self._add_chip(attachment)
        self.show()
        self.changed.emit()

    def set_items(self, attachments: tuple[Attachment, ...]) -> None:
        """Replaces all chips."""
        if attachments == self.items:
            return
        self._drop_all()
        for attachment in attachments:
            self._add_chip(attachment)
        self.setVisible(bool(self._chips))
        self.changed.emit()

    def clear(self) -> None:
        """Takes all chips away."""
        self.set_items(())

    def _add_chip(self, attachment: Attachment) -> None:
        frame = QFrame()
        frame.setProperty("role", "notice")
        row = QHBoxLayout(frame)
        row.setContentsMargins(2, 2, 4, 2)
        words = attachment_words(attachment)
        button = ChipButton(words)
        button.clicked.connect(lambda: AttachmentPreview(attachment, self).show())
        row.addWidget(button, 1)
        name = attachment.name
        remove_words = tr("Remove {name}", name=name) if name else tr("Remove pasted text")
        remove = IconButton(self._themes, "close", remove_words, frame, "muted")
        chip = _Chip(attachment, sent_text(attachment), frame)
        remove.clicked.connect(lambda: self._remove(chip))
        row.addWidget(remove)
        self._chips.append(chip)
        self._column.addWidget(frame)

    def _drop_all(self) -> None:
        for chip in self._chips:
            chip.frame.hide()
            chip.frame.deleteLater()
        self._chips = []

    def put_back(self, attachment: Attachment, place: int) -> None:
        """Adds a chip where there was one."""
        items = list(self.items)
        items.insert(place, attachment)
        self.set_items(tuple(items))

    def _remove(self, chip: _Chip) -> None:
        place = self._chips.index(chip)
        del self._chips[place]
        chip.frame.hide()
        chip.frame.deleteLater()
        self.setVisible(bool(self._chips))
        self.changed.emit()
        self.removed.emit(chip.attachment, place)


class ChipButton(QPushButton):
    """Shows as much of its words as there is room for, the end of them too."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.setProperty("kind", "chip")
        self.setToolTip(tr("Show the text"))
        self.setAccessibleName(words)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        middle = Qt.TextElideMode.ElideMiddle
        shown = self.fontMetrics().elidedText(self._words, middle, self.width() - _CHIP_PADDING)
        self.setText(shown.replace("&", "&&"))


class AttachmentPreview(QDialog):
    """The text of an attachment, to read. Does not block the window."""

    def __init__(self, attachment: Attachment, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setObjectName("attachment preview")
        self.setWindowTitle(attachment.name or tr("Pasted text"))
        self.resize(QSize(680, 480))
        self.edit = QPlainTextEdit(attachment.text[:_MAX_SHOWN])
        self.edit.setReadOnly(True)
        self.edit.setTabChangesFocus(True)
        self.edit.setFont(theme.code_font())
        self.edit.setAccessibleName(self.windowTitle())
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 12, 12, 12)
        column.addWidget(self.edit)
        if len(attachment.text) > _MAX_SHOWN:
            note = QLabel(tr("The first {n} characters; all of it is sent.", n=f"{_MAX_SHOWN:,}"))
            note.setProperty("tone", "muted")
            column.addWidget(note)


def attachment_words(attachment: Attachment) -> str:
    """What it is, in one line."""
    size = max(1, len(attachment.text.encode("utf-8", "surrogatepass")) // 1000)
    if attachment.name:
        return tr("{name}, {size} KB", name=attachment.name, size=f"{size:,}")
    preview = " ".join(attachment.text[:_PREVIEW].split())
    return tr("Pasted text, {size} KB: {preview}…", size=f"{size:,}", preview=preview)
