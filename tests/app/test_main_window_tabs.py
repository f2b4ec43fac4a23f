"""Tabs of the whole window over the scripted engine, their drafts and system prompts."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.conversation import ASSISTANT
from app.widgets.dialogs import SystemPromptDialog
from engine.api.commands import Submit
from tests.helpers.window_stage import SHORT, Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


LEFT = Qt.MouseButton.LeftButton


LONG = "Many words come here. " * 400


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def send(stage: Stage, text: str) -> str:
    """Types a message into the tab in front and presses Enter. Returns the conversation's id."""
    edit = stage.page.composer.edit
    QTest.keyClicks(edit, text)
    QTest.keyClick(edit, Qt.Key.Key_Return)
    return stage.page.conversation_id


def wait_idle(stage: Stage, qtbot) -> None:
    ids = stage.session.conversation_ids
    qtbot.waitUntil(lambda: not any(stage.session.is_busy(i) for i in ids()), timeout=10_000)


def shown_texts(stage: Stage) -> list[str]:
    return [item.text for item in stage.page.transcript.items]


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
    assert shown_texts(stage) == ["Keep this", SHORT]


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
    stage.page.transcript.fork_requested.emit(answer.message_id)
    assert stage.window.tab_area.tabs.count() == 2
    assert stage.page.conversation_id != first
    assert shown_texts(stage) == ["One", SHORT]


def test_next_and_previous_tab_go_round(stage: Stage) -> None:
    ids = [stage.page.conversation_id, stage.window.new_tab(), stage.window.new_tab()]
    tabs = stage.window.tab_area.tabs
    stage.window.actions_registry["next_tab"].trigger()
    assert tabs.current_id() == ids[0]
    stage.window.actions_registry["previous_tab"].trigger()
    assert tabs.current_id() == ids[2]


def test_moving_a_tab_changes_the_session(stage: Stage) -> None:
    ids = [stage.page.conversation_id, stage.window.new_tab()]
    stage.window.tab_area.tabs.moveTab(0, 1)
    assert stage.session.conversation_ids() == ids[::-1]


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
    assert len(stage.window.tab_area._pages) == 1


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
    assert shown_texts(stage) == [example.text(), SHORT]
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
