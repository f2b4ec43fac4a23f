"""Tabs of the whole window over the scripted engine, their drafts and system prompts."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu

from app.conversation import ASSISTANT
from app.widgets.closed_tabs import ClosedTabs
from app.widgets.system_prompt_dialog import SystemPromptDialog
from app.widgets.tab_menu import fill_tab_menu
from engine.api.commands import Submit
from tests.helpers.listed import listed
from tests.helpers.window_stage import SHORT, Stage, send, wait_idle, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def test_new_close_and_reopen_a_tab_by_keyboard(stage: Stage, qtbot) -> None:
    first = send(stage, "Keep this")
    wait_idle(stage, qtbot)
    QTest.keyClick(stage.window, Qt.Key.Key_T, CONTROL)
    assert stage.window.tab_area.tabs.count() == 2
    stage.window.show_conversation(first)
    QTest.keyClick(stage.window, Qt.Key.Key_W, CONTROL)
    assert stage.window.tab_area.tabs.index_of(first) == -1
    QTest.keyClick(stage.window, Qt.Key.Key_T, CONTROL | SHIFT)
    assert stage.window.tab_area.tabs.current_id() == first
    assert stage.shown_texts == ["Keep this", SHORT]


def test_closing_the_last_tab_opens_an_empty_one(stage: Stage) -> None:
    only = stage.page.conversation_id
    stage.window.tab_area.close_conversation(only)
    assert stage.window.tab_area.tabs.count() == 1
    assert stage.page.conversation_id != only


def test_f2_renames(stage: Stage) -> None:
    QTest.keyClick(stage.window, Qt.Key.Key_F2)
    editor = stage.window.tab_area.tabs.editor
    assert editor is not None
    editor.selectAll()
    QTest.keyClicks(editor, "My name")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    assert stage.session.conversation(stage.page.conversation_id).title == "My name"
    assert stage.window.tab_area.tabs.tabText(0) == "My name"


def test_fork_at_a_message_opens_a_tab_with_the_branch(stage: Stage, qtbot) -> None:
    first = send(stage, "One")
    wait_idle(stage, qtbot)
    send(stage, "Two")
    wait_idle(stage, qtbot)
    answer = stage.session.conversation(first).path()[1]
    assert answer.role == ASSISTANT
    stage.page.transcript.action_requested.emit("fork_message", answer.message_id)
    assert stage.window.tab_area.tabs.count() == 2
    assert stage.page.conversation_id != first
    assert stage.shown_texts == ["One", SHORT]


def test_next_and_previous_tab_go_round(stage: Stage) -> None:
    ids = [stage.page.conversation_id, stage.window.new_tab(), stage.window.new_tab()]
    tabs = stage.window.tab_area.tabs
    stage.window.actions_registry["next_tab"].trigger()
    assert tabs.current_id() == ids[0]
    stage.window.actions_registry["previous_tab"].trigger()
    assert tabs.current_id() == ids[2]


def test_moving_a_tab_changes_the_session(stage: Stage) -> None:
    ids = [stage.page.conversation_id, stage.window.new_tab()]
    stage.session.rename(ids[0], "First")
    stage.window.tab_area.tabs.moveTab(0, 1)
    assert stage.session.conversation_ids() == ids[::-1]
    assert listed(stage.window.side_bar.model) == ["New conversation", "First"]


def test_drafts_are_kept_per_tab(stage: Stage) -> None:
    first = stage.page.conversation_id
    QTest.keyClicks(stage.page.composer.edit, "half a thought")
    second = stage.window.new_tab()
    assert stage.page.composer.text() == ""
    stage.window.show_conversation(first)
    assert stage.page.composer.text() == "half a thought"
    assert stage.session.conversation(first).draft == "half a thought"
    assert stage.session.conversation(second).draft == ""


def test_open_stream_and_close_many_tabs(stage: Stage, qtbot) -> None:
    for n in range(15):
        conversation_id = stage.window.new_tab()
        stage.window.submit_text(conversation_id, f"Question {n}")
        qtbot.wait(3)
        stage.window.tab_area.close_conversation(conversation_id)
    wait_idle(stage, qtbot)
    assert stage.window.tab_area.tabs.count() == 1
    assert len(list(stage.window.tab_area.pages)) == 1


@pytest.mark.parametrize(
    "action_id",
    [
        *("new_tab", "reopen_tab", "rename", "fork", "stop", "regenerate", "copy_answer"),
        *("system_prompt", "focus_composer", "focus_transcript", "jump_to_latest", "next_tab"),
        *("previous_tab", "toggle_sidebar", "toggle_cache_panel", "toggle_theme", "close_tab"),
    ],
)
def test_shortcuts_work_while_typing(stage: Stage, action_id: str) -> None:
    action = stage.window.actions_registry[action_id]
    triggered: list[str] = []
    action.triggered.connect(lambda _checked: triggered.append(action_id))
    combination = action.shortcut()[0]
    edit = stage.page.composer.edit
    QTest.keyClick(edit, combination.key(), combination.keyboardModifiers())
    assert triggered == [action_id]


def test_an_example_is_sent_by_a_click(stage: Stage, qtbot) -> None:
    example = stage.page.empty_state.examples[1]
    QTest.mouseClick(example, LEFT)
    wait_idle(stage, qtbot)
    assert stage.shown_texts == [example.text(), SHORT]
    assert not stage.page.empty_state.isVisible()


def test_the_system_prompt_of_an_empty_tab_is_used(stage: Stage, qtbot) -> None:
    prompt = stage.page.empty_state.prompt
    prompt.setPlainText("Answer like a pirate.")
    send(stage, "Hello")
    wait_idle(stage, qtbot)
    submits = [c for c in stage.engine.commands if isinstance(c, Submit)]
    assert submits[0].messages[0].content == "Answer like a pirate."


def test_a_system_prompt_becomes_the_default_of_new_tabs(stage: Stage) -> None:
    empty = stage.page.empty_state
    assert not empty.default_button.isVisible()
    empty.prompt.setPlainText("Be brief.")
    assert empty.default_button.isVisible()
    QTest.mouseClick(empty.default_button, LEFT)
    stage.window.new_tab()
    assert stage.page.empty_state.prompt.toPlainText() == "Be brief."
    assert stage.page.empty_state.shared.text() == "Shared by new tabs"


def test_the_system_prompt_is_edited_in_a_dialog_later(stage: Stage, qtbot) -> None:
    conversation_id = send(stage, "Hello")
    wait_idle(stage, qtbot)
    QTest.mouseClick(stage.page.composer.prompt_button, LEFT)
    dialog = stage.page.findChild(SystemPromptDialog)
    assert dialog is not None
    dialog.edit.setPlainText("Another prompt.")
    dialog.accept()
    assert stage.session.conversation(conversation_id).system_prompt == "Another prompt."
    assert stage.session.default_system_prompt != "Another prompt."


def kept_tabs(stage: Stage, qtbot, count: int) -> list[str]:
    """So many tabs with a message each."""
    while len(stage.session.conversation_ids()) < count:
        stage.window.new_tab()
    ids = stage.session.conversation_ids()
    for conversation_id in ids:
        stage.session.send(conversation_id, "Keep this")
    wait_idle(stage, qtbot)
    return ids


def test_a_closed_tab_comes_back_to_its_place(stage: Stage, qtbot) -> None:
    ids = kept_tabs(stage, qtbot, 3)
    area = stage.window.tab_area
    for conversation_id in ids[:2]:
        area.close_conversation(conversation_id)
    area.reopen_last()
    assert area.tabs.ids() == ids[1:]
    area.reopen_last()
    assert area.tabs.ids() == ids
    assert stage.session.conversation_ids() == ids


def test_a_closed_tab_comes_back_with_the_system_prompt_that_was_written_for_it(
    stage: Stage, qtbot
) -> None:
    stage.window.new_tab()
    conversation_id = stage.page.conversation_id
    prompt = stage.page.empty_state.prompt
    prompt.selectAll()
    QTest.keyClicks(prompt, "Mine alone.")
    stage.window.tab_area.close_conversation(conversation_id)
    stage.window.tab_area.reopen_last()
    assert stage.page.conversation_id == conversation_id
    assert stage.page.conversation.system_prompt == "Mine alone."


def test_closed_tabs_are_known_after_a_restart(stage: Stage, qtbot) -> None:
    ids = kept_tabs(stage, qtbot, 2)
    stage.window.tab_area.close_conversation(ids[0])
    assert ClosedTabs(stage.session).take() == (ids[0], 0)
    assert ClosedTabs(stage.session).take() is None


def test_a_list_of_closed_tabs_that_is_damaged_is_empty(stage: Stage) -> None:
    stage.session.set_window_state("closed_tabs", '[["a"]]')
    assert ClosedTabs(stage.session).take() is None


def test_the_others_or_those_at_the_right_are_closed(stage: Stage, qtbot) -> None:
    ids = kept_tabs(stage, qtbot, 4)
    area = stage.window.tab_area
    area.close_others(ids[2], only_right=True)
    assert area.tabs.ids() == ids[:3]
    area.close_others(ids[1])
    assert area.tabs.ids() == [ids[1]]


def test_tabs_have_numbers_on_the_keyboard(stage: Stage, qtbot) -> None:
    qtbot.waitUntil(stage.window.isActiveWindow)
    ids = [stage.page.conversation_id, *(stage.window.new_tab() for _ in range(11))]
    for key, place in ((Qt.Key.Key_2, 1), (Qt.Key.Key_9, 11), (Qt.Key.Key_1, 0)):
        QTest.keyClick(stage.window, key, Qt.KeyboardModifier.AltModifier)
        assert stage.window.tab_area.tabs.current_id() == ids[place]


def test_the_menu_of_a_tab_offers_what_the_keyboard_does(stage: Stage) -> None:
    first, second = stage.page.conversation_id, stage.window.new_tab()
    menu = QMenu()
    fill_tab_menu(menu, stage.window.tab_area, stage.session, first)
    texts = [action.text() for action in menu.actions() if action.text()]
    assert texts[:2] == ["Fork", "Show beside"]
    assert texts[-4:] == ["Close", "Close others", "Close to the right", "Reopen closed tab"]
    fill_tab_menu(menu, stage.window.tab_area, stage.session, second)
    assert not menu.actions()[-2].isEnabled()


def test_the_keyboard_is_in_the_composer_of_a_new_tab(stage: Stage, qtbot) -> None:
    qtbot.waitUntil(stage.window.isActiveWindow)
    first = stage.page.composer.edit
    first.setFocus()
    for _ in range(3):
        QTest.keyClick(stage.window, Qt.Key.Key_T, CONTROL)
        qtbot.waitUntil(lambda: stage.page.composer.edit.hasFocus())
        assert stage.page.composer.edit is not first
