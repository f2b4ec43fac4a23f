"""Filing from the side bar: its menu, dragging, keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QDragLeaveEvent, QDragMoveEvent, QDropEvent, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit

from app.models import groups
from tests.helpers.listed import headings
from tests.helpers.shelf_stage import active_stage, entry, label, menu_at, select, stored, texts
from tests.helpers.window_stage import Stage

pytestmark = pytest.mark.qt_log_ignore("does not support")
LEFT = Qt.MouseButton.LeftButton
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with active_stage(qtbot) as made:
        yield made


def test_the_menu_acts_on_all_that_are_selected(stage: Stage) -> None:
    one, two, three = stored(stage, "One", "Two", "Three")
    select(stage, one, two)
    model = stage.window.side_bar.model
    entry(menu_at(stage, model.index_of(two)), "Pin").trigger()
    assert label(stage, one, "pinned")
    assert label(stage, two, "pinned")
    model.reload()
    # One that is not selected is meant alone.
    entry(menu_at(stage, model.index_of(three)), "Archive").trigger()
    assert label(stage, three, "archived")
    assert not label(stage, one, "archived")


def test_the_menu_of_one_and_of_several(stage: Stage) -> None:
    one, two = stored(stage, "One", "Two")
    model = stage.window.side_bar.model
    alone = texts(menu_at(stage, model.index_of(one)))
    assert alone[:3] == ["Open", "Show beside", "Rename"]
    assert "Close" not in alone
    select(stage, one, two)
    assert texts(menu_at(stage, model.index_of(one)))[0] == "Open 2 tabs"


def test_several_are_opened_at_once(stage: Stage) -> None:
    ids = stored(stage, "One", "Two")
    select(stage, *ids)
    entry(menu_at(stage, stage.window.side_bar.model.index_of(ids[0])), "Open 2 tabs").trigger()
    assert set(stage.session.conversation_ids()) > set(ids)


def test_a_new_folder_is_named_in_place(stage: Stage, qtbot) -> None:
    (one,) = stored(stage, "One")
    select(stage, one)
    model = stage.window.side_bar.model
    folders = entry(menu_at(stage, model.index_of(one)), "Move to folder").menu()
    assert folders is not None
    entry(folders, "New folder").trigger()
    editor = stage.window.side_bar.list.findChild(QLineEdit, "row_editor")
    QTest.keyClicks(editor, "Work & play")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: label(stage, one, "folder") == "Work & play")
    model.reload()
    assert headings(model) == ["open", "folder:Work & play"]
    folders = entry(menu_at(stage, model.index_of(one)), "Move to folder").menu()
    # A single ampersand would be a shortcut.
    assert texts(folders) == ["New folder", "No folder", "Work && play"]


def test_a_folder_is_dissolved_from_its_heading(stage: Stage) -> None:
    ids = stored(stage, "One", "Two")
    stage.session.set_folder(ids, "Work")
    model = stage.window.side_bar.model
    model.reload()
    menu = menu_at(stage, model.index_of_group("folder:Work"))
    assert texts(menu) == ["Collapse", "Rename folder", "Dissolve folder"]
    entry(menu, "Dissolve folder").trigger()
    assert stage.session.folders() == []


def test_a_title_is_edited_in_place_and_escape_leaves_it(stage: Stage, qtbot) -> None:
    (one,) = stored(stage, "One")
    select(stage, one)
    stopped: list[bool] = []
    stage.window.actions_registry["stop"].triggered.connect(stopped.append)
    for key, title in ((Qt.Key.Key_Escape, "One"), (Qt.Key.Key_Return, "New")):
        stage.window.side_bar.list.setFocus()
        QTest.keyClick(stage.window.side_bar.list, Qt.Key.Key_F2)
        editor = stage.window.side_bar.list.findChild(QLineEdit, "row_editor")
        QTest.keyClicks(editor, "New")
        QTest.keyClick(editor, key)
        qtbot.waitUntil(lambda title=title: label(stage, one, "title") == title)
        qtbot.waitUntil(
            lambda: not stage.window.side_bar.list.findChildren(QLineEdit, "row_editor")
        )
    assert stopped == []


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("folder:Work", "folder", "Work"),
        ("pinned", "pinned", True),
        ("archived", "archived", True),
    ],
)
def test_what_is_dragged_onto_a_heading_is_filed_there(
    stage: Stage, group: str, name: str, value: object
) -> None:
    home, *ids = stored(stage, "Home", "One", "Two")
    stage.session._change([home], pinned=group == "pinned", archived=group == "archived")
    if group.startswith("folder"):
        stage.session.set_folder([home], "Work")
    model = stage.window.side_bar.model
    model.reload()
    data = model.mimeData([model.index_of(i) for i in ids])
    onto = model.index_of_group(group)
    move = Qt.DropAction.MoveAction
    assert model.canDropMimeData(data, move, -1, -1, onto)
    model.dropMimeData(data, move, -1, -1, onto)
    assert [label(stage, i, name) for i in ids] == [value] * 2


def test_what_is_dragged_out_of_a_folder_has_none(stage: Stage) -> None:
    one, two = stored(stage, "One", "Two")
    stage.session.set_folder([one], "Work")
    model = stage.window.side_bar.model
    model.reload()
    data = model.mimeData([model.index_of(one)])
    # Onto a conversation that is filed by its age.
    model.dropMimeData(data, Qt.DropAction.MoveAction, -1, -1, model.index_of(two))
    assert label(stage, one, "folder") == ""


def test_the_row_below_a_drag_is_framed_until_it_leaves(stage: Stage) -> None:
    (one,) = stored(stage, "One")
    view, model = stage.window.side_bar.list, stage.window.side_bar.model
    index = model.index_of(one)
    before = view.viewport().grab().toImage()
    place = view.visualRect(index).center()
    data = model.mimeData([index])
    keys = Qt.KeyboardModifier.NoModifier
    view.dragMoveEvent(QDragMoveEvent(place, Qt.DropAction.MoveAction, data, LEFT, keys))
    assert view.drop_row == index.row()
    assert view.viewport().grab().toImage() != before
    view.dragLeaveEvent(QDragLeaveEvent())
    assert view.drop_row == -1
    assert view.viewport().grab().toImage() == before


def test_a_drop_onto_a_row_of_the_view_files_it_there(stage: Stage) -> None:
    one, two = stored(stage, "One", "Two")
    stage.session.set_folder([two], "Work")
    view, model = stage.window.side_bar.list, stage.window.side_bar.model
    model.reload()
    place = view.visualRect(model.index_of_group("folder:Work")).center()
    data = model.mimeData([model.index_of(one)])
    keys = Qt.KeyboardModifier.NoModifier
    moved = QDragMoveEvent(place, Qt.DropAction.MoveAction, data, LEFT, keys)
    view.dragMoveEvent(moved)
    assert moved.isAccepted()
    view.dropEvent(QDropEvent(place, Qt.DropAction.MoveAction, data, LEFT, keys))
    assert label(stage, one, "folder") == "Work"
    below = QPoint(place.x(), view.viewport().height() - 2)
    moved = QDragMoveEvent(below, Qt.DropAction.MoveAction, data, LEFT, keys)
    view.dragMoveEvent(moved)
    assert not moved.isAccepted()


def test_nothing_else_can_be_dropped(stage: Stage) -> None:
    model = stage.window.side_bar.model
    data = model.mimeData([])
    data.removeFormat(model.mimeTypes()[0])
    data.setText("text")
    index = model.index(0)
    assert not model.canDropMimeData(data, Qt.DropAction.MoveAction, -1, -1, index)
    assert not model.dropMimeData(data, Qt.DropAction.MoveAction, -1, -1, index)


def test_the_registry_acts_on_the_list_while_the_keyboard_is_there(stage: Stage) -> None:
    one, two = stored(stage, "One", "Two")
    select(stage, one, two)
    actions = stage.window.actions_registry
    actions["pin"].trigger()
    assert label(stage, one, "pinned")
    assert label(stage, two, "pinned")
    actions["pin"].trigger()
    assert not label(stage, one, "pinned")
    stage.page.composer.edit.setFocus()
    actions["pin"].trigger()
    (front,) = stage.session.conversation_ids()
    assert stage.session.conversation(front).pinned
    assert not label(stage, one, "pinned")


def test_a_folder_is_chosen_by_keyboard_alone(stage: Stage, qtbot) -> None:
    one, two = stored(stage, "One", "Two")
    stage.session.set_folder([two], "Work")
    QTest.keyClick(stage.window, Qt.Key.Key_B, CONTROL | SHIFT)
    view = stage.window.side_bar.list
    qtbot.waitUntil(view.hasFocus)
    select(stage, one)
    QTest.keyClick(view, Qt.Key.Key_M, CONTROL | SHIFT)
    menu = stage.window.shelf.menu
    for _ in range(3):
        QTest.keyClick(menu, Qt.Key.Key_Down)
    QTest.keyClick(menu, Qt.Key.Key_Return)
    assert label(stage, one, "folder") == "Work"


def test_the_place_in_the_list_stays_while_rows_are_changed_by_keyboard(stage: Stage) -> None:
    ids = stored(stage, "One", "Two", "Three")
    view, model = stage.window.side_bar.list, stage.window.side_bar.model
    select(stage, ids[1])
    for action_id in ("pin", "pin"):
        stage.window.actions_registry[action_id].trigger()
        model.reload()
        assert view.currentIndex().isValid()
        assert stage.page.conversation_id not in {r.conversation_id for r in view.selected_rows()}
        view.setCurrentIndex(model.index_of(ids[1]))
    stage.session.rename(ids[1], "Renamed")
    model.reload()
    assert [row.title for row in view.selected_rows()] == ["Renamed"]
    model.set_collapsed(groups.OPEN, True)
    assert [row.title for row in view.selected_rows()] == ["Renamed"]
    # Another tab in front is marked all the same.
    model.set_collapsed(groups.OPEN, False)
    new = stage.window.new_tab()
    model.reload()
    assert [row.conversation_id for row in view.selected_rows()] == [new]


def test_a_plain_click_opens_and_one_with_control_only_selects(stage: Stage) -> None:
    one, two = stored(stage, "One", "Two")
    view, model = stage.window.side_bar.list, stage.window.side_bar.model
    front = stage.page.conversation_id
    QTest.mouseClick(view.viewport(), LEFT, CONTROL, view.visualRect(model.index_of(one)).center())
    QTest.mouseClick(view.viewport(), LEFT, CONTROL, view.visualRect(model.index_of(two)).center())
    assert stage.page.conversation_id == front
    assert {row.conversation_id for row in view.selected_rows()} >= {one, two}
    QTest.mouseClick(view.viewport(), LEFT, pos=view.visualRect(model.index_of(one)).center())
    assert stage.page.conversation_id == one


def test_ctrl_a_selects_all(stage: Stage) -> None:
    stored(stage, "One", "Two")
    view = stage.window.side_bar.list
    stage.window.side_bar.focus_list()
    # With the text that a keyboard sends along.
    QApplication.sendEvent(view, QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_A, CONTROL, "\x01"))
    assert {row.title for row in view.selected_rows()} >= {"One", "Two"}


def test_the_list_marks_the_tab_in_front_again_when_the_keyboard_leaves(stage: Stage) -> None:
    stored(stage, "One", "Two")
    bar, front = stage.window.side_bar, stage.page.conversation_id
    bar.focus_list()
    QTest.keyClick(bar.list, Qt.Key.Key_Down)
    QTest.keyClick(bar.list, Qt.Key.Key_Down)
    assert bar.list.currentIndex() != bar.model.index_of(front)
    # The tab in front already: the keyboard goes there.
    QTest.keyClick(bar.list, Qt.Key.Key_1, Qt.KeyboardModifier.AltModifier)
    assert stage.page.composer.edit.hasFocus()
    assert bar.list.currentIndex() == bar.model.index_of(front)
    assert [row.conversation_id for row in bar.list.selected_rows()] == [front]


def test_an_empty_place_has_no_menu(stage: Stage) -> None:
    view = stage.window.side_bar.list
    stage.window.shelf.menu = None
    view.menu_requested.emit(QPoint(5, view.viewport().height() - 2))
    menu = stage.window.shelf.menu
    assert menu is None or not menu.isVisible()
