"""Every action of the window, once: id, text, shortcut, icon. Menus and buttons come from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from app import i18n, theme
from app.i18n import tr
from app.settings import Shortcuts
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
        ActionSpec("find", tr("Find in this conversation…"), ("Ctrl+F",), "search"),
        ActionSpec("find_next", tr("Find next"), ("F3",)),
        ActionSpec("find_previous", tr("Find previous"), ("Shift+F3",)),
        ActionSpec("search", tr("Find in all conversations"), ("Ctrl+Shift+F",), "search"),
        ActionSpec("import", tr("Import conversations…"), ("Ctrl+O",)),
        ActionSpec("pin", tr("Pin or unpin"), ("Ctrl+D",)),
        ActionSpec("move_to_folder", tr("Move to folder…"), ("Ctrl+Shift+M",)),
        ActionSpec("archive", tr("Archive or take out"), ("Ctrl+E",)),
        ActionSpec("delete_conversation", tr("Delete conversation"), ("Ctrl+Shift+Del",)),
        ActionSpec("undo_delete", tr("Undo deleting conversations"), ("Ctrl+Alt+Z",)),
        ActionSpec("export_all", tr("Export all conversations…")),
        ActionSpec("export_markdown", tr("Export as Markdown…"), ("Ctrl+Shift+E",)),
        ActionSpec("export_json", tr("Export as JSON…")),
        ActionSpec("export_pdf", tr("Export as PDF…")),
        ActionSpec("print", tr("Print…"), ("Ctrl+P",)),
        ActionSpec("quit", tr("Quit"), ("Ctrl+Q",)),
        ActionSpec("send", tr("Send message"), ("Ctrl+Return", "Ctrl+Enter"), "send"),
        ActionSpec("stop", tr("Stop answer"), ("Esc",), "stop"),
        ActionSpec("regenerate", tr("Regenerate answer"), ("Ctrl+R",), "refresh"),
        ActionSpec("copy_answer", tr("Copy last answer"), ("Ctrl+Shift+C",), "copy"),
        ActionSpec("copy_markdown", tr("Copy as Markdown"), ("Ctrl+Alt+C",)),
        ActionSpec("copy_conversation", tr("Copy conversation as Markdown")),
        ActionSpec("continue_answer", tr("Continue answer"), ("Ctrl+G",), "play"),
        ActionSpec("repeat_answer", tr("Run again identically"), ("Ctrl+Shift+R",)),
        *(
            ActionSpec(f"answers_{n}", tr("{n} answers side by side", n=n), (f"Ctrl+{n}",))
            for n in range(2, 5)
        ),
        ActionSpec("edit_message", tr("Edit message"), ("Shift+F2",), "edit"),
        ActionSpec("fork_message", tr("Fork from here into a new tab"), ("Ctrl+Shift+N",), "fork"),
        ActionSpec("message_facts", tr("About this answer…"), ("Ctrl+I",), "info"),
        ActionSpec("previous_version", tr("Previous version"), ("Alt+Left",), "left"),
        ActionSpec("next_version", tr("Next version"), ("Alt+Right",), "right"),
        ActionSpec("compare_versions", tr("Versions side by side"), ("Ctrl+Shift+H",)),
        ActionSpec(
            "delete_message", tr("Delete this and what follows"), ("Ctrl+Shift+X",), "trash"
        ),
        ActionSpec("delete_pair", tr("Delete question and answer")),
        ActionSpec("undo_delete_message", tr("Undo deleting messages"), ("Ctrl+Shift+Y",)),
        ActionSpec("previous_message", tr("Previous message"), ("Alt+Up",)),
        ActionSpec("next_message", tr("Next message"), ("Alt+Down",)),
        ActionSpec("message_menu", tr("Menu of the message"), ("Ctrl+M",), "menu"),
        ActionSpec("keep_in_cache", tr("Keep in the cache"), ("Ctrl+Shift+G",), "", True),
        ActionSpec("system_prompt", tr("System prompt…"), ("Ctrl+Shift+S",), "prompt"),
        ActionSpec("prompt_library", tr("Library of system prompts…"), ("Ctrl+Alt+S",)),
        ActionSpec("overflow_stop", tr("Stop and say so"), (), "", True, "overflow"),
        ActionSpec(
            "overflow_drop_oldest", tr("Drop the oldest messages"), (), "", True, "overflow"
        ),
        ActionSpec("model_library", tr("Model library…"), ("Ctrl+Shift+O",)),
        ActionSpec("open_model", tr("Open a model file…")),
        ActionSpec("unload_model", tr("Unload the model")),
        ActionSpec("focus_composer", tr("Go to composer"), ("Ctrl+L",)),
        ActionSpec("focus_transcript", tr("Go to transcript"), ("Ctrl+Shift+L",)),
        ActionSpec("jump_to_latest", tr("Jump to latest"), ("Ctrl+J",), "down"),
        ActionSpec("next_tab", tr("Next tab"), ("Ctrl+Tab", "Ctrl+PgDown")),
        ActionSpec("previous_tab", tr("Previous tab"), ("Ctrl+Shift+Tab", "Ctrl+PgUp")),
        ActionSpec("move_tab_left", tr("Move tab to the left"), ("Ctrl+Shift+PgUp",)),
        ActionSpec("move_tab_right", tr("Move tab to the right"), ("Ctrl+Shift+PgDown",)),
        ActionSpec("tab_list", tr("All tabs"), ("Ctrl+Shift+A",)),
        *(
            ActionSpec(f"tab_{n}", tr("Last tab") if n == 9 else tr("Tab {n}", n=n), (f"Alt+{n}",))
            for n in range(1, 10)
        ),
        ActionSpec("split_view", tr("Two conversations side by side"), ("Ctrl+\\",), "split", True),
        ActionSpec("other_pane", tr("Go to the other side"), ("F6",)),
        ActionSpec("zoom_in", tr("Larger text"), ("Ctrl++", "Ctrl+=")),
        ActionSpec("zoom_out", tr("Smaller text"), ("Ctrl+-",)),
        ActionSpec("zoom_reset", tr("Usual size of text"), ("Ctrl+0",)),
        ActionSpec("toggle_sidebar", tr("Side bar"), ("Ctrl+B",), "sidebar", True),
        ActionSpec("focus_sidebar", tr("Go to side bar"), ("Ctrl+Shift+B",)),
        ActionSpec("toggle_cache_panel", tr("Cache panel"), ("Ctrl+Shift+P",), "panel", True),
        ActionSpec("parity_inspector", tr("Parity inspector"), (), "check"),
        ActionSpec("guided_tour", tr("Guided tour of the cache"), (), "info"),
        ActionSpec("panel_right", tr("At the right"), (), "", True, "panel"),
        ActionSpec("panel_below", tr("Below"), (), "", True, "panel"),
        ActionSpec("panel_window", tr("In its own window"), (), "", True, "panel"),
        ActionSpec("theme_system", tr("Like the system"), (), "", True, "theme"),
        ActionSpec("theme_light", tr("Light"), (), "sun", True, "theme"),
        ActionSpec("theme_dark", tr("Dark"), (), "moon", True, "theme"),
        ActionSpec("toggle_theme", tr("Switch light and dark"), ("Ctrl+Shift+D",), "sun"),
        ActionSpec("language_system", tr("Like the system"), (), "", True, "language"),
        ActionSpec("language_en", i18n.LANGUAGES["en"], (), "", True, "language"),
        ActionSpec("language_zh_CN", i18n.LANGUAGES["zh_CN"], (), "", True, "language"),
        ActionSpec("settings", tr("Settings…"), ("Ctrl+,",), "settings"),
        ActionSpec("sampling", tr("Sampling…"), ("Ctrl+Shift+J",), "settings"),
        ActionSpec("attach_files", tr("Attach text files…"), ("Ctrl+Shift+U",), "attach"),
        ActionSpec("help", tr("How Quire works"), ("F1",), "info"),
        ActionSpec("shortcuts", tr("Keyboard shortcuts"), ("Ctrl+/",), "keyboard"),
        ActionSpec("diagnostics", tr("Diagnostics…")),
        ActionSpec("about", tr("About Quire")),
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
    places = MenuSpec(
        tr("Place of the cache panel"), ("panel_right", "panel_below", "panel_window")
    )
    return [
        MenuSpec(
            tr("&Conversation"),
            (
                *("new_tab", "close_tab", "reopen_tab", SEPARATOR),
                *(
                    "find",
                    "find_next",
                    "find_previous",
                    "search",
                    SEPARATOR,
                    "rename",
                    "fork",
                    "system_prompt",
                    "prompt_library",
                    "sampling",
                    overflow,
                ),
                *("keep_in_cache", SEPARATOR),
                *("pin", "move_to_folder", "archive", "delete_conversation", "undo_delete"),
                *(SEPARATOR, "import", "export_markdown", "export_json", "export_all"),
                *("export_pdf", "print"),
                *(SEPARATOR, "settings", "quit"),
            ),
        ),
        MenuSpec(
            tr("&Message"),
            (
                *("send", "attach_files", "stop", "regenerate", "continue_answer", "repeat_answer"),
                MenuSpec(
                    tr("Several answers"),
                    ("answers_2", "answers_3", "answers_4", "compare_versions"),
                ),
                *("copy_answer", "copy_markdown", "copy_conversation", SEPARATOR),
                *("edit_message", "fork_message", "message_facts"),
                *("previous_version", "next_version", SEPARATOR),
                *("delete_message", "delete_pair", "undo_delete_message", SEPARATOR),
                *("previous_message", "next_message", "message_menu", "jump_to_latest"),
            ),
        ),
        MenuSpec(
            tr("&View"),
            (
                *("toggle_sidebar", "toggle_cache_panel", places, "parity_inspector", SEPARATOR),
                *("next_tab", "previous_tab", "move_tab_left", "move_tab_right", "tab_list"),
                MenuSpec(tr("Go to tab"), tuple(f"tab_{n}" for n in range(1, 10))),
                *("split_view", "other_pane", SEPARATOR),
                *("focus_sidebar", "focus_composer", "focus_transcript", SEPARATOR),
                *("zoom_in", "zoom_out", "zoom_reset"),
                *(SEPARATOR, themes, languages),
            ),
        ),
        MenuSpec(tr("M&odel"), ("model_library", "open_model", "unload_model")),
        MenuSpec(
            tr("&Help"), ("help", "guided_tour", "shortcuts", SEPARATOR, "diagnostics", "about")
        ),
    ]


class Actions(QObject):
    """The registry. Actions belong to ``window``, so that their shortcuts work everywhere in it."""

    def __init__(
        self, window: QWidget, themes: ThemeManager, shortcuts: Shortcuts = MappingProxyType({})
    ) -> None:
        """``shortcuts``: as for ``set_shortcuts``."""
        super().__init__(window)
        self._themes = themes
        self._actions: dict[str, QAction] = {}
        self._own_keys: dict[str, tuple[str, ...]] = {}
        self._icons: dict[str, str] = {}
        groups: dict[str, QActionGroup] = {}
        for spec in action_specs():
            action = QAction(spec.text, window)
            action.setObjectName(spec.action_id)
            self._own_keys[spec.action_id] = spec.shortcuts
            action.setCheckable(spec.is_checkable)
            if spec.group:
                group = groups.setdefault(spec.group, QActionGroup(self))
                group.addAction(action)
            self._actions[spec.action_id] = action
            self._icons[spec.action_id] = spec.icon
            window.addAction(action)
        self.refused_shortcuts = self.set_shortcuts(shortcuts)
        themes.changed.connect(self._set_icons)
        self._set_icons()

    def set_shortcuts(self, shortcuts: Shortcuts) -> list[str]:
        """Gives every action its own keys, or those that ``shortcuts`` names for it.

        Returns the names in ``shortcuts`` that were not used: of no action, or with keys that
        another action has, which then would do nothing for either.
        """
        refused = {name for name in shortcuts if name not in self._actions}
        keys = {
            action_id: [QKeySequence(text) for text in shortcuts.get(action_id, own)]
            for action_id, own in self._own_keys.items()
        }
        for action_id in shortcuts.keys() - refused:
            others = [other for name, found in keys.items() if name != action_id for other in found]
            if any(key in others for key in keys[action_id]):
                refused.add(action_id)
                keys[action_id] = [QKeySequence(text) for text in self._own_keys[action_id]]
        for action_id, action in self._actions.items():
            if action.shortcuts() != keys[action_id]:
                action.setShortcuts(keys[action_id])
            # Buttons show the tool tip of their action, and again whenever the action changes.
            action.setToolTip(tool_tip(action))
        return sorted(refused)

    def has_other_keys(self, action_id: str) -> bool:
        """Whether the action has other keys than its own."""
        own = [QKeySequence(text) for text in self._own_keys[action_id]]
        return self._actions[action_id].shortcuts() != own

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
