"""Every action of the window, once: id, text, shortcut, icon. Menus and buttons come from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from app import i18n, theme
from app.i18n import tr
from app.theme import ThemeManager

SEPARATOR = "-"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """``shortcuts``: the first one is shown. ``group``: only one action of it is checked."""

    action_id: str
    text: str
    shortcuts: tuple[str, ...] = ()
    icon: str = ""
    is_checkable: bool = False
    group: str = ""


def action_specs() -> list[ActionSpec]:
    """All actions in the user's language."""
    return [
        ActionSpec("new_tab", tr("New tab"), ("Ctrl+T",), "plus"),
        ActionSpec("close_tab", tr("Close tab"), ("Ctrl+W",), "close"),
        ActionSpec("reopen_tab", tr("Reopen closed tab"), ("Ctrl+Shift+T",)),
        ActionSpec("rename", tr("Rename conversation"), ("F2",), "edit"),
        ActionSpec("fork", tr("Fork conversation"), ("Ctrl+Shift+K",), "fork"),
        ActionSpec("search", tr("Find in all conversations"), ("Ctrl+F", "Ctrl+Shift+F"), "search"),
        ActionSpec("import", tr("Import conversations…"), ("Ctrl+O",)),
        ActionSpec("export_markdown", tr("Export as Markdown…"), ("Ctrl+Shift+E",)),
        ActionSpec("export_json", tr("Export as JSON…")),
        ActionSpec("quit", tr("Quit"), ("Ctrl+Q",)),
        ActionSpec("send", tr("Send message"), ("Ctrl+Return", "Ctrl+Enter"), "send"),
        ActionSpec("stop", tr("Stop answer"), ("Esc",), "stop"),
        ActionSpec("regenerate", tr("Regenerate answer"), ("Ctrl+R",), "refresh"),
        ActionSpec("copy_answer", tr("Copy last answer"), ("Ctrl+Shift+C",), "copy"),
        ActionSpec("system_prompt", tr("System prompt…"), ("Ctrl+Shift+S",), "prompt"),
        ActionSpec("overflow_stop", tr("Stop and say so"), (), "", True, "overflow"),
        ActionSpec(
            "overflow_drop_oldest", tr("Drop the oldest messages"), (), "", True, "overflow"
        ),
        ActionSpec("focus_composer", tr("Go to composer"), ("Ctrl+L",)),
        ActionSpec("focus_transcript", tr("Go to transcript"), ("Ctrl+Shift+L",)),
        ActionSpec("jump_to_latest", tr("Jump to latest"), ("Ctrl+J",), "down"),
        ActionSpec("next_tab", tr("Next tab"), ("Ctrl+Tab", "Ctrl+PgDown")),
        ActionSpec("previous_tab", tr("Previous tab"), ("Ctrl+Shift+Tab", "Ctrl+PgUp")),
        ActionSpec("toggle_sidebar", tr("Side bar"), ("Ctrl+B",), "sidebar", True),
        ActionSpec("toggle_cache_panel", tr("Cache panel"), ("Ctrl+Shift+P",), "panel", True),
        ActionSpec("panel_below", tr("Cache panel below"), (), "", True),
        ActionSpec("theme_system", tr("Like the system"), (), "", True, "theme"),
        ActionSpec("theme_light", tr("Light"), (), "sun", True, "theme"),
        ActionSpec("theme_dark", tr("Dark"), (), "moon", True, "theme"),
        ActionSpec("toggle_theme", tr("Switch light and dark"), ("Ctrl+Shift+D",), "sun"),
        ActionSpec("language_system", tr("Like the system"), (), "", True, "language"),
        ActionSpec("language_en", i18n.LANGUAGES["en"], (), "", True, "language"),
        ActionSpec("language_zh_CN", i18n.LANGUAGES["zh_CN"], (), "", True, "language"),
        ActionSpec("shortcuts", tr("Keyboard shortcuts"), ("F1",), "keyboard"),
    ]


@dataclass(frozen=True, slots=True)
class MenuSpec:
    """A menu: action ids, ``SEPARATOR``, or menus inside it."""

    text: str
    entries: tuple[str | MenuSpec, ...]


