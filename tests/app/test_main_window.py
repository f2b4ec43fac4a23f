"""The whole window over the scripted engine, driven by mouse and keyboard."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from app.conversation import ASSISTANT, MessageStatus
from app.session_state import ModelStatus
from app.widgets.dialogs import ShortcutsDialog, SystemPromptDialog, confirm_link
from app.widgets.swatch import Activity
from engine.api.commands import LoadModel, Submit
from engine.api.errors import ModelFileError, PromptTooLongError, StarterModelMissingError
from tests.helpers.window_stage import SHORT, Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
LEFT = Qt.MouseButton.LeftButton
LONG = "Many words come here. " * 400


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


@pytest.fixture
def slow_stage(qtbot):
    with window_stage(qtbot, script=lambda _submit: LONG, tokens_per_s=100.0) as made:
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


# --- chatting ---


def test_a_question_is_answered(stage: Stage, qtbot) -> None:
    send(stage, "What is a block?")
    assert stage.page.composer.text() == ""
    wait_idle(stage, qtbot)
    assert shown_texts(stage) == ["What is a block?", SHORT]
    footer = stage.page.transcript.items[1].view.footer
    assert footer.startswith("3 tokens · ")
    assert "prompt tokens from cache" in footer
    assert "first token" in footer
    assert stage.window.windowTitle() == "What is a block? — Quire"


def test_the_second_turn_takes_tokens_from_the_cache(stage: Stage, qtbot) -> None:
    send(stage, "one two three four five six seven eight nine ten eleven twelve")
    wait_idle(stage, qtbot)
    send(stage, "And then?")
    wait_idle(stage, qtbot)
    answer = stage.page.last_answer()
    assert answer is not None
    assert answer.usage is not None
    assert answer.usage.cached_tokens >= 16
    assert f"{answer.usage.cached_tokens} of" in stage.page.transcript.items[3].view.footer


def test_stop_ends_the_answer_and_keeps_its_text(slow_stage: Stage, qtbot) -> None:
    conversation_id = send(slow_stage, "Tell me")
    qtbot.waitUntil(lambda: "words" in shown_texts(slow_stage)[1])
    QTest.keyClick(slow_stage.window, Qt.Key.Key_Escape)
    wait_idle(slow_stage, qtbot)
    answer = slow_stage.page.last_answer()
    assert answer is not None
    assert answer.status is MessageStatus.STOPPED
    assert answer.content == shown_texts(slow_stage)[1]
    assert slow_stage.page.transcript.items[1].view.footer.startswith("Stopped")
    assert not slow_stage.session.is_busy(conversation_id)


def test_the_stop_button_is_there_while_streaming(slow_stage: Stage, qtbot) -> None:
    send(slow_stage, "Tell me")
    button = slow_stage.page.composer.send_button
    assert button.accessibleName() == "Stop"
    qtbot.waitUntil(lambda: "words" in shown_texts(slow_stage)[1])
    QTest.mouseClick(button, LEFT)
    wait_idle(slow_stage, qtbot)
    assert button.accessibleName() == "Send"


def test_four_tabs_stream_at_once(slow_stage: Stage, qtbot) -> None:
    window = slow_stage.window
    ids = [slow_stage.page.conversation_id] + [window.new_tab() for _ in range(3)]
    for number, conversation_id in enumerate(ids):
        assert window.submit_text(conversation_id, f"Question {number}")
    texts = {i: slow_stage.session.conversation(i).path()[1] for i in ids}
    qtbot.waitUntil(lambda: all(len(m.content) > 60 for m in texts.values()), timeout=10_000)
    tabs = window.tab_area.tabs
    names = [tabs.accessibleTabName(n) for n in range(4)]
    assert all(name.endswith("answering") for name in names)
    hidden = window.tab_area.page(ids[0]).transcript
    assert all(box.document is None for item in hidden.items for box in item.boxes)
    for conversation_id in ids:
        slow_stage.session.stop(conversation_id)
    wait_idle(slow_stage, qtbot)


def test_an_answer_in_the_back_is_marked_until_it_is_seen(stage: Stage, qtbot) -> None:
    first = send(stage, "Question")
    stage.window.new_tab()
    wait_idle(stage, qtbot)
    tabs = stage.window.tab_area.tabs
    assert tabs._marks[first][1] is Activity.DONE_UNSEEN
    stage.window.show_conversation(first)
    assert tabs._marks[first][1] is Activity.IDLE
    assert shown_texts(stage) == ["Question", SHORT]


def test_streaming_in_another_tab_never_moves_this_one(slow_stage: Stage, qtbot) -> None:
    first = send(slow_stage, "Question")
    qtbot.waitUntil(lambda: len(shown_texts(slow_stage)[1]) > 300, timeout=10_000)
    slow_stage.session.stop(first)
    wait_idle(slow_stage, qtbot)
    bar = slow_stage.page.transcript.verticalScrollBar()
    value, maximum = bar.value(), bar.maximum()
    other = slow_stage.session.new_conversation()
    slow_stage.window.submit_text(other, "Another")
    slow_stage.window.show_conversation(first)
    qtbot.wait(200)
    assert (bar.value(), bar.maximum()) == (value, maximum)


def test_regenerate_keeps_both_versions(stage: Stage, qtbot) -> None:
    answers = iter(["First version.", "Second version."])
    stage.engine.script = lambda _submit: next(answers)
    send(stage, "Question")
    wait_idle(stage, qtbot)
    QTest.keyClick(stage.window, Qt.Key.Key_R, CONTROL)
    wait_idle(stage, qtbot)
    item = stage.page.transcript.items[1]
    assert (item.text, item.view.version, item.view.num_versions) == ("Second version.", 2, 2)
    stage.page.transcript.version_requested.emit(item.view.message_id, -1)
    item = stage.page.transcript.items[1]
    assert (item.text, item.view.version) == ("First version.", 1)


# --- refusals ---


def test_a_refused_message_comes_back_into_the_composer(qtbot) -> None:
    def refuse(_submit: Submit) -> PromptTooLongError:
        return PromptTooLongError("The prompt has 9 tokens, the context 4.", tokens=9, limit=4)

    with window_stage(qtbot, refusal=refuse) as stage:
        send(stage, "Far too long")
        qtbot.waitUntil(lambda: stage.page.composer.text() == "Far too long")
        assert shown_texts(stage) == []
        assert stage.page.notices.bars
        stage.engine.refusal = lambda _submit: None
        QTest.keyClick(stage.page.composer.edit, Qt.Key.Key_Return)
        wait_idle(stage, qtbot)
        assert shown_texts(stage) == ["Far too long", SHORT]
        assert not stage.page.notices.bars


def test_a_missing_model_offers_to_fetch_it(qtbot) -> None:
    error = StarterModelMissingError("The starter model is not there.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model()
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.FAILED)
        card = stage.page.model_card
        assert card.isVisible()
        assert card.fetch_button.isVisible()
        assert not card.retry_button.isVisible()
        stage.engine.load_error = None
        QTest.mouseClick(card.fetch_button, LEFT)
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY)
        assert not card.isVisible()


def test_a_failed_load_says_why_and_can_be_tried_again(qtbot) -> None:
    error = ModelFileError("The file ends after 12 of 94 MB.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model()
        card = stage.page.model_card
        qtbot.waitUntil(card.isVisible)
        assert "12" in card.cause.text()
        assert not stage.window.tab_area.notices.isVisible()
        assert card.action.text()
        assert not card.fetch_button.isVisible()
        assert stage.window.submit_text(stage.page.conversation_id, "Hello") is False
        assert stage.page.composer.text() == "Hello"
        stage.engine.load_error = None
        QTest.mouseClick(card.retry_button, LEFT)
        qtbot.waitUntil(lambda: not card.isVisible())


def test_retry_asks_for_the_same_file(qtbot) -> None:
    error = ModelFileError("The file ends after 12 of 94 MB.")
    with window_stage(qtbot, load=False, load_error=error) as stage:
        stage.session.load_model("some/model.gguf")
        qtbot.waitUntil(stage.page.model_card.isVisible)
        QTest.mouseClick(stage.page.model_card.retry_button, LEFT)
        qtbot.waitUntil(stage.page.model_card.isVisible)
        loads = [c.path for c in stage.engine.commands if isinstance(c, LoadModel)]
        assert loads == ["some/model.gguf"] * 2


def test_the_keyboard_reaches_the_buttons_of_the_last_answer(stage: Stage, qtbot) -> None:
    send(stage, "Question")
    wait_idle(stage, qtbot)
    stage.window.activateWindow()
    QTest.keyClick(stage.window, Qt.Key.Key_L, CONTROL | SHIFT)
    buttons = stage.page.transcript.buttons
    assert buttons.isVisible()
    QTest.keyClick(stage.page.transcript, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is buttons.copy
    QTest.keyClick(buttons.copy, Qt.Key.Key_Space)
    assert QGuiApplication.clipboard().text() == SHORT


def test_a_message_sent_while_loading_is_answered_later(qtbot) -> None:
    with window_stage(qtbot, load=False) as stage:
        stage.engine.hold_load.set()
        stage.session.load_model()
        send(stage, "Early")
        qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.LOADING)
        assert stage.window.status_strip.progress.isVisible()
        assert "model" in stage.page.transcript.items[1].view.footer
        stage.engine.hold_load.clear()
        wait_idle(stage, qtbot)
        assert shown_texts(stage) == ["Early", SHORT]
        assert not stage.window.status_strip.progress.isVisible()


# --- tabs ---


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


# --- empty tab, system prompt ---


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


# --- the window itself ---


def test_first_painted_comes_once(qtbot) -> None:
    with window_stage(qtbot, load=False) as stage:
        qtbot.waitUntil(lambda: stage.window._was_painted)
        times: list[int] = []
        stage.window.first_painted.connect(lambda: times.append(1))
        stage.window.repaint()
        qtbot.wait(20)
        assert times == []


def test_panel_and_side_bar_are_toggled(stage: Stage) -> None:
    window = stage.window
    assert window.cache_panel.isVisible()
    assert window.panel_dock.width() >= 360
    QTest.keyClick(window, Qt.Key.Key_P, CONTROL | SHIFT)
    assert not window.cache_panel.isVisible()
    assert not stage.settings.values.cache_panel_visible
    assert not window.actions_registry["toggle_cache_panel"].isChecked()
    QTest.keyClick(window, Qt.Key.Key_B, CONTROL)
    assert not window.side_bar.isVisible()
    QTest.keyClick(window, Qt.Key.Key_P, CONTROL | SHIFT)
    QTest.keyClick(window, Qt.Key.Key_B, CONTROL)
    assert window.cache_panel.isVisible()
    assert window.side_bar.isVisible()


def test_a_narrow_window_hides_the_side_bar_by_itself(stage: Stage, qtbot) -> None:
    stage.window.resize(820, 700)
    qtbot.waitUntil(lambda: not stage.window.side_bar.isVisible())
    assert stage.window.tab_area.width() >= 360
    stage.window.resize(1300, 820)
    qtbot.waitUntil(stage.window.side_bar.isVisible)


def test_the_panel_goes_below_and_back(stage: Stage) -> None:
    action = stage.window.actions_registry["panel_below"]
    action.trigger()
    area = stage.window.dockWidgetArea(stage.window.panel_dock)
    assert area == Qt.DockWidgetArea.BottomDockWidgetArea
    assert action.isChecked()
    action.trigger()
    area = stage.window.dockWidgetArea(stage.window.panel_dock)
    assert area == Qt.DockWidgetArea.RightDockWidgetArea


def test_theme_is_switched_and_kept(stage: Stage) -> None:
    stage.window.actions_registry["theme_dark"].trigger()
    assert stage.themes.theme.dark
    assert stage.settings.values.theme == "dark"
    QTest.keyClick(stage.window, Qt.Key.Key_D, CONTROL | SHIFT)
    assert not stage.themes.theme.dark
    assert stage.window.actions_registry["theme_light"].isChecked()


def test_the_language_takes_effect_later_and_says_so(stage: Stage) -> None:
    stage.window.actions_registry["language_zh_CN"].trigger()
    assert stage.settings.values.language == "zh_CN"
    assert "started again" in stage.window.tab_area.notices.bars[0].label.text()


def test_the_shortcuts_dialog_opens_without_blocking(stage: Stage) -> None:
    QTest.keyClick(stage.window, Qt.Key.Key_F1)
    dialog = stage.window.findChild(ShortcutsDialog)
    assert dialog is not None
    assert not dialog.isModal()
    dialog.close()


def test_the_composer_has_the_focus_and_ctrl_l_brings_it_back(stage: Stage) -> None:
    stage.window.activateWindow()
    stage.window.side_bar.search.setFocus()
    QTest.keyClick(stage.window, Qt.Key.Key_L, CONTROL)
    assert QApplication.focusWidget() is stage.page.composer.edit


def test_the_last_answer_is_copied_as_markdown(stage: Stage, qtbot) -> None:
    stage.engine.script = lambda _submit: "Some **bold** text."
    send(stage, "Question")
    wait_idle(stage, qtbot)
    QTest.keyClick(stage.window, Qt.Key.Key_C, CONTROL | SHIFT)
    assert QGuiApplication.clipboard().text() == "Some **bold** text."


def test_a_notice_is_shown_once_and_can_be_dismissed(stage: Stage) -> None:
    for _ in range(2):
        stage.session.report("disk_full", "The disk is full.", "Free some space.")
    bars = stage.window.tab_area.notices.bars
    assert [bar.label.text() for bar in bars] == ["The disk is full. Free some space."]
    QTest.mouseClick(bars[0].close_button, LEFT)
    assert not stage.window.tab_area.notices.isVisible()


def test_a_link_is_opened_only_after_a_question(stage: Stage) -> None:
    box = confirm_link("https://example.org/path", stage.window)
    assert isinstance(box, QMessageBox)
    assert "example.org" in box.text()
    assert box.textFormat() is Qt.TextFormat.PlainText
    assert box.defaultButton().text() == box.button(QMessageBox.StandardButton.Cancel).text()
    box.close()
    assert confirm_link("javascript:alert(1)", stage.window) is None


def test_the_real_host_of_a_look_alike_is_shown(stage: Stage) -> None:
    box = confirm_link("https://ex\u0430mple.org/", stage.window)
    assert box is not None
    assert "xn--" in box.text()
    box.close()


def test_the_status_strip_tells_model_and_pool(stage: Stage, qtbot) -> None:
    strip = stage.window.status_strip
    assert strip.model.text().startswith("Scripted · cpu")
    send(stage, "Question")
    wait_idle(stage, qtbot)
    assert "free" in strip.pool.text()
