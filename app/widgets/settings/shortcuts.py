"""Every action with its keys, which can be changed."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QKeySequenceEdit,
    QLabel,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.actions import SEPARATOR, Actions, MenuSpec, action_specs, menu_specs
from app.i18n import tr
from app.settings import Settings
from app.shortcut_rules import keys_text, problem_with

_ROW = 28
_ROWS_SHOWN = 15


class ShortcutTable(QWidget):
    """A table of the actions, and below it one field for the keys of the chosen one.

    A field for each would be a thousand widgets, which make every change of theme slow.
    ``changed``: the keys of all actions that have others than their own, by action id.
    """

    changed = Signal(object)

    def __init__(self, actions: Actions, settings: Settings) -> None:
        super().__init__()
        self._actions = actions
        self._settings = settings
        self._named = list(named_actions())
        self.reset_all = _button(tr("Reset all shortcuts"), "reset shortcuts")
        self.reset_all.clicked.connect(lambda: self.changed.emit({}))
        self.table = self._make_table()
        self.table.currentCellChanged.connect(self._show_current)
        self.name = QLabel()
        self.edit = QKeySequenceEdit()
        self.edit.setObjectName("shortcut keys")
        self.edit.setMaximumSequenceLength(1)
        self.edit.setClearButtonEnabled(True)
        self.edit.setFixedWidth(190)
        self.edit.editingFinished.connect(self._on_edit_finished)
        self.reset_button = _button(tr("Reset"), "reset shortcut")
        self.reset_button.clicked.connect(self._on_reset_clicked)
        self.error = QLabel()
        self.error.setProperty("tone", "error")
        self.error.setWordWrap(True)
        self._lay_out()
        self.refresh()
        self.table.setCurrentCell(0, 0)

    def _make_table(self) -> QTableWidget:
        table = QTableWidget(len(self._named), 2)
        table.setObjectName("shortcut table")
        table.setAccessibleName(tr("Keyboard shortcuts"))
        table.setHorizontalHeaderLabels([tr("Action"), tr("Keys")])
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(theme.row_height(_ROW))
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setTabKeyNavigation(False)
        table.setShowGrid(False)
        table.setMinimumHeight(theme.row_height(_ROW) * _ROWS_SHOWN)
        header = table.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft)
        for row, (_action_id, name) in enumerate(self._named):
            table.setItem(row, 0, QTableWidgetItem(name))
            table.setItem(row, 1, QTableWidgetItem())
        return table

    def _lay_out(self) -> None:
        note = QLabel(tr("Choose an action and press the new keys in the field below."))
        more = QLabel(tr("New line in the message: Shift+Enter."))
        for label in (note, more):
            label.setProperty("tone", "muted")
            label.setWordWrap(True)
        head = QHBoxLayout()
        head.addWidget(note, 1)
        head.addWidget(self.reset_all)
        field = QHBoxLayout()
        field.setSpacing(8)
        field.addWidget(self.name, 1)
        field.addWidget(self.edit)
        field.addWidget(self.reset_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 0)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self.table, 1)
        column.addLayout(field)
        column.addWidget(self.error)
        column.addWidget(more)

    @property
    def current_id(self) -> str:
        """The chosen action."""
        return self._named[max(0, self.table.currentRow())][0]

    def action_ids(self) -> list[str]:
        """All actions, in the order of the menus."""
        return [action_id for action_id, _name in self._named]

    def select(self, action_id: str) -> None:
        """Chooses an action."""
        self.table.setCurrentCell(self.action_ids().index(action_id), 0)

    def filter(self, words: list[str]) -> bool:
        """Shows the rows with all of ``words``; an empty list shows all. False if there is none."""
        shown = []
        for row, (action_id, name) in enumerate(self._named):
            said = " ".join([name, *map(keys_text, self._actions[action_id].shortcuts())]).lower()
            matches = all(word in said for word in words)
            self.table.setRowHidden(row, not matches)
            if matches:
                shown.append(row)
        if shown and self.table.isRowHidden(max(0, self.table.currentRow())):
            self.table.setCurrentCell(shown[0], 0)
        return bool(shown)

    def refresh(self) -> None:
        """The keys changed."""
        for row, (action_id, _name) in enumerate(self._named):
            keys = self._actions[action_id].shortcuts()
            item = self.table.item(row, 1)
            if item is not None:
                item.setText(", ".join(map(keys_text, keys)))
        self.reset_all.setEnabled(bool(self._settings.values.shortcuts))
        self._show_current()

    def _show_current(self) -> None:
        action_id, name = self._named[max(0, self.table.currentRow())]
        keys = self._actions[action_id].shortcuts()
        self.name.setText(name)
        self.edit.setAccessibleName(tr("Keys for “{action}”", action=name))
        self.reset_button.setAccessibleName(tr("Reset “{name}”", name=name))
        self.edit.blockSignals(True)
        self.edit.setKeySequence(keys[0] if keys else QKeySequence())
        self.edit.blockSignals(False)
        self._show_error("")
        self.reset_button.setEnabled(self._actions.has_other_keys(action_id))

    def _on_edit_finished(self) -> None:
        action_id = self.current_id
        action, keys = self._actions[action_id], self.edit.keySequence()
        present = action.shortcuts()
        if keys == (present[0] if present else QKeySequence()):
            self._show_error("")
            return
        problem = problem_with(keys, action, self._actions)
        self._show_error(problem)
        if not problem:
            chosen = () if keys.isEmpty() else (keys.toString(),)
            self.changed.emit({**self._settings.values.shortcuts, action_id: chosen})

    def _on_reset_clicked(self) -> None:
        kept = dict(self._settings.values.shortcuts)
        kept.pop(self.current_id, None)
        self.changed.emit(kept)

    def _show_error(self, text: str) -> None:
        self.error.setText(text)
        self.error.setVisible(bool(text))


def _button(text: str, name: str) -> QPushButton:
    button = QPushButton(text)
    button.setObjectName(name)
    return button


def named_actions() -> Iterator[tuple[str, str]]:
    """(action id, name) in the order of the menus; one in a submenu bears that menu's name too."""
    for menu in menu_specs():
        yield from _named(menu, "")


def _named(menu: MenuSpec, prefix: str) -> Iterator[tuple[str, str]]:
    texts = {spec.action_id: spec.text.rstrip("…") for spec in action_specs()}
    for entry in menu.entries:
        if isinstance(entry, MenuSpec):
            yield from _named(entry, f"{entry.text}: ")
        elif entry != SEPARATOR:
            yield entry, f"{prefix}{texts[entry]}"
