"""Two conversations side by side: choosing, closing, both streaming, found again at the start."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.widgets.swatch import Activity
from app.widgets.tab_area import TabArea
from tests.helpers.window_stage import SHORT, Stage, window_stage

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        qtbot.waitUntil(made.window.isActiveWindow)
        yield made


def open_tabs(stage: Stage, count: int) -> list[str]:
    while len(stage.session.conversation_ids()) < count:
        stage.window.new_tab()
    ids = stage.session.conversation_ids()
    stage.window.show_conversation(ids[0])
    return ids


def shown(stage: Stage) -> list[str]:
    return [page.conversation_id for page in stage.window.tab_area.split.shown]


def trigger(stage: Stage, action_id: str) -> None:
    stage.window.actions_registry[action_id].trigger()


def test_the_next_tab_is_shown_beside_and_gets_the_keyboard(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 3)
    trigger(stage, "split_view")
    assert shown(stage) == ids[:2]
    assert stage.window.tab_area.tabs.current_id() == ids[1]
    qtbot.waitUntil(stage.page.composer.edit.hasFocus)
    trigger(stage, "split_view")
    assert shown(stage) == [ids[1]]


def test_a_single_tab_is_split_with_a_new_one(stage: Stage) -> None:
    (only,) = open_tabs(stage, 1)
    trigger(stage, "split_view")
    assert shown(stage)[0] == only
    assert len(shown(stage)) == len(stage.session.conversation_ids()) == 2


def test_the_keyboard_goes_over_to_the_other_side(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 2)
    trigger(stage, "split_view")
    trigger(stage, "other_pane")
    assert stage.page.conversation_id == ids[0]
    qtbot.waitUntil(stage.page.composer.edit.hasFocus)
    assert shown(stage) == ids


def test_a_click_into_the_other_side_brings_its_tab_to_the_front(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 2)
    trigger(stage, "split_view")
    edit = stage.window.tab_area.page(ids[0]).empty_state.prompt
    QTest.mouseClick(edit.viewport(), LEFT)
    assert stage.window.tab_area.tabs.current_id() == ids[0]
    # The click says where the keyboard is to be, not the composer.
    qtbot.waitUntil(edit.hasFocus)


def test_another_tab_takes_the_place_of_the_active_side_only(stage: Stage) -> None:
    ids = open_tabs(stage, 3)
    trigger(stage, "split_view")
    stage.window.show_conversation(ids[2])
    assert shown(stage) == [ids[0], ids[2]]
    stage.window.show_conversation(ids[0])
    stage.window.show_conversation(ids[1])
    assert shown(stage) == [ids[1], ids[2]]


@pytest.mark.parametrize("closed", [0, 1])
def test_closing_one_side_leaves_the_other_alone(stage: Stage, closed: int) -> None:
    ids = open_tabs(stage, 4)
    stage.window.show_conversation(ids[1])
    stage.window.tab_area.sides.show_beside(ids[3])
    pair = [ids[1], ids[3]]
    stage.window.tab_area.close_conversation(pair[closed])
    assert shown(stage) == [pair[1 - closed]]
    assert stage.window.tab_area.tabs.current_id() == pair[1 - closed]


def test_a_stored_conversation_is_shown_beside(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 2)
    stage.session.send(ids[1], "Keep me")
    qtbot.waitUntil(lambda: not stage.session.is_busy(ids[1]))
    stage.window.tab_area.close_conversation(ids[1])
    stage.window.tab_area.sides.show_beside(ids[1])
    assert shown(stage) == ids


def test_both_sides_show_their_answers_and_neither_counts_as_unseen(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 2)
    trigger(stage, "split_view")
    for conversation_id in ids:
        assert stage.window.submit_text(conversation_id, "A question")
    qtbot.waitUntil(lambda: not any(map(stage.session.is_busy, ids)))
    area = stage.window.tab_area
    for conversation_id in ids:
        assert [i.text for i in area.page(conversation_id).transcript.items][-1] == SHORT
        assert area.activity(conversation_id) is Activity.IDLE


def test_a_heading_tells_which_side_is_which_as_plain_text(stage: Stage) -> None:
    ids = open_tabs(stage, 2)
    trigger(stage, "split_view")
    stage.session.rename(ids[0], "<b>One</b>")
    left = stage.window.tab_area.split.panes[0]
    assert left.title.text() == "<b>One</b>"
    assert left.title.textFormat() == Qt.TextFormat.PlainText
    assert not left.mark.pixmap().isNull()


def test_one_conversation_has_no_heading(stage: Stage) -> None:
    open_tabs(stage, 2)
    trigger(stage, "split_view")
    trigger(stage, "split_view")
    assert all(pane.heading.isHidden() for pane in stage.window.tab_area.split.panes)


def test_the_split_is_found_again_at_the_next_start(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 3)
    stage.window.tab_area.sides.show_beside(ids[2])
    trigger(stage, "other_pane")
    stage.window.tab_area.flush()
    area = TabArea(stage.session, stage.themes, stage.window.actions_registry)
    qtbot.addWidget(area)
    assert [page.conversation_id for page in area.split.shown] == [ids[0], ids[2]]
    assert area.tabs.current_id() == ids[0]


@pytest.mark.parametrize("state", ["[", "{}", '{"ids": ["a"]}', '{"ids": ["x", "y"], "sizes": ""}'])
def test_a_state_that_does_not_fit_shows_one_conversation(stage: Stage, qtbot, state: str) -> None:
    stage.session.set_window_state("split", state)
    area = TabArea(stage.session, stage.themes, stage.window.actions_registry)
    qtbot.addWidget(area)
    assert not area.split.is_split


def test_where_there_is_no_room_for_both_only_the_active_side_is_seen(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 2)
    trigger(stage, "split_view")
    view = stage.window.tab_area.split
    assert [pane.isVisible() for pane in view.panes] == [True, True]
    view.resize(400, 500)
    assert [pane.isVisible() for pane in view.panes] == [False, True]
    trigger(stage, "other_pane")
    assert [pane.isVisible() for pane in view.panes] == [True, False]
    assert shown(stage) == ids
    view.resize(700, 500)
    assert [pane.isVisible() for pane in view.panes] == [True, True]


def test_both_sides_stay_when_the_window_is_made_anew(stage: Stage, qtbot) -> None:
    ids = open_tabs(stage, 3)
    stage.window.tab_area.sides.show_beside(ids[2])
    before = stage.window.tab_area
    stage.window.rebuilder.request()
    qtbot.waitUntil(lambda: stage.window.tab_area is not before)
    assert shown(stage) == [ids[0], ids[2]]
    assert stage.window.actions_registry["split_view"].isChecked()


def test_a_heading_without_room_ends_in_an_ellipsis(stage: Stage) -> None:
    title = "A long title about many things"
    first = stage.page.conversation_id
    stage.window.new_tab()
    stage.session.rename(first, title)
    stage.window.tab_area.sides.show_beside(first)
    right = stage.window.tab_area.split.panes[1]
    right.title.setFixedWidth(120)
    shown = right.title.shown_text()
    assert shown.endswith("…")
    assert title.startswith(shown[:-1])
    assert right.title.fontMetrics().horizontalAdvance(shown) <= 120
    assert right.title.text() == title
    narrow = right.title.grab().toImage()
    right.title.setText(shown)
    assert right.title.grab().toImage() == narrow
