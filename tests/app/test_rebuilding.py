"""Another language or font in an open window: all of it follows, and nothing the user had goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import SIGNAL, QObject, Qt, QTimer
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QWidget,
)

from app.conversation import Attachment
from app.exporting_files import write_json
from app.i18n import Language, catalogue
from app.session_state import Severity
from app.widgets.system_prompt_dialog import SystemPromptDialog
from app.widgets.transcript.page import Anchor
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

# The name of the first prompt of the library: stored once, and the user's from then on.
STORED = {"Assistant"}
LONG = "\n\n".join(f"Paragraph {n} of a long answer." for n in range(60))


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    language = Language("en")
    language.install()
    with window_stage(qtbot, lambda _submit: LONG, language=language) as made:
        yield made
    language.remove()


def switch(stage: Stage, qtbot, language: str) -> None:
    """Chooses a language in the menu and waits until the window has followed."""
    before = stage.window.tab_area
    stage.window.actions_registry[f"language_{language}"].trigger()
    qtbot.waitUntil(lambda: stage.window.tab_area is not before)
    QTest.qWait(1)


def texts_of(window: QWidget) -> set[str]:
    """Everything that the widgets, menus and actions of ``window`` say."""
    found: set[str] = set()
    objects: list[QObject] = [window, *window.findChildren(QObject)]
    for item in objects:
        if isinstance(item, QWidget):
            found |= {item.toolTip(), item.accessibleName(), item.windowTitle()}
        if isinstance(item, QLabel | QAbstractButton | QAction):
            found.add(item.text())
        if isinstance(item, QMenu):
            found.add(item.title())
        if isinstance(item, QLineEdit | QPlainTextEdit):
            found.add(item.placeholderText())
        if isinstance(item, QComboBox):
            found |= {item.itemText(index) for index in range(item.count())}
    return {text.rstrip("…") for text in found}


def english_left(window: QWidget) -> list[str]:
    """English texts that have another Chinese form and are still there."""
    chinese = catalogue("zh_CN")
    english = {text.rstrip("…") for text, other in chinese.items() if text != other}
    return sorted((english & texts_of(window)) - STORED)


def test_every_text_of_the_window_follows(stage: Stage, qtbot) -> None:
    stage.page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id))
    assert len(english_left(stage.window)) > 60
    switch(stage, qtbot, "zh_CN")
    assert english_left(stage.window) == []
    assert "新建标签页" in texts_of(stage.window)
    assert "个词元" in stage.page.transcript.items[-1].view.footer
    switch(stage, qtbot, "en")
    assert len(english_left(stage.window)) > 60


def test_windows_beside_it_follow_too(stage: Stage, qtbot) -> None:
    settings = stage.window.preferences.show_settings()
    settings.show_section("engine")
    stage.window.preferences.show_help()
    switch(stage, qtbot, "zh_CN")
    assert settings.isVisible()
    assert settings.windowTitle() == "设置"
    assert settings.sections.currentItem().text() == "引擎"
    assert english_left(settings) == []
    help_window = stage.window.preferences._open["help"]
    assert "分页" in help_window.browser.toPlainText()
    for window in (settings, help_window):
        window.close()


def test_what_was_written_stays_with_its_cursor(stage: Stage, qtbot) -> None:
    composer = stage.page.composer
    composer.attachments.add_item(Attachment("a.txt", "text"))
    composer.edit.setPlainText("half a thought")
    cursor = composer.edit.textCursor()
    cursor.setPosition(4)
    composer.edit.setTextCursor(cursor)
    switch(stage, qtbot, "zh_CN")
    composer = stage.page.composer
    assert composer.typed_text() == "half a thought"
    assert composer.edit.textCursor().position() == 4
    assert [item.name for item in composer.attachments.items] == ["a.txt"]


def test_a_system_prompt_that_is_being_written_stays_open(stage: Stage, qtbot) -> None:
    stage.page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id))
    stage.page.edit_system_prompt()
    dialog = stage.window.findChild(SystemPromptDialog)
    assert dialog is not None
    dialog.edit.setPlainText("Half a prompt")
    del dialog
    switch(stage, qtbot, "zh_CN")
    qtbot.wait(10)
    dialog = stage.window.findChild(SystemPromptDialog)
    assert dialog is not None
    assert dialog.isVisible()
    assert dialog.edit.toPlainText() == "Half a prompt"
    dialog.accept()
    conversation = stage.session.conversation(stage.page.conversation_id)
    assert conversation.system_prompt == "Half a prompt"


def test_the_place_in_the_transcript_and_the_selection_stay(stage: Stage, qtbot) -> None:
    stage.page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id))
    view = stage.page.transcript
    view.scroll_by(-10_000)
    view.scroll_by(300)
    view.selection.select_all()
    chosen, before = view.copy_selection(), view.view_state().place
    switch(stage, qtbot, "zh_CN")
    view = stage.page.transcript
    assert before is not None
    qtbot.waitUntil(lambda: _is_same_place(view.view_state().place, before))
    assert not view.view_state().follows
    assert view.copy_selection() == chosen != ""


def _is_same_place(found: Anchor | None, wanted: Anchor) -> bool:
    if found is None or found.item.view.message_id != wanted.item.view.message_id:
        return False
    same_box = (found.section, found.box) == (wanted.section, wanted.box)
    return same_box and found.share == pytest.approx(wanted.share, abs=0.1)


def test_side_bar_and_cache_panel_keep_their_room(stage: Stage, qtbot) -> None:
    window = stage.window
    window.resizeDocks([window.panels.dock], [420], Qt.Orientation.Horizontal)
    window.splitter.setSizes([260, 600])
    qtbot.waitUntil(lambda: window.panels.dock.width() == 420)
    before = window.side_bar.width()
    switch(stage, qtbot, "zh_CN")
    qtbot.waitUntil(lambda: window.panels.dock.width() == 420)
    assert window.side_bar.width() == before


def test_pages_that_are_not_in_front_come_back_too(stage: Stage, qtbot) -> None:
    first = stage.page.conversation_id
    stage.page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(first))
    stage.page.transcript.scroll_by(-10_000)
    stage.page.composer.edit.setPlainText("draft")
    second = stage.window.new_tab()
    switch(stage, qtbot, "zh_CN")
    switch(stage, qtbot, "en")
    assert [page.conversation_id for page in stage.window.tab_area.pages] == [second]
    stage.window.show_conversation(first)
    assert not stage.page.transcript.follows
    assert stage.page.composer.typed_text() == "draft"


def test_an_answer_streams_on(stage: Stage, qtbot) -> None:
    stage.engine.script = lambda _submit: "word " * 50_000
    conversation_id = stage.page.conversation_id
    stage.page.submit("Question")
    answer = lambda: stage.session.conversation(conversation_id).path()[-1]  # noqa: E731
    qtbot.waitUntil(lambda: len(answer().content) > 50)
    switch(stage, qtbot, "zh_CN")
    assert stage.session.is_busy(conversation_id)
    shown = stage.page.transcript.items[-1]
    before = len(shown.text)
    qtbot.waitUntil(lambda: len(shown.text) > before)
    stage.session.stop(conversation_id)
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    assert shown.text.strip() == answer().content.strip()


def test_tabs_notices_and_the_search_stay(stage: Stage, qtbot) -> None:
    first = stage.page.conversation_id
    second = stage.window.new_tab()
    stage.session.rename(second, "The second")
    stage.session.report("code", "Something happened.", severity=Severity.INFO)
    stage.window.side_bar.search.setText("second")
    switch(stage, qtbot, "zh_CN")
    window = stage.window
    assert window.tab_area.tabs.ids() == [first, second]
    assert window.tab_area.tabs.current_id() == second
    assert [bar.notice.error.code for bar in window.tab_area.notices.bars] == ["code"]
    assert window.side_bar.search.text() == "second"


def test_the_keyboard_stays_where_it_was(stage: Stage, qtbot) -> None:
    stage.window.activateWindow()
    stage.page.composer.edit.setFocus()
    switch(stage, qtbot, "zh_CN")
    assert QApplication.focusWidget() is stage.page.composer.edit
    QTest.keyClicks(QApplication.focusWidget(), "on")
    assert stage.page.composer.typed_text() == "on"


def test_actions_work_once_afterwards(stage: Stage, qtbot) -> None:
    switch(stage, qtbot, "zh_CN")
    switch(stage, qtbot, "en")
    before = len(stage.session.conversation_ids())
    stage.window.activateWindow()
    QTest.keyClick(stage.window, Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier)
    assert len(stage.session.conversation_ids()) == before + 1


def test_the_old_parts_are_gone(stage: Stage, qtbot) -> None:
    window = stage.window
    parts = (window.tab_area, window.side_bar, window.status_strip, window.menuBar(), stage.page)
    old = [*parts, *window.actions_registry, *window.findChildren(QTimer)]
    kept = [timer for timer in window.findChildren(QTimer) if timer.parent() is window]
    switch(stage, qtbot, "zh_CN")
    left = lambda: [o for o in old if shiboken6.isValid(o) and o not in kept]  # noqa: E731
    qtbot.waitUntil(lambda: left() == [])


def test_nothing_is_heard_twice(stage: Stage, qtbot) -> None:
    session = stage.session
    signals = ("conversation_changed(QString)", "notice_raised(PyObject)", "stored_changed()")

    def listeners() -> list[int]:
        return [session.receivers(SIGNAL(name)) for name in signals]

    before = listeners()
    assert min(before) > 0
    switch(stage, qtbot, "zh_CN")
    qtbot.waitUntil(lambda: listeners() == before)


@pytest.mark.parametrize(
    ("name", "value", "holds"),
    [
        ("font_size", 14.0, lambda w: w.tab_area.current_page.composer.edit.font().pointSizeF()),
        ("density", "compact", lambda w: w.themes.appearance.density),
    ],
)
def test_fonts_and_density_change_at_run_time(
    stage: Stage, qtbot, name: str, value: object, holds: Callable[[QWidget], object]
) -> None:
    before, area = holds(stage.window), stage.window.tab_area
    stage.page.composer.edit.setPlainText("draft")
    stage.session.change_settings(**{name: value})
    qtbot.waitUntil(lambda: stage.window.tab_area is not area)
    assert holds(stage.window) != before
    assert stage.page.composer.typed_text() == "draft"
    stage.session.change_settings(font_size=10.0, density="comfortable")
    qtbot.waitUntil(lambda: holds(stage.window) == before)


def test_an_export_ends_before_the_window_is_made_anew(
    stage: Stage, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*args) -> Iterator[float]:
        for part in write_json(*args):
            time.sleep(0.02)
            yield part

    monkeypatch.setattr("app.widgets.transfers.write_json", slowly)
    ids = [stage.window.new_tab() for _ in range(5)]
    target = tmp_path / "all.json"
    assert stage.window.transfers.write(ids, "json", target)
    switch(stage, qtbot, "zh_CN")
    assert target.exists()
    assert not list(tmp_path.glob("*.partial"))
