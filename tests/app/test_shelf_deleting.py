"""Deleting from the side bar: with undo, and never by a single key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QWidget

from app.models import groups
from tests.helpers.listed import headings, listed
from tests.helpers.shelf_stage import (
    active_stage,
    closed_ids,
    conversation,
    entry,
    menu_at,
    select,
    stored,
    texts,
)
from tests.helpers.window_stage import Stage, import_indexed

pytestmark = pytest.mark.qt_log_ignore("does not support")
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
ALT = Qt.KeyboardModifier.AltModifier


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with active_stage(qtbot) as made:
        yield made


def test_several_are_deleted_by_keyboard_and_come_back(stage: Stage) -> None:
    ids = stored(stage, "One", "Two", "Three")
    select(stage, *ids[:2])
    view = stage.window.side_bar.list
    QTest.keyClick(view, Qt.Key.Key_Delete, CONTROL | SHIFT)
    assert closed_ids(stage) == {ids[2]}
    bar = stage.window.side_bar.undo_bar
    assert bar.isVisible()
    assert bar.label.text() == "2 deleted"
    QTest.keyClick(stage.window, Qt.Key.Key_Z, CONTROL | ALT)
    assert closed_ids(stage) == set(ids)
    assert not bar.isVisible()


def test_the_button_brings_an_open_one_back_into_its_tab(stage: Stage, qtbot) -> None:
    (front,) = stage.session.conversation_ids()
    stage.session.send(front, "Keep this")
    qtbot.waitUntil(lambda: not stage.session.is_busy(front))
    stage.page.composer.edit.setFocus()
    stage.window.actions_registry["delete_conversation"].trigger()
    assert front not in stage.session.conversation_ids()
    assert stage.window.tab_area.tabs.count() == 1
    stage.window.side_bar.undo_bar.undo_button.click()
    assert front in stage.session.conversation_ids()
    assert [m.content for m in stage.session.conversation(front).path()][:1] == ["Keep this"]


def test_what_was_deleted_can_be_seen_and_restored(stage: Stage) -> None:
    ids = stored(stage, "One", "Two")
    stage.session.delete_conversations(ids)
    model = stage.window.side_bar.model
    model.reload()
    assert headings(model) == ["open", "deleted"]
    model.set_collapsed(groups.DELETED, False)
    assert sorted(listed(model)[1:]) == ["One", "Two"]
    menu = menu_at(stage, model.index_of(ids[0]))
    assert texts(menu) == ["Restore", "Delete for good…"]
    entry(menu, "Restore").trigger()
    assert closed_ids(stage) == {ids[0]}


def test_only_a_confirmed_question_deletes_for_good(stage: Stage, qtbot) -> None:
    ids = stored(stage, "One", "Two")
    stage.session.delete_conversations(ids)
    model = stage.window.side_bar.model
    model.reload()
    for answer in ("Cancel", "Delete for good"):
        menu = menu_at(stage, model.index_of_group(groups.DELETED))
        entry(menu, "Delete all for good…").trigger()
        box = stage.window.findChild(QMessageBox, "erase_box")
        assert box.defaultButton().text() == "Cancel"
        assert len(stage.session.deleted_conversations()) == 2
        next(b for b in box.buttons() if b.text().replace("&", "") == answer).click()
        qtbot.waitUntil(lambda: stage.window.findChild(QMessageBox, "erase_box") is None)
    assert stage.session.deleted_conversations() == []


SINGLE_KEYS = [
    *(Qt.Key.Key_Backspace, Qt.Key.Key_Delete, Qt.Key.Key_Escape, Qt.Key.Key_Clear),
    *(Qt.Key.Key_D, Qt.Key.Key_X, Qt.Key.Key_F2, Qt.Key.Key_F8, Qt.Key.Key_Space),
]


def test_no_single_key_takes_anything_away_wherever_the_keyboard_is(stage: Stage, qtbot) -> None:
    (front,) = stage.session.conversation_ids()
    stage.session.send(front, "Keep this")
    qtbot.waitUntil(lambda: not stage.session.is_busy(front))
    ids = {front, *stored(stage, "One", "Two")}
    num_messages = len(stage.session.conversation(front).messages)
    focusable = [
        widget
        for widget in stage.window.findChildren(QWidget)
        if widget.isVisible()
        and widget.focusPolicy() != Qt.FocusPolicy.NoFocus
        and not isinstance(widget, QMenu)
    ]
    assert len(focusable) > 8
    side_bar_list = stage.window.side_bar.list
    for widget in focusable:
        for modifiers in (Qt.KeyboardModifier.NoModifier, SHIFT):
            for key in SINGLE_KEYS:
                is_button = hasattr(widget, "click")
                if is_button and key == Qt.Key.Key_Space:
                    # That is what a button is for.
                    continue
                stage.window.side_bar.search.clear()
                if widget is side_bar_list:
                    side_bar_list.setCurrentIndex(stage.window.side_bar.model.index_of(front))
                    assert side_bar_list.currentIndex().isValid()
                widget.setFocus()
                QTest.keyClick(QApplication.focusWidget() or widget, key, modifiers)
                found = {*closed_ids(stage), *stage.session.conversation_ids()}
                assert found >= ids, (widget, key)
                assert len(stage.session.conversation(front).messages) == num_messages
                assert not stage.session.deleted_conversations()


def test_every_action_that_deletes_takes_several_keys(stage: Stage) -> None:
    for action_id in ("delete_conversation", "delete_message", "delete_pair", "archive"):
        for keys in stage.window.actions_registry[action_id].shortcuts():
            assert "+" in keys.toString()
            assert keys.toString().startswith("Ctrl+")


def place(stage: Stage, conversation_id: str) -> tuple[bool, bool, bool]:
    """Whether it has a tab, is pinned, is archived."""
    if conversation_id in stage.session.conversation_ids():
        shown = stage.session.conversation(conversation_id)
        return True, shown.pinned, shown.archived
    (found,) = (
        s for s in stage.session.closed_conversations() if s.conversation_id == conversation_id
    )
    return False, found.pinned, found.archived


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (groups.OPEN, (True, False, False)),
        (groups.PINNED, (False, True, False)),
        (groups.ARCHIVED, (False, False, True)),
        (f"{groups.FOLDER}Work", (False, False, False)),
    ],
)
def test_a_deleted_row_is_brought_back_wherever_it_is_dropped(
    stage: Stage, group: str, expected: tuple[bool, bool, bool]
) -> None:
    (deleted_id,) = stored(stage, "One")
    stage.session.delete_conversations([deleted_id])
    stage.window.side_bar.model.dropped.emit([deleted_id], group)
    assert stage.session.deleted_conversations() == []
    assert place(stage, deleted_id) == expected
    assert not stage.window.side_bar.undo_bar.isVisible()


def test_a_click_on_a_deleted_row_brings_it_back_into_a_tab(stage: Stage, qtbot) -> None:
    (deleted_id,) = stored(stage, "One")
    stage.session.delete_conversations([deleted_id])
    bar = stage.window.side_bar
    bar.model.reload()
    bar.model.set_collapsed(groups.DELETED, False)
    row = bar.list.visualRect(bar.model.index_of(deleted_id))
    QTest.mouseClick(bar.list.viewport(), Qt.MouseButton.LeftButton, pos=row.center())
    qtbot.waitUntil(lambda: deleted_id in stage.session.conversation_ids(), timeout=10_000)
    assert stage.session.deleted_conversations() == []


def test_hits_in_what_is_deleted_go_and_come_back_with_it(stage: Stage, qtbot) -> None:
    found = [conversation("One"), conversation("Two")]
    import_indexed(stage, found)
    bar = stage.window.side_bar
    bar.search.setText("question of")
    hits = bar.results.model
    qtbot.waitUntil(lambda: hits.rowCount() == 2, timeout=10_000)
    stage.session.delete_conversations([found[0].conversation_id])
    left = [hits.hit(hits.index(row)) for row in range(hits.rowCount())]
    assert [hit.conversation_id for hit in left if hit] == [found[1].conversation_id]
    assert bar.results.heading.text() == "1 message"
    stage.session.undo_delete_conversations()
    assert hits.rowCount() == 2
    stage.session.delete_conversations([found[0].conversation_id])
    stage.session.erase_conversations([found[0].conversation_id])
    assert hits.rowCount() == 1
