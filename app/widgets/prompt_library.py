"""The library of system prompts in a window of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Qt
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QListView,
    QMenu,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.file_names import legal_name
from app.i18n import tr, tr_n
from app.prompt_files import PromptFileError, read_prompts, write_prompts
from app.session import Session
from app.store_prompts import SystemPrompt
from app.theme import ThemeManager
from app.widgets.prompt_editor import PromptEditor
from app.widgets.prompt_list import PromptDelegate, PromptListModel
from app.widgets.undo_bar import UndoBar
from app.widgets.words import error_words

_LIST_WIDTH = 264


class PromptDesk(QObject):
    """Opens the library, once."""

    def __init__(self, session: Session, themes: ThemeManager, window: QWidget) -> None:
        super().__init__(window)
        self._session = session
        self._themes = themes
        self._window = window
        self.dialog: PromptLibrary | None = None
        session.prompts.library_requested.connect(self.open)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the registry's action does."""
        return {"prompt_library": self.open}

    def open(self, prompt_id: str = "") -> None:
        """Shows the library with a prompt of it, or with that of the conversation in front."""
        session = self._session
        if self.dialog is None:
            self.dialog = PromptLibrary(session, self._themes, self._window)
            self.dialog.destroyed.connect(self._on_dialog_destroyed)
        active = session.active_conversation_id
        if not prompt_id and active in session.conversation_ids():
            found = session.prompts.of(session.conversation(active))
            prompt_id = "" if found is None else found.prompt_id
        self.dialog.select(prompt_id)
        self.dialog.show()
        self.dialog.raise_()
        self.dialog.activateWindow()

    def save(self) -> None:
        """Keeps what was typed a moment ago."""
        if self.dialog is not None:
            self.dialog.editor.save()

    def _on_dialog_destroyed(self) -> None:
        self.dialog = None


