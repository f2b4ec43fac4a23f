"""Editing a message where it stands: what is written is neither lost nor sent by mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QInputMethodEvent, QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.conversation import Attachment
from app.widgets.composer import LARGE_PASTE
from tests.helpers.acting_stage import LEFT, ask_on, hover
from tests.helpers.window_stage import SHORT, Stage, wait_idle, window_stage

# Of the platform plugin without a screen.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        made.window.activateWindow()
        yield made


@pytest.fixture
def ask(stage: Stage, qtbot) -> Callable[..., str]:
    return partial(ask_on, stage, qtbot)


def test_a_question_is_edited_where_it_stands_and_sent(stage: Stage, ask, qtbot) -> None:
    ask("One", "Two")
    hover(stage, 0)
    QTest.mouseClick(stage.page.transcript.buttons.edit, LEFT)
    editor = stage.page.transcript.acting.editor
    assert editor is not None
    assert editor.edit.hasFocus()
    editor.edit.setPlainText("Uno")
    QTest.mouseClick(editor.save_button, LEFT)
    wait_idle(stage, qtbot)
    assert stage.shown_texts == ["Uno", SHORT]
    item = stage.page.transcript.items[0]
    assert (item.view.version, item.view.num_versions) == (2, 2)
    assert stage.page.composer.text() == ""


def test_ctrl_enter_sends_the_edit_and_not_the_draft(stage: Stage, ask, qtbot) -> None:
    ask("One")
    stage.page.composer.set_text("A draft")
    stage.window.activateWindow()
    view = stage.page.transcript
    view.acting.edit(view.items[0].view.message_id)
    assert view.acting.editor is not None
    edit = view.acting.editor.edit
    edit.setFocus()
    edit.setPlainText("Uno")
    QTest.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    wait_idle(stage, qtbot)
    assert view.items[0].text == "Uno"
    assert stage.page.composer.text() == "A draft"


def test_the_editor_makes_room_and_gives_it_back(stage: Stage, ask) -> None:
    ask("One")
    view = stage.page.transcript
    below = view.items[1].top
    hover(stage, 0)
    QTest.mouseClick(view.buttons.edit, LEFT)
    editor = view.acting.editor
    assert editor is not None
    small = view.items[1].top
    assert small > below
    assert editor.geometry().bottom() <= view.items[1].top - view.verticalScrollBar().value()
    editor.edit.setPlainText("line\n" * 6)
    assert view.items[1].top > small
    QTest.keyClick(editor.edit, Qt.Key.Key_Escape)
    assert view.acting.editor is None
    assert view.items[1].top == below
    assert view.hasFocus()


def test_chinese_lines_are_seen_whole_in_the_editor(stage: Stage, ask) -> None:
    ask("写一首诗")
    view = stage.page.transcript
    hover(stage, 0)
    QTest.mouseClick(view.buttons.edit, LEFT)
    edit = view.acting.editor.edit
    for lines in (1, 3, 16):
        edit.setPlainText("\n".join(["写一首诗"] * lines))
        assert edit.verticalScrollBar().maximum() == 0
    # The widest line stays as it is: the document says nothing of another size.
    edit.setPlainText("a long line of words" + 2 * "\nx")
    edit.moveCursor(QTextCursor.MoveOperation.End)
    for _ in range(2):
        edit.insertPlainText("诗")
        edit.moveCursor(QTextCursor.MoveOperation.Up)
    text = edit.blockBoundingGeometry(edit.document().lastBlock()).bottom()
    assert edit.viewport().height() >= text


def test_esc_in_the_editor_changes_nothing_and_stops_nothing(stage: Stage, ask, qtbot) -> None:
    conversation_id = ask("One")
    stage.engine.script = lambda _submit: "word " * 300
    stage.window.submit_text(conversation_id, "Two")
    qtbot.waitUntil(lambda: len(stage.shown_texts[-1]) > 10)
    view = stage.page.transcript
    hover(stage, 0)
    QTest.mouseClick(view.buttons.edit, LEFT)
    assert view.acting.editor is not None
    view.acting.editor.edit.setPlainText("Something else")
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Escape)
    assert view.acting.editor is None
    assert stage.session.is_busy(conversation_id)
    assert stage.shown_texts[0] == "One"
    stage.session.stop(conversation_id)
    wait_idle(stage, qtbot)


def test_a_cancelled_edit_can_be_gone_on_with(stage: Stage, ask) -> None:
    ask("One")
    view, bar = stage.page.transcript, stage.page.undo_bar
    message_id = view.items[0].view.message_id
    view.acting.edit(message_id)
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Escape)
    assert not bar.isVisible()
    view.acting.edit(message_id)
    view.acting.editor.edit.setPlainText("Half an hour of work")
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Escape)
    assert view.acting.editor is None
    assert bar.label.text() == "The edit was put aside."
    QTest.mouseClick(bar.undo_button, LEFT)
    editor = view.acting.editor
    assert editor is not None
    assert editor.edit.hasFocus()
    assert editor.edit.toPlainText() == "Half an hour of work"


def test_editing_another_message_does_not_lose_the_first_edit(stage: Stage, ask) -> None:
    ask("One", "Two")
    view, bar = stage.page.transcript, stage.page.undo_bar
    view.acting.edit(view.items[0].view.message_id)
    view.acting.editor.edit.setPlainText("Another one")
    view.acting.edit(view.items[2].view.message_id)
    assert view.acting.editor.edit.toPlainText() == "Two"
    QTest.mouseClick(bar.undo_button, LEFT)
    assert view.acting.editor.edit.toPlainText() == "Another one"
    assert not bar.isVisible()


def test_return_while_an_input_method_composes_does_not_save(stage: Stage, ask) -> None:
    ask("One")
    stage.page.transcript.acting.edit(stage.page.transcript.items[0].view.message_id)
    editor = stage.page.transcript.acting.editor
    assert editor is not None
    QApplication.sendEvent(editor.edit, QInputMethodEvent("ni", []))
    QTest.keyClick(editor.edit, Qt.Key.Key_Return)
    assert stage.page.transcript.acting.editor is editor
    assert stage.shown_texts[0] == "One"


def test_an_edit_that_is_being_written_comes_back_with_its_page(stage: Stage, ask) -> None:
    conversation_id = ask("One")
    message_id = stage.page.transcript.items[0].view.message_id
    stage.page.transcript.acting.edit(message_id)
    assert stage.page.transcript.acting.editor is not None
    stage.page.transcript.acting.editor.edit.setPlainText("Half an edit")
    stage.window.save_state()
    pages = stage.window.tab_area.pages
    pages.remove(conversation_id)
    stage.window.show_conversation(conversation_id)
    editor = stage.page.transcript.acting.editor
    assert editor is not None
    assert editor.edit.toPlainText() == "Half an edit"
    assert editor.item.view.message_id == message_id
    QTest.keyClick(editor.edit, Qt.Key.Key_Escape)
    pages.remove(conversation_id)
    stage.window.show_conversation(conversation_id)
    assert stage.page.transcript.acting.editor is None


def test_an_edit_is_stored_while_it_is_written(stage: Stage, ask, qtbot) -> None:
    conversation_id = ask("One")
    stage.page.transcript.acting.edit(stage.page.transcript.items[0].view.message_id)
    editor = stage.page.transcript.acting.editor
    assert editor is not None
    QTest.keyClicks(editor.edit, " more")
    name = f"edit.{conversation_id}"
    qtbot.waitUntil(lambda: "One more" in stage.session.window_state(name))
    QTest.keyClick(editor.edit, Qt.Key.Key_Escape)
    assert stage.session.window_state(name) == ""


def test_the_editor_stays_when_its_branch_is_shown_anew(stage: Stage, ask, qtbot) -> None:
    conversation_id = ask("One", "Two")
    view = stage.page.transcript
    view.acting.edit(view.items[0].view.message_id)
    editor = view.acting.editor
    assert editor is not None
    editor.edit.setPlainText("Uno")
    stage.session.regenerate(conversation_id)
    assert view.acting.editor is editor
    assert editor.item is view.items[0]
    assert editor.edit.toPlainText() == "Uno"
    wait_idle(stage, qtbot)


def test_the_editor_of_a_message_that_is_deleted_hands_its_text_to_the_composer(
    stage: Stage, ask
) -> None:
    conversation_id = ask("One", "Two")
    view = stage.page.transcript
    message_id = view.items[2].view.message_id
    view.acting.edit(message_id)
    assert view.acting.editor is not None
    view.acting.editor.edit.setPlainText("Written")
    stage.session.delete_branch(conversation_id, message_id)
    assert view.acting.editor is None
    assert stage.page.composer.text() == "Written"


@pytest.mark.parametrize("text", ["Prix\u00a0: 3\u202f€", "one\u2028two"])
def test_an_edit_without_a_change_changes_nothing(stage: Stage, ask, qtbot, text: str) -> None:
    conversation_id = ask(text)
    view = stage.page.transcript
    message_id = view.items[0].view.message_id
    view.acting.edit(message_id)
    assert view.acting.editor is not None
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Escape)
    assert stage.page.undo_bar.isHidden()
    view.acting.edit(message_id)
    assert view.acting.editor is not None
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Return)
    wait_idle(stage, qtbot)
    assert len(stage.session.conversation(conversation_id).messages) == 2


def test_an_edit_keeps_no_break_spaces(stage: Stage, ask, qtbot) -> None:
    ask("Prix\u00a0: 3")
    view = stage.page.transcript
    view.acting.edit(view.items[0].view.message_id)
    assert view.acting.editor is not None
    QTest.keyClicks(view.acting.editor.edit, "0")
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Return)
    wait_idle(stage, qtbot)
    assert stage.shown_texts[0] == "Prix\u00a0: 30"


def test_a_large_paste_goes_into_the_edit(stage: Stage, ask) -> None:
    ask("One")
    view = stage.page.transcript
    view.acting.edit(view.items[0].view.message_id)
    editor = view.acting.editor
    assert editor is not None
    data = QMimeData()
    data.setText("word " * LARGE_PASTE)
    editor.edit.insertFromMimeData(data)
    assert editor.edit.toPlainText() == "One" + "word " * LARGE_PASTE


def test_a_file_that_is_dropped_on_an_edit_goes_along_with_the_draft(
    stage: Stage, ask, tmp_path: Path, qtbot
) -> None:
    ask("One")
    view = stage.page.transcript
    view.acting.edit(view.items[0].view.message_id)
    editor = view.acting.editor
    assert editor is not None
    path = tmp_path / "a.txt"
    path.write_text("text", "utf-8")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    editor.edit.insertFromMimeData(data)
    attachments = stage.page.composer.attachments
    qtbot.waitUntil(lambda: attachments.items == (Attachment("a.txt", "text"),))
