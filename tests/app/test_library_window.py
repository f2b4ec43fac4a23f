"""The window of the model library: what it shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QWidget

from app.i18n import Language
from app.library.places import model_of
from app.widgets.library.path_label import PathLabel
from app.widgets.library.window import LibraryWindow
from engine.api.commands import LoadModel
from engine.api.events import RequestUsage, WeightsKept
from engine.api.model_description import DescriptionNote
from tests.helpers.fake_engine import MODEL
from tests.helpers.library_stage import GB, description, write_gguf
from tests.helpers.library_window import CUT, LibraryStage, library_window
from tests.helpers.window_stage import window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def library(qtbot) -> Iterator[LibraryStage]:
    with library_window(qtbot) as made:
        yield made


def test_each_row_says_what_the_model_is_and_whether_it_fits(library: LibraryStage) -> None:
    assert library.row(library.good) == (
        "Good 7B, fits, Qwen 3 · Q4_K · 1.0 KB · 32,768 tokens · apache-2.0"
    )
    assert "too large" in library.row(library.large)
    assert "cannot be read" in library.row(library.cut)
    assert "blk.7.ffn ends at byte 4,812" in library.row(library.cut)


def test_the_estimate_is_said_before_loading(library: LibraryStage) -> None:
    library.pick(library.good)
    words = library.words()
    assert "4.9 GB of 16.0 GB free: fits." in words
    assert "61,440 tokens of cache (3,840 blocks): 7 tabs of 8,192." in words
    assert not [c for c in library.stage.engine.commands if isinstance(c, LoadModel)][1:]


def test_a_damaged_file_is_named_with_the_cause_and_cannot_be_loaded(library: LibraryStage) -> None:
    library.pick(library.cut)
    assert CUT.message in library.words()
    assert library.page.deeds.load.text() == "Look again"
    assert not library.page.deeds.default.isVisible()
    library.stage.engine.descriptions[library.cut] = description(library.cut, "Mended")
    library.press(library.page.deeds.load)
    library.wait(lambda: "Mended" in library.words())
    assert library.is_loaded("")


def test_of_the_loaded_model_it_says_what_it_takes_and_how_its_weights_lie(
    library: LibraryStage,
) -> None:
    info = library.stage.engine.models[library.good]
    library.stage.engine.models[library.good] = replace(
        info, weights_bytes=3 * GB, weights_kept=WeightsKept.PACKED
    )
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.wait(lambda: "Weights 3.0 GB, and 508 KB of cache" in library.words())
    assert "packed, as in the file" in library.words()


def test_what_a_switch_costs_is_said_before(library: LibraryStage) -> None:
    (conversation_id,) = library.start_answers(1)
    library.wait(lambda: not library.stage.session.is_busy(conversation_id))
    library.pick(library.good)
    usage = library.stage.session.conversation(conversation_id).path()[-1].usage
    tokens = usage.prompt_tokens + usage.output_tokens
    library.wait(lambda: f"1 conversation, {tokens} tokens, is read again" in library.words())


def test_what_a_switch_costs_grows_with_an_answer_that_is_being_written(
    library: LibraryStage,
) -> None:
    session = library.stage.session
    (conversation_id,) = library.start_answers(1)
    answer = session.conversation(conversation_id).path()[-1]
    library.pick(library.good)

    def said() -> int:
        found = re.search(r"1 conversation, (\d+) tokens, is read again", library.words())
        return 0 if found is None else int(found[1])

    first = said()
    assert 0 < first <= session.tokens_so_far[answer.message_id]
    library.wait(lambda: said() > first)
    assert session.is_busy(conversation_id)
    assert answer.usage is None


def test_how_long_a_switch_takes_is_said_of_a_model_that_ran_here_only(
    library: LibraryStage,
) -> None:
    (conversation_id,) = library.start_answers(1)
    library.wait(lambda: not library.stage.session.is_busy(conversation_id))
    library.pick(library.good)
    speeds = library.stage.session.library.speeds
    usage = RequestUsage(computed_tokens=40, prefill_s=40.0)
    for path, said in ((MODEL.path, False), (library.bare, False), (library.good, True)):
        speeds.note(replace(MODEL, path=path, device="cpu"), usage, ran_alone=True)
        library.page.refresh()
        assert "1 conversation, " in library.words()
        assert ("That takes about" in library.words()) is said


def test_it_shows_which_tabs_a_model_answered_last(library: LibraryStage) -> None:
    library.pick(library.good)
    library.press(library.page.deeds.load)
    library.wait(lambda: library.is_loaded(library.good))
    (conversation_id,) = library.start_answers(1)
    library.wait(lambda: not library.stage.session.is_busy(conversation_id))
    number = library.stage.session.conversation(conversation_id).number
    library.wait(lambda: library.page.details.tabs.numbers == (number,))


def test_notes_about_the_files_are_shown(library: LibraryStage) -> None:
    notes = (DescriptionNote.REMOTE_CODE, DescriptionNote.PICKLED)
    library.stage.engine.descriptions[library.good] = description(library.good, notes=notes)
    library.stage.session.library.describe_again()
    library.pick(library.good)
    library.wait(lambda: "Quire never runs it" in library.words())
    assert "pickled" in library.words()


def test_names_from_files_are_plain_text(library: LibraryStage) -> None:
    name = "<b>bold</b><img src=x>"
    library.stage.engine.descriptions[library.good] = description(library.good, name)
    library.stage.session.library.describe_again()
    library.pick(library.good)
    library.wait(lambda: library.page.details.title.text() == name)
    for label in library.window.findChildren(QLabel):
        if "<" in label.text():
            assert label.textFormat() is Qt.TextFormat.PlainText


def test_the_path_is_copied_as_it_is_and_shown_without_what_turns_it_round(
    library: LibraryStage,
) -> None:
    folder = Path(library.stage.session.models_dir)
    path = write_gguf(folder / "folder" / "\u202egnp.exe\u202c.gguf")
    library.stage.session.library.refresh()
    library.wait(lambda: library.page.model.index_of(path).isValid())
    library.pick(path)

    def shown_labels() -> list[PathLabel]:
        return [x for x in library.page.details.findChildren(PathLabel) if x.isVisible()]

    library.wait(lambda: len(shown_labels()) == 1)
    (label,) = shown_labels()
    shown = label.text()
    assert "\u202e" not in shown + library.page.details.title.text()
    label.setSelection(0, len(shown))
    QTest.keySequence(label, QKeySequence(QKeySequence.StandardKey.Copy))
    assert QGuiApplication.clipboard().text() == path
    label.setSelection(0, shown.index("gnp"))
    label.copy()
    assert QGuiApplication.clipboard().text() == f"{folder / 'folder'}{os.sep}"


def test_searching_and_ordering(library: LibraryStage) -> None:
    library.page.search.setText("qwen good")
    assert [library.page.model.row_at(library.page.model.index(0)).entry.path] == [library.good]
    assert library.page.model.rowCount() == 1
    library.page.search.setText("nothing like this")
    assert library.page.empty.isVisible()
    library.page.search.setText("")
    library.page.order.setCurrentIndex(1)
    library.page.order.activated.emit(1)
    sizes = [
        library.page.model.row_at(library.page.model.index(n)).entry.identity.file_bytes
        for n in range(library.page.model.rowCount())
    ]
    assert sizes == sorted(sizes)


def test_a_folder_that_cannot_be_read_is_said_and_stays(library: LibraryStage) -> None:
    gone = str(Path(library.stage.session.models_dir) / "usb")
    library.stage.session.library.add_folder(gone)
    library.wait(lambda: "it is not there" in library.page.footer.problems.text())
    library.page.places_button.fill()
    entries = [action.text() for action in library.page.places_button.menu().actions()]
    assert any("usb" in text and "cannot be read" in text for text in entries)


def test_the_time_until_the_memory_is_freed_is_the_setting(library: LibraryStage) -> None:
    idle = library.page.footer.idle
    assert (idle.currentData(), idle.currentText()) == (0, "never")
    idle.setCurrentIndex(idle.findData(15))
    idle.activated.emit(idle.currentIndex())
    assert library.stage.settings.values.idle_unload_minutes == 15


def test_the_list_is_read_to_who_does_not_see_it(library: LibraryStage) -> None:
    interface = QAccessible.queryAccessibleInterface(library.page.list)
    assert interface.text(QAccessible.Text.Name) == "Models"
    assert interface.childCount() == 5
    library.pick(library.good)
    library.page.refresh()
    assert "fits" in library.page.details.accessibleDescription()


def test_the_status_strip_and_the_menu_open_it(qtbot) -> None:
    with window_stage(qtbot) as stage:
        strip = stage.window.status_strip
        QTest.mouseClick(strip.model, Qt.MouseButton.LeftButton)
        shown = stage.window.preferences._open["models"]
        assert isinstance(shown, LibraryWindow)
        assert shown.isVisible()
        shown.close()
        qtbot.wait(1)
        stage.window.actions_registry["model_library"].trigger()
        assert stage.window.preferences._open["models"].isVisible()


def test_another_language_keeps_the_chosen_model(qtbot) -> None:
    language = Language("en")
    language.install()
    try:
        with window_stage(qtbot, language=language) as stage:
            library = LibraryStage(stage, qtbot)
            library.pick(library.good)
            stage.session.change_settings(language="zh_CN")
            qtbot.waitUntil(lambda: library.window.windowTitle() == "模型库")
            assert library.page.selected_path() == library.good
            stage.session.change_settings(language="en")
            qtbot.waitUntil(lambda: library.window.windowTitle() == "Model library")
    finally:
        language.remove()


def test_of_a_chosen_weight_file_the_folder_is_the_model() -> None:
    assert model_of("/models/hf/model.safetensors") == str(Path("/models/hf"))
    assert model_of("/models/a.gguf") == str(Path("/models/a.gguf"))


def test_fetches_are_counted_whichever_page_is_shown(
    library: LibraryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = library.stage.window.model_desk.fetches()
    monkeypatch.setattr(fetches, "active_count", lambda: 2)
    fetches.jobs_changed.emit()
    assert library.window.pages.buttons[1].text() == "Fetch models (2)"


def test_the_keyboard_goes_to_where_a_page_begins(library: LibraryStage) -> None:
    window = library.window
    window.activateWindow()
    library.wait(window.isActiveWindow)
    window.pages.buttons[1].click()
    assert window.focusWidget() is window.fetch_page.edit
    window.hide()
    window.pages.buttons[1].setFocus()
    window.present()
    assert window.focusWidget() is window.fetch_page.edit
    window.pages.buttons[0].click()
    assert window.focusWidget() is library.page.list


def test_what_fits_of_the_fetched_is_weighed_against_the_memory_where_models_run(
    library: LibraryStage,
) -> None:
    assert library.stage.window.model_desk.fetches().free_memory() == 16 * GB


def test_tab_comes_to_everything_in_it_and_it_has_a_name(library: LibraryStage) -> None:
    library.pick(library.bare)
    window = library.window
    window.activateWindow()
    library.wait(window.isActiveWindow)
    seen: list[QWidget] = []
    while len(seen) < 60 and (not seen or window.focusWidget() is not seen[0]):
        if window.focusWidget() is not None:
            seen.append(window.focusWidget())
        QTest.keyClick(window.focusWidget() or window, Qt.Key.Key_Tab)
    wanted = (
        *(library.page.search, library.page.order, library.page.list, library.page.open_button),
        *(library.page.places_button, library.page.details, library.page.details.template.combo),
        *(library.page.deeds.load, library.page.deeds.default, library.page.deeds.folder),
        *(library.page.deeds.remove, library.page.deeds.delete, library.page.footer.idle),
    )
    assert [widget.objectName() for widget in wanted if widget not in seen] == []
    for widget in seen:
        interface = QAccessible.queryAccessibleInterface(widget)
        assert interface.text(QAccessible.Text.Name), widget
