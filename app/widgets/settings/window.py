"""The settings in one searchable page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.actions import Actions
from app.engine_settings import EngineSettings
from app.error_text import describe_error
from app.i18n import sentences, tr
from app.session import Session
from app.setting_specs import Section, specs_of
from app.settings import Settings
from app.theme import ThemeManager
from app.widgets.built_window import BuiltWindow
from app.widgets.section_list import SectionList
from app.widgets.settings.file_part import FilePart
from app.widgets.settings.presets import PresetRow
from app.widgets.settings.row import SettingRow
from app.widgets.settings.shortcuts import ShortcutTable
from app.widgets.settings.target import SettingsTarget
from app.widgets.settings.words import section_words, setting_words
from app.widgets.undo_bar import UndoBar
from engine.api.errors import ErrorInfo

SHORTCUTS, FILE = "shortcuts", "file"
_SIZE = QSize(880, 700)
_LIST_WIDTH = 190


class SettingsWindow(BuiltWindow):
    """Every setting with its name, explanation and reset; changes count as they are made."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        themes: ThemeManager,
        engine: EngineSettings,
        actions: Callable[[], Actions],
        parent: QWidget,
    ) -> None:
        super().__init__(parent, _SIZE)
        self._settings = settings
        self._themes = themes
        self._engine = engine
        self._actions = actions
        self._target = SettingsTarget(session, settings)
        self._shown = Section.APPEARANCE.value
        self._query = ""
        self.rows: dict[str, SettingRow] = {}
        self.area: QScrollArea | None = None
        self._before_reset: dict[str, Any] = {}
        session.settings_changed.connect(self._on_settings_changed)
        engine.pending_changed.connect(self._show_pending)
        engine.refused.connect(self._on_engine_refused)
        self.rebuild()

    def build(self) -> QWidget:
        self.setWindowTitle(tr("Settings"))
        kept = 0 if self.area is None else self.area.verticalScrollBar().value()
        self.rows = {}
        self._parts: dict[str, _Part] = {}
        self.search = QLineEdit(self._query)
        self.search.setObjectName("settings search")
        self.search.setPlaceholderText(tr("Find a setting"))
        self.search.setAccessibleName(tr("Find a setting"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._on_search_changed)
        self.sections = SectionList(tr("Sections"), _LIST_WIDTH)
        self.sections.setObjectName("settings sections")
        self.sections.currentRowChanged.connect(self._on_section_changed)
        self.nothing = QLabel(tr("No setting has these words."))
        self.nothing.setProperty("tone", "muted")
        self._make_parts()
        area = self.area = self._make_scroll()
        content = QWidget()
        left = QVBoxLayout()
        left.setSpacing(8)
        left.addWidget(self.search)
        left.addWidget(self.sections, 1)
        right = QVBoxLayout()
        right.setSpacing(8)
        right.addWidget(area, 1)
        self.undo_bar = UndoBar(self._themes)
        right.addWidget(self.undo_bar)
        self._make_pending()
        right.addWidget(self.pending)
        row = QHBoxLayout(content)
        row.setContentsMargins(12, 12, 12, 12)
        row.setSpacing(12)
        row.addLayout(left)
        row.addLayout(right, 1)
        # Only now: without a parent it would be a window for a moment.
        self._show_pending()
        self.show_section(self._shown)
        self._filter()
        self._offer_undo()
        QTimer.singleShot(0, area, lambda: area.verticalScrollBar().setValue(kept))
        return content

    def _make_parts(self) -> None:
        for section in Section:
            part = _Part(section_words(section))
            if section is Section.SAMPLING:
                part.add_note(
                    tr("For conversations that have no sampling of their own (in the composer).")
                )
                self.presets = PresetRow(lambda: self._settings.values.sampling)
                self.presets.chosen.connect(self._on_preset_chosen)
                part.add(self.presets, self.presets.matches)
            for spec in specs_of(section):
                value, default = self._target.value(spec.path), self._target.default(spec.path)
                row = SettingRow(self._themes, spec, value, default)
                row.changed.connect(self._on_row_changed)
                self.rows[spec.path] = row
                part.add(row, row.matches)
            self._parts[section.value] = part
        shortcuts = _Part(tr("Keyboard shortcuts"))
        self.shortcuts = ShortcutTable(self._actions(), self._settings)
        self.shortcuts.changed.connect(self._on_shortcuts_changed)
        shortcuts.add(self.shortcuts, self.shortcuts.filter)
        self._parts[SHORTCUTS] = shortcuts
        file = _Part(tr("Settings file"))
        self.file = FilePart(self._settings)
        self.file.reset_requested.connect(self._on_reset_requested)
        file.add(self.file, self.file.matches)
        self._parts[FILE] = file

    def _make_scroll(self) -> QScrollArea:
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(4, 0, 12, 12)
        column.setSpacing(16)
        column.addWidget(self.nothing)
        for part in self._parts.values():
            column.addWidget(part)
            self.sections.add(part.title)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidget(page)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setAccessibleName(tr("Settings"))
        # The rows take the keyboard; the page scrolls to them.
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        return scroll

    def _make_pending(self) -> None:
        self.pending = QFrame()
        self.pending.setProperty("role", "notice")
        self.pending_label = QLabel()
        self.pending_label.setWordWrap(True)
        self.reload_button = QPushButton(tr("Load the model again"))
        self.reload_button.setObjectName("settings reload")
        self.reload_button.clicked.connect(self._engine.reload)
        row = QHBoxLayout(self.pending)
        row.setContentsMargins(12, 6, 6, 6)
        row.addWidget(self.pending_label, 1)
        row.addWidget(self.reload_button)

    # --- sections and search ---

    def show_section(self, name: str) -> None:
        """Shows one section: a value of ``Section``, ``SHORTCUTS`` or ``FILE``."""
        self.sections.setCurrentRow(list(self._parts).index(name))

    def _on_section_changed(self, row: int) -> None:
        self._shown = list(self._parts)[max(row, 0)]
        if self.search.text():
            self.search.clear()
        self._filter()

    def _on_search_changed(self, text: str) -> None:
        self._query = text
        self._filter()

    def _filter(self) -> None:
        words = self._query.lower().split()
        found = False
        for name, part in self._parts.items():
            shown = part.filter(words) if words else name == self._shown
            if not words:
                part.filter([])
            part.setVisible(shown)
            found |= shown
        self.nothing.setVisible(not found)

    # --- changes ---

    def _on_row_changed(self, path: str, value: object) -> None:
        reason = self._target.set({path: value})
        if reason:
            self.rows[path].refuse(reason)

    def _on_preset_chosen(self, params: dict[str, object]) -> None:
        self._target.set({f"sampling.{name}": value for name, value in params.items()})

    def _on_shortcuts_changed(self, shortcuts: dict[str, tuple[str, ...]]) -> None:
        are_several = len(self._settings.values.shortcuts) > 1
        self._set_or_reset({"shortcuts": shortcuts}, is_reset=are_several and not shortcuts)

    def _on_reset_requested(self) -> None:
        paths = [path for path in self.rows if path != "language"]
        self._set_or_reset({path: self._target.default(path) for path in paths}, is_reset=True)

    def _set_or_reset(self, changes: dict[str, Any], is_reset: bool) -> None:
        before = {path: self._target.value(path) for path in changes}
        self._target.set(changes)
        self._before_reset = before if is_reset and before != changes else {}
        self._offer_undo()

    def _offer_undo(self) -> None:
        """A reset of many can be taken back; also where it has made the window anew."""
        if not self._before_reset:
            self.undo_bar.hide()
            return
        is_keys = "shortcuts" in self._before_reset
        words = tr("All shortcuts were reset.") if is_keys else tr("All settings were reset.")
        self.undo_bar.offer(words, self._undo_reset)

    def _undo_reset(self) -> None:
        before, self._before_reset = self._before_reset, {}
        self._target.set(before)

    def _on_settings_changed(self, names: frozenset[str]) -> None:
        if "shortcuts" in names:
            self.shortcuts.refresh()
        self.presets.refresh()
        for path, row in self.rows.items():
            row.set_value(self._target.value(path), self._target.default(path))
        self.file.refresh()

    def _on_engine_refused(self, error: ErrorInfo) -> None:
        self.pending_label.setText(sentences(*describe_error(error)))
        self.reload_button.hide()
        self.pending.show()

    def _show_pending(self) -> None:
        names = [setting_words(f"engine.{name}")[0] for name in self._engine.pending]
        words = tr("Takes effect when the model is loaded again: {names}.", names=", ".join(names))
        self.pending_label.setText(words)
        self.reload_button.show()
        self.pending.setVisible(bool(names))


class _Part(QWidget):
    """A heading and what is below it; ``filter`` shows what matches."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        heading = QLabel(title)
        heading.setProperty("role", "heading")
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(2)
        self._column.addWidget(heading)
        self._entries: list[tuple[QWidget, Callable[[list[str]], bool]]] = []

    def add_note(self, text: str) -> None:
        """A sentence below the heading."""
        note = QLabel(text)
        note.setWordWrap(True)
        note.setProperty("tone", "muted")
        self._column.addWidget(note)

    def add(self, widget: QWidget, matches: Callable[[list[str]], bool]) -> None:
        self._entries.append((widget, matches))
        self._column.addWidget(widget)

    def filter(self, words: list[str]) -> bool:
        """Shows the entries with all of ``words``, all if it is empty. False if there are none."""
        in_title = all(word in self.title.lower() for word in words)
        found = False
        for widget, matches in self._entries:
            shown = matches([] if in_title else words)
            widget.setVisible(shown)
            found |= shown
        return found
