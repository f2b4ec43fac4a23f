"""Acting on messages in the window: buttons, keys, menus, deleting, keeping in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu

from app.conversation import MessageStatus
from app.i18n import tr
from engine.api.commands import Pin, Unpin
from engine.api.params import SamplingParams
from tests.helpers.acting_stage import LEFT, ask_on, hover, key
from tests.helpers.window_stage import SHORT, Stage, wait_idle, window_stage

# Of the platform plugin without a screen.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support")
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
ALT = Qt.KeyboardModifier.AltModifier


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        made.window.activateWindow()
        yield made


@pytest.fixture
def ask(stage: Stage, qtbot) -> Callable[..., str]:
    return partial(ask_on, stage, qtbot)


def menu_of(stage: Stage) -> QMenu:
    menus = [m for m in stage.page.transcript.findChildren(QMenu) if m.isVisible()]
    assert len(menus) == 1
    return menus[0]


def test_messages_are_walked_and_edited_by_keyboard_alone(stage: Stage, ask, qtbot) -> None:
    ask("One", "Two")
    view = stage.page.transcript
    for _ in range(2):
        key(stage, Qt.Key.Key_Up, ALT)
    assert view.acting.current is view.items[2]
    key(stage, Qt.Key.Key_F2, SHIFT)
    assert view.acting.editor is not None
    QTest.keyClicks(view.acting.editor.edit, " and more")
    QTest.keyClick(view.acting.editor.edit, Qt.Key.Key_Return)
    wait_idle(stage, qtbot)
    assert stage.shown_texts == ["One", SHORT, "Two and more", SHORT]
    for _ in range(2):
        key(stage, Qt.Key.Key_Up, ALT)
    key(stage, Qt.Key.Key_Left, ALT)
    assert stage.shown_texts[2] == "Two"
    key(stage, Qt.Key.Key_Right, ALT)
    assert stage.shown_texts[2] == "Two and more"


def test_the_menu_of_the_current_message_opens_by_keyboard(stage: Stage, ask) -> None:
    ask("One")
    key(stage, Qt.Key.Key_Up, ALT)
    QTest.keyClick(stage.page.transcript, Qt.Key.Key_Return)
    menu = menu_of(stage)
    texts = [action.text() for action in menu.actions() if action.text()]
    assert tr("Edit message") in texts
    assert tr("About this answer…") in texts
    assert tr("Continue answer") not in texts
    menu.close()


def test_a_key_pressed_while_writing_acts_on_the_last_message_not_on_the_hovered(
    stage: Stage, ask, qtbot
) -> None:
    ask("One", "Two")
    hover(stage, 1)
    stage.page.composer.edit.setFocus()
    key(stage, Qt.Key.Key_R, CONTROL)
    wait_idle(stage, qtbot)
    assert stage.shown_texts[:3] == ["One", SHORT, "Two"]
    assert stage.page.transcript.items[3].view.num_versions == 2


def test_an_answer_that_hit_its_limit_offers_to_go_on(stage: Stage, ask, qtbot) -> None:
    stage.session.change_settings(sampling=SamplingParams(max_tokens=2))
    ask("One")
    item = hover(stage, 1)
    assert "continue_answer" in item.view.offers
    assert stage.page.transcript.buttons.go_on.isVisible()
    QTest.mouseClick(stage.page.transcript.buttons.go_on, LEFT)
    wait_idle(stage, qtbot)
    assert stage.shown_texts == ["One", SHORT]


def test_a_running_answer_is_stopped_by_its_own_button(stage: Stage, ask, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    stage.engine.script = lambda _submit: "word " * 300
    stage.window.submit_text(conversation_id, "One")
    qtbot.waitUntil(lambda: len(stage.shown_texts[-1]) > 10)
    hover(stage, 1)
    QTest.mouseClick(stage.page.transcript.buttons.stop, LEFT)
    wait_idle(stage, qtbot)
    answer = stage.session.conversation(conversation_id).path()[-1]
    assert answer.status is MessageStatus.STOPPED


def test_the_menu_of_a_message_that_is_not_seen_whole_opens_within_the_view(
    stage: Stage, ask
) -> None:
    stage.engine.script = lambda _submit: "A paragraph.\n\n" * 200
    ask("One")
    view = stage.page.transcript
    view.setFocus()
    for place in (Qt.Key.Key_Home, Qt.Key.Key_End):
        QTest.keyClick(view, place)
        view.keys.reach(view.items[1])
        area = view.viewport()
        assert area.rect().contains(area.mapFromGlobal(view.buttons.menu_place()))


def test_deleting_offers_to_undo_it(stage: Stage, ask) -> None:
    ask("One", "Two")
    for _ in range(2):
        key(stage, Qt.Key.Key_Up, ALT)
    key(stage, Qt.Key.Key_X, CONTROL | SHIFT)
    assert stage.shown_texts == ["One", SHORT]
    bar = stage.page.undo_bar
    assert bar.isVisible()
    assert bar.label.text() == "2 messages deleted."
    QTest.mouseClick(bar.undo_button, LEFT)
    assert stage.shown_texts == ["One", SHORT, "Two", SHORT]
    assert not bar.isVisible()


def test_no_key_without_modifiers_deletes_a_message(stage: Stage, ask) -> None:
    ask("One")
    key(stage, Qt.Key.Key_Up, ALT)
    for which in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace, Qt.Key.Key_D):
        QTest.keyClick(stage.page.transcript, which)
    assert stage.shown_texts == ["One", SHORT]


def test_keeping_in_the_cache_tells_its_cost_and_is_shown_by_the_menu(
    stage: Stage, ask, qtbot
) -> None:
    ask("One")
    action = stage.window.actions_registry["keep_in_cache"]
    action.trigger()
    qtbot.waitUntil(lambda: any(isinstance(c, Pin) for c in stage.engine.commands))
    assert action.isChecked()
    assert "% of the pool" in stage.page.notices.bars[-1].label.text()
    stage.window.new_tab()
    assert not action.isChecked()
    stage.window.tab_area.step(-1)
    assert action.isChecked()
    action.trigger()
    qtbot.waitUntil(lambda: any(isinstance(c, Unpin) for c in stage.engine.commands))
    assert not action.isChecked()


def test_the_menu_of_a_tab_keeps_its_conversation_in_the_cache(stage: Stage, ask) -> None:
    conversation_id = ask("One")
    tabs = stage.window.tab_area.tabs
    tabs.show_menu(tabs.tabRect(0).center())
    (menu,) = [found for found in tabs.findChildren(QMenu) if found.isVisible()]
    (entry,) = [a for a in menu.actions() if a.text() == tr("Keep in the cache")]
    assert not entry.isChecked()
    entry.trigger()
    menu.close()
    assert stage.session.is_kept_in_cache(conversation_id)
