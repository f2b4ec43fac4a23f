"""What is done from the window of the model library: loading, switching, letting go, removing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.conversation import MessageStatus
from app.session_state import ModelStatus
from app.widgets.library.deleting import ask_to_delete
from engine.api.chat_templates import CHAT_TEMPLATES
from engine.api.commands import LoadModel
from engine.api.events import TemplateNote
from tests.helpers.library_stage import description, write_gguf
from tests.helpers.library_window import LibraryStage, library_window

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def library(qtbot) -> Iterator[LibraryStage]:
    with library_window(qtbot) as made:
        yield made


def test_loading_from_the_list_by_keyboard(library: LibraryStage) -> None:
    library.pick(library.good)
    library.page.list.setFocus()
    QTest.keyClick(library.page.list, Qt.Key.Key_Return)
    library.wait(lambda: library.is_loaded(library.good))
    library.wait(lambda: "loaded" in library.row(library.good))
    assert library.page.deeds.unload.isVisible()


def test_enter_on_the_loaded_model_does_not_load_it_again(library: LibraryStage) -> None:
    library.page.select("")
    library.page.list.setFocus()
    QTest.keyClick(library.page.list, Qt.Key.Key_Return)
    library.qtbot.wait(50)
    assert len([c for c in library.stage.engine.commands if isinstance(c, LoadModel)]) == 1


def test_the_starter_model_is_fetched_from_the_list_and_the_default_stays(
    library: LibraryStage,
) -> None:
    session = library.stage.session
    library.pick(library.good)
    library.press(library.page.deeds.default)
    library.press(library.page.deeds.load)
    library.wait(lambda: library.is_loaded(library.good))
    library.pick(session.library.full_path(""))
    assert library.page.deeds.load.text() == "Fetch (94 MB)"
    library.press(library.page.deeds.load)
    library.wait(lambda: library.is_loaded(""))
    load = [c for c in library.stage.engine.commands if isinstance(c, LoadModel)][-1]
    assert (load.fetch_starter, load.path) == (True, "")
    assert library.stage.settings.values.model_path == library.good


def test_while_answers_run_it_asks_and_waits_for_them(library: LibraryStage) -> None:
    ids = library.start_answers()
    library.pick(library.good)
    deeds = library.page.deeds
    library.press(deeds.load)
    assert "2 answers are still being written." in deeds.says.text()
    assert not deeds.load.isVisible()
    library.press(deeds.wait)
    assert "next" in library.row(library.good) or library.stage.session.model_state.next_path
    library.wait(lambda: library.is_loaded(library.good))
    session = library.stage.session
    assert [session.conversation(i).path()[-1].status for i in ids] == [MessageStatus.DONE] * 2


def test_or_stops_them(library: LibraryStage) -> None:
    ids = library.start_answers()
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.press(library.page.deeds.stop)
    library.wait(lambda: library.is_loaded(library.good))
    session = library.stage.session
    assert [session.conversation(i).path()[-1].status for i in ids] == [MessageStatus.STOPPED] * 2


def test_or_leaves_it(library: LibraryStage) -> None:
    library.start_answers()
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.press(library.page.deeds.cancel)
    assert library.page.deeds.load.isVisible()
    assert library.stage.session.model_state.next_path is None


def test_the_card_says_that_a_switch_waits_and_takes_it_back(library: LibraryStage) -> None:
    library.start_answers()
    library.stage.session.switch_model(library.good)
    card = library.stage.page.model_card
    assert "good.gguf" in card.heading.text()
    assert "2 answers" in card.cause.text()
    library.press(card.stay_button)
    assert not card.isVisible()


def test_enter_presses_a_button_of_the_card(library: LibraryStage) -> None:
    library.start_answers()
    card = library.stage.page.model_card
    library.stage.session.switch_model(library.good)
    QTest.keyClick(card.stay_button, Qt.Key.Key_Return)
    assert not card.isVisible()
    assert library.stage.session.model_state.next_path is None


@pytest.mark.parametrize("name", ["stay_button", "stop_button"])
def test_after_a_button_of_the_card_the_keyboard_is_in_the_message(
    library: LibraryStage, name: str
) -> None:
    library.start_answers()
    library.window.close()
    page = library.stage.page
    library.stage.session.switch_model(library.good)
    button = getattr(page.model_card, name)
    button.setFocus()
    library.press(button)
    library.wait(lambda: not page.model_card.isVisible())
    assert library.stage.window.focusWidget() is page.composer.edit


def test_a_button_of_the_card_keeps_the_keyboard_while_the_card_changes(
    library: LibraryStage,
) -> None:
    first, _second = library.start_answers()
    library.window.close()
    card = library.stage.page.model_card
    library.stage.session.switch_model(library.good)
    card.stay_button.setFocus()
    library.stage.session.stop(first)
    library.wait(lambda: "1 answer is" in card.cause.text())
    assert library.stage.window.focusWidget() is card.stay_button


def test_a_model_that_does_not_load_says_so_and_the_one_before_is_back(
    library: LibraryStage,
) -> None:
    library.pick(library.large)
    assert library.page.deeds.load.text() == "Load anyway"
    library.press(library.page.deeds.load)
    library.wait(lambda: bool(library.stage.session.load_errors) and library.is_loaded(""))
    library.wait(lambda: "did not load" in library.row(library.large))
    assert "Not enough." in library.words()
    notices = [bar.label.text() for bar in library.stage.window.tab_area.notices.bars]
    assert any("large.gguf was not loaded" in text for text in notices)


def test_a_model_that_is_tried_again_no_longer_says_why_it_did_not_load(
    library: LibraryStage,
) -> None:
    library.pick(library.large)
    library.press(library.page.deeds.load)
    library.wait(lambda: "Not enough." in library.words() and library.is_loaded(""))
    library.stage.engine.hold_load.set()
    library.press(library.page.deeds.load)
    library.wait(lambda: "loading" in library.row(library.large))
    library.wait(lambda: library.page.deeds.progress.isVisible())
    assert "Not enough." not in library.words()
    library.stage.engine.hold_load.clear()
    library.wait(lambda: "Not enough." in library.words())


def test_loading_shows_its_progress_and_can_be_cancelled(library: LibraryStage) -> None:
    library.stage.engine.hold_load.set()
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.wait(lambda: library.row(library.good).startswith("Good 7B, loading 31 %"))
    assert library.page.deeds.progress.isVisible()
    assert library.page.deeds.says.text() == "Warming up · 31 %"
    assert library.page.deeds.progress.value() == 308
    assert library.stage.window.status_strip.progress.value() == 308
    library.press(library.page.deeds.cancel)
    library.wait(lambda: library.stage.session.model_state.path == "")
    library.stage.engine.hold_load.clear()
    library.wait(lambda: library.is_loaded(""))


@pytest.mark.parametrize("key", [Qt.Key.Key_Space, Qt.Key.Key_Return])
def test_the_keyboard_goes_on_where_a_button_was_pressed(
    library: LibraryStage, key: Qt.Key
) -> None:
    library.window.activateWindow()
    library.pick(library.good)
    library.page.deeds.load.setFocus()
    QTest.keyClick(library.page.deeds.load, key)
    library.wait(lambda: library.page.deeds.unload.isVisible())
    assert library.window.focusWidget() is library.page.deeds.unload


def test_unloading_frees_the_memory_and_says_what_the_next_message_does(
    library: LibraryStage,
) -> None:
    library.page.select("")
    library.press(library.page.deeds.unload)
    card = library.stage.page.model_card
    assert card.isVisible()
    assert card.wake_button.isVisible()
    assert library.stage.window.status_strip.model.text() == "Model unloaded"
    library.press(card.wake_button)
    library.wait(lambda: library.is_loaded(""))


def test_the_default_is_what_starts(library: LibraryStage) -> None:
    library.pick(library.good)
    library.press(library.page.deeds.default)
    library.wait(lambda: "default" in library.row(library.good))
    assert library.stage.settings.values.model_path == library.good
    assert not library.page.deeds.default.isVisible()


def test_a_model_without_a_chat_template_says_so_and_offers_some(library: LibraryStage) -> None:
    library.pick(library.bare)
    row = library.page.details.template
    assert "brings no chat template" in row.note.text()
    assert [row.combo.itemData(n) for n in range(row.combo.count())] == ["", *CHAT_TEMPLATES]
    row.combo.setCurrentIndex(1)
    row.combo.activated.emit(1)
    assert library.stage.session.library.places.chat_templates == {library.bare: "chatml"}
    library.press(library.page.deeds.load)
    library.wait(lambda: library.is_loaded(library.bare))
    load = [c for c in library.stage.engine.commands if isinstance(c, LoadModel)][-1]
    assert load.config.chat_template == "chatml"


def test_of_a_loaded_model_only_templates_that_its_tokenizer_has_are_offered(
    library: LibraryStage,
) -> None:
    library.pick(library.bare)
    library.press(library.page.deeds.load)
    library.wait(lambda: library.is_loaded(library.bare))
    row = library.page.details.template
    library.wait(lambda: row.combo.count() == 3)
    row.combo.setCurrentIndex(1)
    row.combo.activated.emit(1)
    library.wait(lambda: library.page.deeds.load.isVisible())
    assert library.page.deeds.load.text() == "Load again"
    assert row.note.text() == "Takes effect when the model is loaded again."


def test_of_a_template_that_fails_the_reason_is_said(library: LibraryStage) -> None:
    failing = replace(
        library.stage.engine.models[library.good],
        template_note=TemplateNote.REFUSES,
        template_error="undefined variable",
    )
    library.stage.engine.models[library.good] = failing
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.wait(lambda: "undefined variable" in library.page.details.template.note.text())


def test_the_menu_can_unload_only_what_is_loaded(library: LibraryStage) -> None:
    action = library.stage.window.actions_registry["unload_model"]
    assert action.isEnabled()
    action.trigger()
    assert library.stage.session.model_state.is_asleep
    assert not action.isEnabled()


def test_removing_from_the_list_keeps_the_file_and_can_be_undone(library: LibraryStage) -> None:
    library.pick(library.good)
    library.press(library.page.deeds.remove)
    library.wait(lambda: library.page.model.rowCount() == 4)
    assert Path(library.good).exists()
    library.press(library.page.undo_bar.undo_button)
    library.wait(lambda: library.page.selected_path() == library.good)


def test_deleting_asks_first_and_keeping_is_the_default(library: LibraryStage) -> None:
    entry = library.stage.session.library.entry(library.good)
    box = ask_to_delete(entry, library.stage.session.models_dir, library.window, lambda: None)
    assert library.good in box.informativeText()
    assert box.defaultButton().text() == "Keep"
    box.defaultButton().click()
    assert Path(library.good).exists()


def test_the_loaded_model_can_be_neither_removed_nor_deleted(library: LibraryStage) -> None:
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.wait(lambda: library.is_loaded(library.good))
    library.wait(lambda: not library.page.deeds.remove.isEnabled())
    assert not library.page.deeds.delete.isEnabled()


def test_unloading_by_the_menu_asks_in_the_library_while_answers_run(library: LibraryStage) -> None:
    library.start_answers()
    library.window.close()
    library.stage.window.actions_registry["unload_model"].trigger()
    window = library.stage.window.preferences._open["models"]
    deeds = window.models.deeds
    library.wait(lambda: deeds.stop.isVisible())
    assert library.is_loaded("")
    library.press(deeds.stop)
    assert library.stage.session.model_state.is_asleep


def test_a_word_in_the_search_does_not_keep_a_model_from_being_loaded(
    library: LibraryStage,
) -> None:
    library.page.search.setText("large")
    library.window.load(library.good)
    library.wait(lambda: library.is_loaded(library.good))
    assert library.page.selected_path() == library.good


def test_a_model_that_was_removed_from_the_list_is_back_when_it_is_loaded(
    library: LibraryStage,
) -> None:
    library.stage.session.library.remove(library.good)
    library.wait(lambda: library.page.model.rowCount() == 4)
    library.window.load(library.good)
    library.wait(lambda: library.is_loaded(library.good))


@pytest.mark.parametrize("turns", ["by hand", "from elsewhere"])
def test_who_turns_to_another_model_does_not_get_the_one_before(
    library: LibraryStage, turns: str
) -> None:
    session, page = library.stage.session, library.page
    path = str(Path(session.models_dir) / "org--new" / "new.gguf")
    library.pick(library.good)
    library.window.load(path)
    if turns == "by hand":
        page.list.setCurrentIndex(page.model.index_of(library.bare))
    else:
        library.window.show_model(library.bare)
    library.stage.engine.descriptions[path] = description(path, "New")
    write_gguf(Path(path))
    library.wait(lambda: session.library.entry(path) is not None)
    page.refresh()
    library.pick(path)
    page.refresh()
    assert session.model_state.status is ModelStatus.READY
    assert [c.path for c in library.stage.engine.commands if isinstance(c, LoadModel)] == [""]


def test_what_was_fetched_is_loaded_from_the_page_that_fetched_it(library: LibraryStage) -> None:
    library.window.pages.choose(1)
    path = write_gguf(Path(library.stage.session.models_dir) / "org--new" / "new.gguf")
    library.stage.engine.descriptions[path] = description(path, "New")
    library.window.fetch_page.load_requested.emit(path)
    library.wait(lambda: library.is_loaded(path))
    assert library.page.isVisible()
    assert library.page.selected_path() == path
