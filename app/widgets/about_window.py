"""What this is, in which version, and what it is made with under which licences."""

from __future__ import annotations

import threading
from contextlib import suppress

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSplitter,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app import assets
from app.i18n import tr
from app.theme import ThemeManager
from app.versions import VERSION, Library, libraries, program_versions
from app.widgets.built_window import BuiltWindow

_SIZE = QSize(620, 560)
_MARK = 48


class AboutWindow(BuiltWindow):
    """The facts are read on a thread of their own; nothing that they are about is imported."""

    _found = Signal(object, object)

    def __init__(self, themes: ThemeManager, parent: QWidget) -> None:
        super().__init__(parent, _SIZE)
        self._themes = themes
        self._versions: list[tuple[str, str]] = []
        self._libraries: list[Library] = []
        self._found.connect(self._on_found, Qt.ConnectionType.QueuedConnection)
        self.rebuild()
        threading.Thread(target=self._find, name="about", daemon=True).start()

    def build(self) -> QWidget:
        self.setWindowTitle(tr("About Quire"))
        mark = QLabel()
        accent = self._themes.theme.colors["accent"]
        ratio = self.devicePixelRatioF()
        mark.setPixmap(assets.icon_pixmap("quire", accent, _MARK, ratio))
        title = QLabel(tr("Quire {version}", version=VERSION))
        title.setProperty("role", "title")
        what = QLabel(
            tr("Chat with language models on your own computer, and see how their cache works.")
        )
        what.setWordWrap(True)
        self.versions = QLabel()
        self.versions.setTextFormat(Qt.TextFormat.PlainText)
        self.versions.setProperty("tone", "muted")
        self.versions.setWordWrap(True)
        self.versions.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        copy = QPushButton(tr("Copy versions"))
        copy.setObjectName("copy versions")
        copy.clicked.connect(self._copy)
        heading = QLabel(tr("Made with"))
        heading.setProperty("role", "heading")
        self.table = _table()
        self.table.currentCellChanged.connect(self._on_table_current_cell_changed)
        self.licence = _text_view()
        made_with = QSplitter(Qt.Orientation.Vertical)
        made_with.setChildrenCollapsible(False)
        made_with.addWidget(self.table)
        made_with.addWidget(self.licence)
        made_with.setStretchFactor(0, 3)
        made_with.setStretchFactor(1, 2)
        content = QWidget()
        head = QHBoxLayout()
        head.setSpacing(16)
        head.addWidget(mark)
        texts = QVBoxLayout()
        texts.setSpacing(4)
        texts.addWidget(title)
        texts.addWidget(what)
        head.addLayout(texts, 1)
        facts = QHBoxLayout()
        facts.addWidget(self.versions, 1)
        facts.addWidget(copy, 0, Qt.AlignmentFlag.AlignTop)
        column = QVBoxLayout(content)
        column.setContentsMargins(20, 20, 20, 20)
        column.setSpacing(12)
        column.addLayout(head)
        column.addLayout(facts)
        column.addWidget(heading)
        column.addWidget(made_with, 1)
        self._show()
        return content

    def _find(self) -> None:
        # The window may have gone meanwhile.
        with suppress(RuntimeError):
            self._found.emit(program_versions(), libraries())

    def _on_found(self, versions: list[tuple[str, str]], found: list[Library]) -> None:
        self._versions, self._libraries = versions, found
        self._show()

    def _show(self) -> None:
        self.versions.setText(" · ".join(f"{name} {version}" for name, version in self._versions))
        self.table.setRowCount(len(self._libraries))
        for row, library in enumerate(self._libraries):
            for column, text in enumerate((library.name, library.version, library.licence)):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                self.table.setItem(row, column, item)

    def _on_table_current_cell_changed(self, row: int, *_other: int) -> None:
        if 0 <= row < len(self._libraries):
            text = self._libraries[row].text()
            self.licence.setPlainText(text or tr("Its package comes without a licence text."))

    def _copy(self) -> None:
        lines = (f"{name} {version}" for name, version in self._versions)
        QGuiApplication.clipboard().setText("\n".join(lines))


def _text_view() -> QPlainTextEdit:
    view = QPlainTextEdit()
    view.setObjectName("licence")
    view.setAccessibleName(tr("Licence text"))
    view.setPlaceholderText(tr("Choose a library to read its licence."))
    view.setReadOnly(True)
    view.setTabChangesFocus(True)
    return view


def _table() -> QTableWidget:
    table = QTableWidget(0, 3)
    table.setObjectName("libraries")
    table.setAccessibleName(tr("Libraries and their licences"))
    table.setHorizontalHeaderLabels([tr("Library"), tr("Version"), tr("Licence")])
    table.verticalHeader().hide()
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setTabKeyNavigation(False)
    table.setShowGrid(False)
    header = table.horizontalHeader()
    header.setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
    header.setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
    header.setStretchLastSection(True)
    header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft)
    return table
