"""The window of the prompt library, and choosing a prompt for a conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget

from app.prompt_costs import PromptCost
from app.prompt_files import write_prompts
from app.store_prompts import SystemPrompt
from app.theme import ThemeManager
from app.widgets.prompt_cost_row import cost_words
from app.widgets.prompt_library import PromptLibrary
from app.widgets.swatch_row import SwatchRow
from app.widgets.system_prompt_dialog import SystemPromptDialog
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("does not support")
CONTROL, ALT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.AltModifier
LONG = " ".join(f"word{n}" for n in range(70))


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        qtbot.waitUntil(made.window.isActiveWindow)
        yield made


def opened(stage: Stage) -> PromptLibrary:
    stage.window.prompt_desk.open()
    library = stage.window.prompt_desk.dialog
    assert library is not None
    return library


def names(library: PromptLibrary) -> list[str]:
    model = library.model
    return [str(model.index(row).data()) for row in range(model.rowCount())]


def talk(stage: Stage, qtbot, conversation_id: str) -> None:
    stage.session.send(conversation_id, "A question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))


def prompt_of(stage: Stage, conversation_id: str) -> str:
    return stage.session.conversation(conversation_id).system_prompt


# --- the library ---


def test_it_is_opened_once_by_keyboard_with_the_prompt_in_front(stage: Stage, qtbot) -> None:
    QTest.keyClick(stage.window, Qt.Key.Key_S, CONTROL | ALT)
    library = stage.window.prompt_desk.dialog
    assert library.isVisible()
    assert not library.isModal()
    assert library.editor.name.text() == "Assistant"
    stage.window.prompt_desk.open()
    assert stage.window.prompt_desk.dialog is library
    qtbot.waitUntil(library.isActiveWindow)
    QTest.keyClick(library, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: stage.window.prompt_desk.dialog is None)


def test_a_prompt_is_made_named_and_written_by_keyboard_alone(stage: Stage, qtbot) -> None:
    library = opened(stage)
    library.buttons["new"].setFocus()
    QTest.keyClick(library.buttons["new"], Qt.Key.Key_Space)
    qtbot.waitUntil(library.editor.name.hasFocus)
    QTest.keyClicks(library.editor.name, "Pirate")
    QTest.keyClicks(library.editor.edit, "Speak like a pirate.")
    library.editor.save()
    assert names(library) == ["Assistant", "Pirate"]
    assert stage.session.prompts.with_text("Speak like a pirate.").name == "Pirate"


def test_what_was_typed_is_kept_when_another_prompt_is_chosen_or_the_window_closes(
    stage: Stage, qtbot
) -> None:
    library = opened(stage)
    first = library.editor.prompt
    library.add()
    library.editor.edit.setPlainText("Second.")
    library.select(first.prompt_id)
    assert stage.session.prompts.with_text("Second.") is not None
    assert library.list.currentIndex() == library.model.index_of(first.prompt_id)
    library.editor.edit.setPlainText("First.")
    library.close()
    qtbot.waitUntil(lambda: stage.window.prompt_desk.dialog is None)
    assert stage.session.prompts.get(first.prompt_id).text == "First."


def test_what_is_typed_is_kept_after_a_moment(stage: Stage, qtbot) -> None:
    library = opened(stage)
    QTest.keyClicks(library.editor.edit, "More. ")
    prompt_id = library.editor.prompt.prompt_id
    qtbot.waitUntil(lambda: stage.session.prompts.get(prompt_id).text.startswith("More. "))
    # The cursor is where it was: the box was not filled again.
    assert library.editor.edit.textCursor().position() == len("More. ")


def test_an_empty_name_keeps_the_old_one(stage: Stage) -> None:
    library = opened(stage)
    library.editor.name.clear()
    library.editor.save()
    assert names(library) == ["Assistant"]


def test_a_prompt_is_duplicated_and_deleted_and_comes_back(stage: Stage) -> None:
    library = opened(stage)
    library.duplicate()
    assert names(library) == ["Assistant", "Assistant 2"]
    assert library.editor.name.text() == "Assistant 2"
    library.buttons["delete"].click()
    assert names(library) == ["Assistant"]
    assert library.undo_bar.label.text() == "“Assistant 2” was deleted."
    library.undo_bar.undo_button.click()
    assert names(library) == ["Assistant", "Assistant 2"]
    assert library.editor.name.text() == "Assistant 2"


def test_no_single_key_deletes_a_prompt(stage: Stage) -> None:
    library = opened(stage)
    library.list.setFocus()
    for key in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace, Qt.Key.Key_D):
        QTest.keyClick(library.list, key)
    assert names(library) == ["Assistant"]


def test_an_empty_library_can_only_be_added_to(stage: Stage) -> None:
    library = opened(stage)
    library.delete()
    assert names(library) == []
    assert not library.editor.isEnabled()
    assert not library.buttons["delete"].isEnabled()
    library.add()
    assert names(library) == ["New prompt"]
    assert library.editor.isEnabled()


def test_another_default_is_what_new_tabs_begin_with(stage: Stage) -> None:
    library = opened(stage)
    assert not library.editor.default_button.isEnabled()
    library.add()
    library.editor.edit.setPlainText("Speak like a pirate.")
    library.editor.default_button.click()
    assert library.editor.default_button.text() == "Used for new tabs"
    assert prompt_of(stage, stage.window.new_tab()) == "Speak like a pirate."


# --- who shares it, and what a change costs ---


def test_tabs_that_begin_alike_are_shown_with_their_numbers(stage: Stage) -> None:
    second = stage.window.new_tab()
    library = opened(stage)
    assert library.editor.swatches.numbers == (1, 2)
    assert library.editor.swatches.accessibleName() == "Tabs: 1, 2"
    text = library.model.index(0).data(Qt.ItemDataRole.AccessibleTextRole)
    assert text == "Assistant, default, Tabs: 1, 2"
    stage.session.set_system_prompt(second, "Another.")
    assert library.editor.swatches.numbers == (1,)


def test_swatches_have_the_hues_of_the_tabs(qtbot, stage: Stage) -> None:
    stage.window.new_tab()
    row = SwatchRow(ThemeManager("light"))
    qtbot.addWidget(row)
    row.set_conversations([stage.session.conversation(i) for i in stage.session.conversation_ids()])
    row.resize(row.sizeHint())
    image = row.grab().toImage()
    theme = ThemeManager("light").theme
    assert image.pixelColor(1, 9) == theme.hue(1)
    assert image.pixelColor(21, 9) == theme.hue(2)


def test_a_conversation_with_messages_keeps_its_text_until_it_is_applied(
    stage: Stage, qtbot
) -> None:
    (used,) = stage.session.conversation_ids()
    talk(stage, qtbot, used)
    old = prompt_of(stage, used)
    library = opened(stage)
    editor = library.editor
    assert editor.behind.isHidden()
    editor.edit.setPlainText("Quite different.")
    qtbot.waitUntil(lambda: editor.behind.cost is not None)
    assert editor.behind.isVisible()
    assert editor.behind.label.text().startswith("Tab 1 keeps the earlier text.")
    assert "3 blocks are no longer shared." in editor.behind.label.text()
    editor.save()
    assert prompt_of(stage, used) == old
    editor.behind.button.click()
    assert prompt_of(stage, used) == "Quite different."
    assert editor.behind.isHidden()


def test_another_prompt_is_offered_to_the_tab_in_front_with_its_cost(stage: Stage, qtbot) -> None:
    (front,) = stage.session.conversation_ids()
    stage.session.set_default_system_prompt(LONG)
    talk(stage, qtbot, front)
    prompt = stage.session.prompts.add("Pirate", "Speak like a pirate.")
    library = opened(stage)
    library.select(prompt.prompt_id)
    row = library.editor.here
    qtbot.waitUntil(lambda: row.cost is not None)
    assert row.label.text().startswith("Tab 1, “A question”:")
    assert "4 blocks are no longer shared" in row.label.text()
    row.button.click()
    assert prompt_of(stage, front) == "Speak like a pirate."
    assert library.editor.swatches.numbers == (1,)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (PromptCost("", (), is_known=False), "can be told when a model is loaded"),
        (PromptCost("", (), 0, 5, 1, 5), "No more tokens are computed than now."),
        (PromptCost("", (), 1), "1 block is no longer shared."),
        (PromptCost("", (), 0, 1240, 78, 9), "computes 1,240 tokens (78 blocks) instead of 9."),
    ],
)
def test_costs_in_words(cost: PromptCost, words: str) -> None:
    assert words in cost_words(cost)


# --- files ---


def test_prompts_are_imported_once(stage: Stage, tmp_path: Path) -> None:
    write_prompts([SystemPrompt("A", "a"), SystemPrompt("B", "b")], tmp_path / "two.json")
    library = opened(stage)
    library.read(tmp_path / "two.json")
    assert library.status.text() == "2 prompts were added."
    library.read(tmp_path / "two.json")
    assert library.status.text() == "0 prompts were added."
    assert names(library) == ["A", "Assistant", "B"]


def test_a_file_that_is_no_library_is_told(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[]")
    library = opened(stage)
    library.read(tmp_path / "bad.json")
    assert "another kind" in library.status.text()
    assert library.status.property("tone") == "error"


def test_one_prompt_and_all_are_exported(stage: Stage, tmp_path: Path) -> None:
    library = opened(stage)
    for all_of_them, name in ((False, "one.txt"), (True, "all.json")):
        dialog = library.choose_export(all_of_them)
        assert isinstance(dialog, QFileDialog)
        dialog.fileSelected.emit(str(tmp_path / name))
        dialog.reject()
    assert (tmp_path / "one.txt").read_text().strip() == library.editor.prompt.text
    library.read(tmp_path / "all.json")
    assert library.status.text() == "0 prompts were added."


# --- for one conversation ---


def send_wheel(widget: QWidget) -> None:
    """One notch upwards, over the middle of ``widget``."""
    centre, none = QPointF(widget.rect().center()), Qt.KeyboardModifier.NoModifier
    event = QWheelEvent(
        *(centre, widget.mapToGlobal(centre), QPoint(), QPoint(0, 120)),
        *(Qt.MouseButton.NoButton, none, Qt.ScrollPhase.NoScrollPhase, False),
    )
    QApplication.sendEvent(widget, event)


def test_an_empty_tab_offers_the_library(stage: Stage, qtbot) -> None:
    prompts = stage.session.prompts
    prompts.add("Pirate", "Speak like a pirate.")
    empty = stage.page.empty_state
    combo = empty.combo
    assert [combo.itemText(n) for n in range(combo.count())] == [
        *("Assistant", "Pirate", "A text of its own"),
    ]
    assert combo.currentText() == "Assistant"
    combo.setFocus()
    QTest.keyClick(combo, Qt.Key.Key_Down)
    (front,) = stage.session.conversation_ids()
    qtbot.waitUntil(lambda: prompt_of(stage, front) == "Speak like a pirate.")
    QTest.keyClicks(empty.prompt, "x")
    assert combo.currentText() == "A text of its own"
    empty.library_button.click()
    assert stage.window.prompt_desk.dialog is not None


def test_choosing_a_prompt_can_be_undone_and_the_wheel_chooses_none(stage: Stage, qtbot) -> None:
    stage.session.prompts.add("Pirate", "Speak like a pirate.")
    empty = stage.page.empty_state
    empty.prompt.setPlainText("Words of my own.")
    send_wheel(empty.combo)
    assert empty.prompt.toPlainText() == "Words of my own."
    empty.combo.setFocus()
    QTest.keyClick(empty.combo, Qt.Key.Key_Up)
    assert empty.prompt.toPlainText() == "Speak like a pirate."
    empty.prompt.undo()
    assert empty.prompt.toPlainText() == "Words of my own."


def test_the_prompt_of_a_conversation_is_changed_on_save_with_its_cost_before(
    stage: Stage, qtbot
) -> None:
    (front,) = stage.session.conversation_ids()
    talk(stage, qtbot, front)
    old = prompt_of(stage, front)
    stage.session.prompts.add("Pirate", "Speak like a pirate.")
    stage.window.actions_registry["system_prompt"].trigger()
    dialog = stage.page.findChild(SystemPromptDialog)
    assert not dialog.isModal()
    assert dialog.cost.isHidden()
    dialog.combo.setFocus()
    QTest.keyClick(dialog.combo, Qt.Key.Key_Down)
    assert dialog.edit.toPlainText() == "Speak like a pirate."
    qtbot.waitUntil(lambda: dialog.cost.cost is not None)
    assert "3 blocks are no longer shared." in dialog.cost.label.text()
    assert prompt_of(stage, front) == old
    dialog.accept()
    assert prompt_of(stage, front) == "Speak like a pirate."
    assert stage.session.prompts.of(stage.session.conversation(front)).name == "Pirate"


def test_html_in_a_name_is_text(stage: Stage) -> None:
    stage.session.prompts.add("<img src=x>", "<b>x</b>")
    library = opened(stage)
    assert "<img src=x>" in names(library)
    tip = library.model.index(0).data(Qt.ItemDataRole.ToolTipRole)
    assert "&lt;img" in tip
    assert library.editor.sharing.text()
