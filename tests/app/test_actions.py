"""The registry: unique ids and shortcuts, everything reachable, everything listed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from PySide6.QtWidgets import QMenuBar, QWidget

from app.actions import SEPARATOR, Actions, MenuSpec, action_specs, menu_specs, tool_tip
from app.theme import ThemeManager

REQUIRED = {
    *("new_tab", "close_tab", "reopen_tab", "rename", "fork", "stop", "send", "quit"),
    *("toggle_cache_panel", "toggle_sidebar", "next_tab", "previous_tab", "focus_composer"),
    *("theme_system", "theme_light", "theme_dark", "shortcuts", "system_prompt"),
}


def ids_in(menus: list[MenuSpec]) -> list[str]:
    found: list[str] = []
    for menu in menus:
        for entry in menu.entries:
            if isinstance(entry, MenuSpec):
                found += ids_in([entry])
            elif entry != SEPARATOR:
                found.append(entry)
    return found


@pytest.fixture
def actions(qtbot) -> Iterator[Actions]:
    window = QWidget()
    qtbot.addWidget(window)
    yield Actions(window, ThemeManager("light"))
    del window


def test_ids_are_unique_and_complete() -> None:
    ids = [spec.action_id for spec in action_specs()]
    assert len(ids) == len(set(ids))
    assert set(ids) >= REQUIRED


def test_no_shortcut_is_given_twice() -> None:
    keys = [key for spec in action_specs() for key in spec.shortcuts]
    assert len(keys) == len(set(keys))


def test_no_action_that_takes_something_away_has_a_single_key() -> None:
    for spec in action_specs():
        if spec.action_id in ("close_tab", "quit"):
            assert all("+" in key for key in spec.shortcuts)


def test_every_action_is_in_a_menu_once() -> None:
    in_menus = ids_in(menu_specs())
    assert sorted(in_menus) == sorted(spec.action_id for spec in action_specs())


def test_menus_are_built(actions: Actions, qtbot) -> None:
    bar = QMenuBar()
    qtbot.addWidget(bar)
    actions.fill(bar)
    assert len(bar.actions()) == len(menu_specs())


def test_an_action_without_a_slot_is_refused(actions: Actions) -> None:
    with pytest.raises(ValueError, match="new_tab"):
        actions.connect_all({"quit": lambda: None})


def test_a_slot_for_no_action_is_refused(actions: Actions) -> None:
    slots = {action.objectName(): lambda: None for action in actions}
    with pytest.raises(KeyError):
        actions.connect_all({**slots, "fly": lambda: None})


def test_slots_are_called_by_id(actions: Actions) -> None:
    called: list[str] = []
    ids = [action.objectName() for action in actions]
    slots = {action_id: partial(called.append, action_id) for action_id in ids}
    actions.connect_all(slots)
    actions["fork"].trigger()
    actions["next_tab"].trigger()
    assert called == ["fork", "next_tab"]


def test_groups_check_one_action(actions: Actions) -> None:
    actions.check("theme", "dark")
    actions.check("theme", "light")
    checked = [a.objectName() for a in actions if a.isChecked()]
    assert checked == ["theme_light"]


def test_tool_tip_has_the_shortcut(actions: Actions) -> None:
    assert tool_tip(actions["new_tab"]) == "New tab (Ctrl+T)"
    assert tool_tip(actions["theme_light"]) == "Light"


def test_keys_from_the_settings_replace_an_actions_own(actions: Actions) -> None:
    assert actions.set_shortcuts({"new_tab": ("Ctrl+Alt+N", "F7"), "fork": ()}) == []
    assert [keys.toString() for keys in actions["new_tab"].shortcuts()] == ["Ctrl+Alt+N", "F7"]
    assert actions["fork"].shortcuts() == []
    assert actions.has_other_keys("new_tab")
    assert actions.set_shortcuts({}) == []
    assert actions["new_tab"].shortcut().toString() == "Ctrl+T"
    assert not actions.has_other_keys("new_tab")


def test_keys_that_two_actions_would_have_are_not_used(actions: Actions) -> None:
    wanted = {"new_tab": ("Ctrl+W",), "fly": ("F7",), "fork": ("F8",)}
    assert actions.set_shortcuts(wanted) == ["fly", "new_tab"]
    assert actions["new_tab"].shortcut().toString() == "Ctrl+T"
    assert actions["close_tab"].shortcut().toString() == "Ctrl+W"
    assert actions["fork"].shortcut().toString() == "F8"


def test_two_actions_can_change_places(actions: Actions) -> None:
    assert actions.set_shortcuts({"new_tab": ("Ctrl+W",), "close_tab": ("Ctrl+T",)}) == []
    assert actions["close_tab"].shortcut().toString() == "Ctrl+T"
