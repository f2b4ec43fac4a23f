"""Shows what a report of a fault would hold, and saves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSize, QStandardPaths, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.diagnostics import Entry, write_bundle
from app.i18n import tr
from app.widgets.built_window import BuiltWindow
from app.widgets.section_list import SectionList

_SIZE = QSize(820, 600)
_LIST_WIDTH = 220
_MAX_SHOWN = 200_000


class DiagnosticsWindow(BuiltWindow):
    """``entries(with_text)``: the files of the bundle, with the conversation in front if asked."""

    def __init__(self, entries: Callable[[bool], list[Entry]], parent: QWidget) -> None:
        super().__init__(parent, _SIZE)
        self._entries_for = entries
        self._with_text = False
        self._entries: list[Entry] = []
        self._said = ""
        self.rebuild()

    def build(self) -> QWidget:
        self.setWindowTitle(tr("Diagnostics"))
        note = QLabel(
            tr(
                "For a report of a fault: all of this goes into one file on your computer, and "
                "nothing is sent. Look through it first. Secrets and your folder's name are struck "
                "out."
            )
        )
        note.setWordWrap(True)
        self.list = SectionList(tr("Files"), _LIST_WIDTH)
        self.list.setObjectName("diagnostics files")
        self.list.currentRowChanged.connect(self._on_row_changed)
        self.preview = QPlainTextEdit()
        self.preview.setObjectName("diagnostics preview")
        self.preview.setAccessibleName(tr("Content"))
        self.preview.setReadOnly(True)
        self.preview.setTabChangesFocus(True)
        self.preview.setFont(theme.code_font())
        self.text_box = QCheckBox(tr("Include the text of the conversation in front"))
        self.text_box.setObjectName("diagnostics text")
        self.text_box.setChecked(self._with_text)
        self.text_box.toggled.connect(self._on_text_toggled)
        self.save_button = QPushButton(tr("Save…"))
        self.save_button.setObjectName("diagnostics save")
        self.save_button.setProperty("kind", "primary")
        self.save_button.clicked.connect(self.choose_file)
        self.outcome = QLabel(self._said)
        self.outcome.setTextFormat(Qt.TextFormat.PlainText)
        self.outcome.setWordWrap(True)
        content = QWidget()
        middle = QHBoxLayout()
        middle.setSpacing(12)
        middle.addWidget(self.list)
        middle.addWidget(self.preview, 1)
        last = QHBoxLayout()
        last.setSpacing(12)
        last.addWidget(self.text_box)
        last.addWidget(self.outcome, 1)
        last.addWidget(self.save_button)
        column = QVBoxLayout(content)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(note)
        column.addLayout(middle, 1)
        column.addLayout(last)
        self._fill()
        return content

    def _fill(self) -> None:
        self._entries = self._entries_for(self._with_text)
        self.list.clear()
        for entry in self._entries:
            size = max(1, len(entry.text.encode("utf-8", "replace")) // 1000)
            self.list.add(tr("{name}, {size} KB", name=entry.name, size=f"{size:,}"))
        self.list.setCurrentRow(len(self._entries) - 1 if self._with_text else 0)

    def _on_row_changed(self, row: int) -> None:
        text = self._entries[row].text if 0 <= row < len(self._entries) else ""
        # The end of a log says more than its beginning.
        self.preview.setPlainText(text[-_MAX_SHOWN:])

    def _on_text_toggled(self, checked: bool) -> None:
        self._with_text = checked
        self._fill()

    def choose_file(self) -> QFileDialog:
        """Asks where to."""
        dialog = QFileDialog(self, tr("Save diagnostics"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(tr("Zip files (*.zip)"))
        dialog.setDefaultSuffix(".zip")
        place = QStandardPaths.StandardLocation.DocumentsLocation
        dialog.setDirectory(QStandardPaths.writableLocation(place))
        dialog.selectFile("quire-diagnostics.zip")
        dialog.fileSelected.connect(lambda path: self.save(Path(path)))
        dialog.open()
        return dialog

    def save(self, path: Path) -> bool:
        """Writes what is shown; says how it went."""
        try:
            write_bundle(path, self._entries)
        except OSError as error:
            reason = error.strerror or str(error)
            self._say(tr("{name} cannot be written: {reason}", name=path.name, reason=reason))
            return False
        self._say(tr("Saved as {path}.", path=path))
        return True

    def _say(self, words: str) -> None:
        self._said = words
        self.outcome.setText(words)