class PromptLibrary(QDialog):
    """The prompts by name at the left, the chosen one at the right."""

    def __init__(self, session: Session, themes: ThemeManager, parent: QWidget) -> None:
        super().__init__(parent)
        self._prompts = session.prompts
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("System prompts"))
        self.resize(860, 540)
        self.model = PromptListModel(session, self)
        self.list = QListView()
        self.list.setModel(self.model)
        self.list.setItemDelegate(PromptDelegate(themes, self.list))
        self.list.setAccessibleName(tr("System prompts"))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setFixedWidth(_LIST_WIDTH)
        self.editor = PromptEditor(session, themes)
        self.undo_bar = UndoBar(themes)
        self.status = QLabel()
        self.status.setTextFormat(Qt.TextFormat.PlainText)
        self.status.setWordWrap(True)
        self.status.hide()
        self.buttons: dict[str, QPushButton] = {}
        self._lay_out()
        self.model.reload()
        self.list.selectionModel().currentChanged.connect(self._on_list_current_changed)
        self._prompts.changed.connect(self._refresh)
        session.conversation_added.connect(self._refresh)
        session.conversation_closed.connect(self._refresh)
        session.conversation_changed.connect(self._refresh)
        session.active_conversation_changed.connect(self.editor.refresh)
        session.model_state_changed.connect(self.editor.refresh)

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(4)
        for key, text, slot in (
            ("new", tr("New"), self.add),
            ("duplicate", tr("Duplicate"), self.duplicate),
            ("delete", tr("Delete"), self.delete),
        ):
            button = QPushButton(text)
            button.setAutoDefault(False)
            button.clicked.connect(slot)
            row.addWidget(button)
            self.buttons[key] = button
        row.addStretch(1)
        row.addWidget(self._more_button())
        left = QVBoxLayout()
        left.setSpacing(8)
        left.addWidget(self.list, 1)
        left.addLayout(row)
        sides = QHBoxLayout()
        sides.setSpacing(16)
        sides.addLayout(left)
        sides.addWidget(self.editor, 1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(16, 16, 16, 16)
        outer.setSpacing(8)
        outer.addLayout(sides, 1)
        outer.addWidget(self.undo_bar)
        outer.addWidget(self.status)

    def _more_button(self) -> QToolButton:
        button = QToolButton()
        button.setText("…")
        button.setAccessibleName(tr("Import and export"))
        button.setToolTip(tr("Import and export"))
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(button)
        menu.addAction(tr("Import prompts…"), self.choose_import)
        menu.addAction(tr("Export this prompt…"), lambda: self.choose_export(all_of_them=False))
        menu.addAction(tr("Export all prompts…"), lambda: self.choose_export(all_of_them=True))
        button.setMenu(menu)
        return button

    # --- what the user does ---

    def select(self, prompt_id: str) -> None:
        """Shows a prompt; the first one if there is none with this id."""
        index = self.model.index_of(prompt_id)
        self.list.setCurrentIndex(index if index.isValid() else self.model.index(0))
        self._show_current()

    def add(self) -> None:
        """A new prompt, empty, whose name is to be typed."""
        self.editor.save()
        self.select(self._prompts.add("", "").prompt_id)
        self.editor.name.setFocus()
        self.editor.name.selectAll()

    def duplicate(self) -> None:
        """Another prompt with the same text."""
        self.editor.save()
        prompt = self.editor.prompt
        if prompt is not None:
            self.select(self._prompts.add(prompt.name, prompt.text).prompt_id)

    def delete(self) -> None:
        """Takes the prompt out, with a way back."""
        self.editor.save()
        prompt, row = self.editor.prompt, self.list.currentIndex().row()
        if prompt is not None:
            self._prompts.delete(prompt.prompt_id)
            self.list.setCurrentIndex(self.model.index(min(row, self.model.rowCount() - 1)))
            words = tr("“{name}” was deleted.", name=prompt.name)
            self.undo_bar.offer(words, self._undo_delete)

    def _undo_delete(self) -> None:
        prompt = self._prompts.undo_delete()
        if prompt is not None:
            self.select(prompt.prompt_id)

    # --- files ---

    def choose_import(self) -> QFileDialog:
        """Asks for a file to read prompts from."""
        dialog = self._file_dialog(tr("Import prompts"))
        dialog.setNameFilters([tr("Prompts (*.json *.txt *.md)"), tr("All files (*)")])
        dialog.fileSelected.connect(lambda path: self.read(Path(path)))
        dialog.open()
        return dialog

    def choose_export(self, all_of_them: bool) -> QFileDialog | None:
        """Asks where to write the shown prompt, or all; None if there is none."""
        self.editor.save()
        prompt = self.editor.prompt
        prompts = self._prompts.all() if all_of_them else [prompt] if prompt is not None else []
        if not prompts:
            return None
        suffix = "json" if all_of_them else "txt"
        dialog = self._file_dialog(tr("Export prompts"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(tr("JSON (*.json)") if all_of_them else tr("Text (*.txt)"))
        dialog.setDefaultSuffix(suffix)
        name = tr("System prompts") if all_of_them else prompts[0].name
        dialog.selectFile(legal_name(name, f".{suffix}"))
        dialog.fileSelected.connect(lambda path: self.write(prompts, Path(path)))
        dialog.open()
        return dialog

    def read(self, path: Path) -> None:
        """Adds the prompts of a file; those that are there already are left out."""
        try:
            found = read_prompts(path)
        except PromptFileError as error:
            self._say(error_words(error.info()), "error")
            return
        known = {(prompt.name, prompt.text) for prompt in self._prompts.all()}
        added = [self._prompts.add(name, text) for name, text in found if (name, text) not in known]
        self._say(tr_n("{n} prompt was added.", "{n} prompts were added.", len(added)), "muted")
        if added:
            self.select(added[0].prompt_id)

    def write(self, prompts: list[SystemPrompt], path: Path) -> None:
        """Writes prompts to a file."""
        try:
            write_prompts(prompts, path)
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"{path.name} cannot be written: {reason}"
            self._say(error_words(PromptFileError(message, path=str(path)).info()), "error")
        else:
            self._say(tr("Exported to {path}.", path=path), "muted")

    def _file_dialog(self, title: str) -> QFileDialog:
        dialog = QFileDialog(self, title)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        place = QStandardPaths.StandardLocation.DocumentsLocation
        dialog.setDirectory(QStandardPaths.writableLocation(place))
        return dialog

    def _say(self, text: str, tone: str) -> None:
        self.status.setProperty("tone", tone)
        self.status.style().unpolish(self.status)
        self.status.style().polish(self.status)
        self.status.setText(text)
        self.status.show()

    # --- showing ---

    def _on_list_current_changed(self) -> None:
        self._show_current()

    def _show_current(self) -> None:
        row = self.model.row_at(self.list.currentIndex())
        self.editor.show_prompt("" if row is None else row.prompt.prompt_id)
        for key in ("duplicate", "delete"):
            self.buttons[key].setEnabled(row is not None)

    def _refresh(self) -> None:
        shown = self.editor.prompt
        # Names may change their places; the same prompt stays in view.
        self.list.selectionModel().blockSignals(True)
        self.model.reload()
        if shown is not None:
            self.list.setCurrentIndex(self.model.index_of(shown.prompt_id))
        self.list.selectionModel().blockSignals(False)
        if not self.list.currentIndex().isValid() and self.model.rowCount():
            self.list.setCurrentIndex(self.model.index(0))
        self.list.viewport().update()
        self._show_current()

    def done(self, result: int) -> None:
        self.editor.save()
        super().done(result)
