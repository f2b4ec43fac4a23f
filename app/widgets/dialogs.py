"""The few windows beside the main one. None of them blocks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QAction, QDesktopServices, QGuiApplication, QKeySequence
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QGridLayout,
    QLabel,
    QMessageBox,
    QPlainTextEdit,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.markdown_inline import is_safe_link, visible_text


class SystemPromptDialog(QDialog):
    """Edits the system prompt of one conversation. ``save(text, is_default)`` is called on Save."""

    def __init__(self, text: str, save: Callable[[str, bool], None], parent: QWidget) -> None:
        super().__init__(parent)
        self._save = save
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("System prompt"))
        self.resize(560, 320)
        self.edit = QPlainTextEdit(text)
        self.edit.setAccessibleName(tr("System prompt"))
        self.edit.setTabChangesFocus(True)
        note = QLabel(
            tr(
                "Used from the next answer on. What was said before is then computed again, "
                "since it followed another prompt."
            )
        )
        note.setWordWrap(True)
        note.setProperty("tone", "muted")
        self.default_box = QCheckBox(tr("Use as default for new tabs"))
        kinds = QDialogButtonBox.StandardButton
        self.buttons = QDialogButtonBox(kinds.Save | kinds.Cancel)
        self.buttons.accepted.connect(self.accept)
        self.buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        for widget in (self.edit, note, self.default_box, self.buttons):
            column.addWidget(widget)

    def accept(self) -> None:
        self._save(self.edit.toPlainText(), self.default_box.isChecked())
        super().accept()


class ShortcutsDialog(QDialog):
    """Every action that has a shortcut, in one place."""

    def __init__(self, actions: Iterable[QAction], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Keyboard shortcuts"))
        self.resize(460, 560)
        table = QWidget()
        self.grid = QGridLayout(table)
        self.grid.setContentsMargins(16, 12, 16, 12)
        self.grid.setHorizontalSpacing(24)
        self.grid.setVerticalSpacing(8)
        self.grid.setColumnStretch(0, 1)
        rows = [(a.text().rstrip("…"), _all_keys(a)) for a in actions if a.shortcuts()]
        rows.append((tr("New line in the message"), "Shift+Enter"))
        for row, (text, keys) in enumerate(rows):
            key_label = QLabel(keys)
            key_label.setProperty("tone", "muted")
            self.grid.addWidget(QLabel(text), row, 0)
            self.grid.addWidget(key_label, row, 1, Qt.AlignmentFlag.AlignRight)
        area = QScrollArea()
        area.setWidget(table)
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        area.setAccessibleName(tr("Keyboard shortcuts"))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(area)


def _all_keys(action: QAction) -> str:
    native = QKeySequence.SequenceFormat.NativeText
    return ", ".join(keys.toString(native) for keys in action.shortcuts())


def confirm_link(url: str, parent: QWidget) -> QMessageBox | None:
    """Asks before a link is opened, and shows where it really goes. None for an unsafe address."""
    if not is_safe_link(url):
        return None
    parts = urlsplit(url)
    # Punycode shows a look-alike letter for what it is.
    host = QUrl(url).host(QUrl.ComponentFormattingOption.FullyEncoded) or parts.path
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setIcon(QMessageBox.Icon.NoIcon)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle(tr("Open a link"))
    box.setText(tr("Open {host} in the browser?", host=host))
    shown = visible_text(url)
    box.setInformativeText(shown if len(shown) <= 300 else shown[:300] + "…")
    open_button = box.addButton(tr("Open"), QMessageBox.ButtonRole.AcceptRole)
    copy_button = box.addButton(tr("Copy address"), QMessageBox.ButtonRole.ActionRole)
    cancel = box.addButton(QMessageBox.StandardButton.Cancel)
    box.setDefaultButton(cancel)
    open_button.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(url)))
    copy_button.clicked.connect(lambda: QGuiApplication.clipboard().setText(url))
    box.open()
    return box