def menu_specs() -> list[MenuSpec]:
    """The menu bar in the user's language."""
    themes = MenuSpec(tr("Theme"), ("theme_system", "theme_light", "theme_dark", "toggle_theme"))
    languages = MenuSpec(tr("Language"), ("language_system", "language_en", "language_zh_CN"))
    overflow = MenuSpec(tr("When the context is full"), ("overflow_stop", "overflow_drop_oldest"))
    return [
        MenuSpec(
            tr("&Conversation"),
            (
                *("new_tab", "close_tab", "reopen_tab", SEPARATOR),
                *("search", SEPARATOR, "rename", "fork", "system_prompt", overflow, SEPARATOR),
                *("import", "export_markdown", "export_json", SEPARATOR, "quit"),
            ),
        ),
        MenuSpec(
            tr("&Message"),
            ("send", "stop", "regenerate", "copy_answer", SEPARATOR, "jump_to_latest"),
        ),
        MenuSpec(
            tr("&View"),
            (
                *("toggle_sidebar", "toggle_cache_panel", "panel_below", SEPARATOR),
                *("next_tab", "previous_tab", "focus_composer", "focus_transcript"),
                *(SEPARATOR, themes, languages),
            ),
        ),
        MenuSpec(tr("&Help"), ("shortcuts",)),
    ]


class Actions(QObject):
    """The registry. Actions belong to ``window``, so that their shortcuts work everywhere in it."""

    def __init__(self, window: QWidget, themes: ThemeManager) -> None:
        super().__init__(window)
        self._themes = themes
        self._actions: dict[str, QAction] = {}
        self._icons: dict[str, str] = {}
        groups: dict[str, QActionGroup] = {}
        for spec in action_specs():
            action = QAction(spec.text, window)
            action.setObjectName(spec.action_id)
            action.setShortcuts([QKeySequence(keys) for keys in spec.shortcuts])
            action.setCheckable(spec.is_checkable)
            if spec.group:
                group = groups.setdefault(spec.group, QActionGroup(self))
                group.addAction(action)
            self._actions[spec.action_id] = action
            self._icons[spec.action_id] = spec.icon
            window.addAction(action)
        themes.changed.connect(self._set_icons)
        self._set_icons()

    def __getitem__(self, action_id: str) -> QAction:
        return self._actions[action_id]

    def __iter__(self) -> Iterator[QAction]:
        return iter(self._actions.values())

    def connect_all(self, slots: dict[str, Callable[[], object]]) -> None:
        """``slots`` by action id.

        Raises:
            KeyError: an id that does not exist.
            ValueError: an action without a slot.
        """
        missing = self._actions.keys() - slots.keys()
        if missing:
            raise ValueError(f"actions without a slot: {sorted(missing)}")
        for action_id, slot in slots.items():
            self._actions[action_id].triggered.connect(lambda _checked=False, slot=slot: slot())

    def fill(self, bar: QMenuBar) -> None:
        """Builds the menus."""
        for spec in menu_specs():
            menu = bar.addMenu(spec.text)
            self._fill_menu(menu, spec)

    def _fill_menu(self, menu: QMenu, spec: MenuSpec) -> None:
        for entry in spec.entries:
            if isinstance(entry, MenuSpec):
                self._fill_menu(menu.addMenu(entry.text), entry)
            elif entry == SEPARATOR:
                menu.addSeparator()
            else:
                menu.addAction(self._actions[entry])

    def check(self, group: str, value: str) -> None:
        """Checks the action of a group that stands for ``value``."""
        self._actions[f"{group}_{value}"].setChecked(True)

    def _set_icons(self) -> None:
        current: theme.Theme = self._themes.theme
        for action_id, name in self._icons.items():
            if name:
                self._actions[action_id].setIcon(current.icon(name))
        self._actions["toggle_theme"].setIcon(current.icon("sun" if current.dark else "moon"))


def tool_tip(action: QAction) -> str:
    """Text and shortcut of an action, for a button that has only an icon."""
    keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
    text = action.text().rstrip("…")
    return f"{text} ({keys})" if keys else text
