"""A conversation that outgrows the model's context, in the window: notice, divider, menu."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu

from app.i18n import Language
from app.session_state import Outlook
from app.widgets.transcript.message import DIVIDER_HEIGHT
from app.widgets.words import divider_words, drop_words, overflow_words
from engine.api.commands import Submit
from engine.api.params import OverflowPolicy
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

TEN = "one two three four five six seven eight nine ten"
DROP = OverflowPolicy.DROP_OLDEST
CONTEXT = 250


@pytest.fixture
def stage(qtbot):
    with window_stage(
        qtbot, script=lambda _submit: TEN, tokens_per_s=5000.0, context_length=CONTEXT
    ) as made:
        yield made


def submits(stage: Stage) -> list[Submit]:
    return [c for c in stage.engine.commands if isinstance(c, Submit)]


def write(stage: Stage, text: str) -> None:
    stage.page.composer.edit.setPlainText(text)


def press_enter(stage: Stage) -> None:
    QTest.keyClick(stage.page.composer.edit, Qt.Key.Key_Return)


def wait_sent(stage: Stage, qtbot, number: int) -> None:
    """Until the engine has answered this many messages."""
    qtbot.waitUntil(lambda: len(submits(stage)) == number)
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id))


def nearly_full(stage: Stage, qtbot) -> None:
    """Chats with *drop oldest* until the next message of ten words would drop something."""
    conversation_id = stage.page.conversation_id
    stage.session.set_overflow(conversation_id, DROP)
    for number in range(1, 30):
        stage.session.send(conversation_id, TEN)
        wait_sent(stage, qtbot, number)
        if stage.session.ask_outlook(conversation_id, TEN):
            qtbot.waitUntil(lambda: stage.session.outlook(conversation_id) is not None)
            outlook = stage.session.outlook(conversation_id)
            assert outlook is not None
            if outlook.dropped_messages:
                # Forgotten again, as if it had not been asked.
                stage.session.conversation_changed.emit(conversation_id)
                return
    raise AssertionError("never full")


def dividers(stage: Stage) -> list[tuple[str, str]]:
    items = stage.page.transcript.items
    return [(item.view.message_id, item.view.divider) for item in items if item.view.divider]


# --- before sending -------------------------------------------------------------------------------


def test_what_a_message_drops_is_said_while_it_is_written(stage: Stage, qtbot) -> None:
    nearly_full(stage, qtbot)
    sent = len(submits(stage))
    notice = stage.page.context_notice
    assert not notice.isVisible()
    write(stage, TEN)
    qtbot.waitUntil(notice.isVisible)
    outlook = stage.session.outlook(stage.page.conversation_id)
    assert outlook is not None
    assert notice.label.text() == drop_words(outlook)
    assert not notice.drop_button.isVisible()
    press_enter(stage)
    wait_sent(stage, qtbot, sent + 1)
    qtbot.waitUntil(lambda: not notice.isVisible())
    assert stage.page.composer.text() == ""


def test_a_message_sent_faster_than_that_waits_for_a_second_enter(stage: Stage, qtbot) -> None:
    nearly_full(stage, qtbot)
    sent = len(submits(stage))
    write(stage, TEN)
    press_enter(stage)
    qtbot.waitUntil(stage.page.context_notice.isVisible)
    assert stage.page.context_notice.label.text().endswith("Press Enter again to send.")
    assert stage.page.composer.text() == TEN
    assert len(submits(stage)) == sent
    press_enter(stage)
    wait_sent(stage, qtbot, sent + 1)
    assert stage.session.conversation(stage.page.conversation_id).num_dropped() > 0


def test_a_message_that_drops_nothing_new_goes_out_at_once(stage: Stage, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    stage.session.set_overflow(conversation_id, DROP)
    # So long that the engine has to be asked, but it fits.
    text = "word " * 40
    write(stage, text)
    assert stage.session.ask_outlook(conversation_id, text)
    stage.session.conversation_changed.emit(conversation_id)
    press_enter(stage)
    wait_sent(stage, qtbot, 1)
    assert stage.page.composer.text() == ""
    assert not stage.page.context_notice.isVisible()


def test_a_text_from_elsewhere_stays_in_the_composer_while_it_is_held(stage: Stage, qtbot) -> None:
    nearly_full(stage, qtbot)
    sent = len(submits(stage))
    assert not stage.window.submit_text(stage.page.conversation_id, TEN)
    qtbot.waitUntil(stage.page.context_notice.isVisible)
    assert stage.page.composer.text() == TEN
    assert "Press Enter again" in stage.page.context_notice.label.text()
    press_enter(stage)
    wait_sent(stage, qtbot, sent + 1)


def test_what_does_not_fit_is_said_and_dropping_offered(stage: Stage, qtbot) -> None:
    conversation_id, notice = stage.page.conversation_id, stage.page.context_notice
    number = 0
    while not notice.isVisible():
        number += 1
        stage.session.send(conversation_id, TEN)
        wait_sent(stage, qtbot, number)
        write(stage, TEN)
        QTest.qWait(400)
        assert number < 12
    outlook = stage.session.outlook(conversation_id)
    assert outlook is not None
    assert notice.label.text() == overflow_words(outlook)
    assert outlook.prompt_tokens >= CONTEXT
    assert notice.drop_button.isVisible()
    notice.drop_button.click()
    assert stage.session.conversation(conversation_id).overflow is DROP
    qtbot.waitUntil(lambda: "stops reading" in notice.label.text())
    assert not notice.drop_button.isVisible()
    press_enter(stage)
    wait_sent(stage, qtbot, number + 1)


def test_a_message_too_long_by_itself_says_so(stage: Stage, qtbot) -> None:
    stage.session.set_overflow(stage.page.conversation_id, DROP)
    write(stage, "word " * 300)
    qtbot.waitUntil(stage.page.context_notice.isVisible)
    assert "alone have" in stage.page.context_notice.label.text()
    write(stage, "short")
    qtbot.waitUntil(lambda: not stage.page.context_notice.isVisible())


def test_dropping_is_not_offered_where_it_was_chosen_already(qtbot) -> None:
    # The pool is smaller than this context: 8,192 words.
    with window_stage(qtbot, context_length=100_000) as wide:
        wide.session.set_overflow(wide.page.conversation_id, DROP)
        write(wide, "word " * 8_200)
        qtbot.waitUntil(wide.page.context_notice.isVisible)
        assert "but 8,192 are the limit" in wide.page.context_notice.label.text()
        assert not wide.page.context_notice.drop_button.isVisible()
        wide.session.set_overflow(wide.page.conversation_id, OverflowPolicy.STOP)
        QTest.qWait(500)
        # Nothing was said before: there is nothing to drop.
        assert wide.page.context_notice.isVisible()
        assert not wide.page.context_notice.drop_button.isVisible()
        write(wide, "short")
        press_enter(wide)
        wait_sent(wide, qtbot, 1)
        write(wide, "word " * 8_200)
        qtbot.waitUntil(wide.page.context_notice.drop_button.isVisible)


def test_the_cost_is_in_the_words_if_there_is_any() -> None:
    outlook = Outlook("text", dropped_messages=12, dropped_tokens=3456, recomputed_tokens=1234)
    assert drop_words(outlook) == (
        "The context is full: with this message the model stops reading 12 of the oldest messages "
        "(3,456 tokens). 1,234 tokens of those that remain are computed again. Nothing is deleted."
    )
    free = replace(outlook, recomputed_tokens=0)
    assert drop_words(free).endswith("(3,456 tokens). Nothing is deleted.")


# --- afterwards -----------------------------------------------------------------------------------


def drop_something(stage: Stage, qtbot) -> None:
    nearly_full(stage, qtbot)
    stage.session.send(stage.page.conversation_id, TEN)
    wait_sent(stage, qtbot, len(submits(stage)))
    qtbot.waitUntil(lambda: bool(dividers(stage)))


def test_a_divider_stands_above_the_first_message_that_is_read(stage: Stage, qtbot) -> None:
    drop_something(stage, qtbot)
    conversation = stage.session.conversation(stage.page.conversation_id)
    cut = conversation.num_dropped()
    expected = (conversation.path()[cut].message_id, divider_words(cut))
    assert dividers(stage) == [expected]
    assert f"{cut} earlier messages are no longer read by the model" in expected[1]
    # It stays where it is, in the next turn and when the tab is shown anew.
    stage.session.send(stage.page.conversation_id, "more")
    qtbot.waitUntil(lambda: not stage.session.is_busy(stage.page.conversation_id))
    assert dividers(stage) == [expected]
    stage.page.reload()
    assert dividers(stage) == [expected]
    # All messages are still there.
    assert len(stage.page.transcript.items) == len(conversation.path())


def test_with_stop_the_divider_goes(stage: Stage, qtbot) -> None:
    drop_something(stage, qtbot)
    stage.window.actions_registry["overflow_stop"].trigger()
    assert dividers(stage) == []
    stage.window.actions_registry["overflow_drop_oldest"].trigger()
    assert len(dividers(stage)) == 1


def test_the_divider_takes_its_room_and_the_text_being_read_stays(stage: Stage, qtbot) -> None:
    drop_something(stage, qtbot)
    transcript = stage.page.transcript
    stage.window.resize(900, 480)
    transcript.scroll_by(-10_000)
    transcript.scroll_by(transcript.verticalScrollBar().maximum() - 60)
    assert not transcript.follows
    divided = next(item for item in transcript.items if item.view.divider)
    first_box = divided.boxes[0].y
    reading = transcript.items[transcript.page.index_at(transcript.verticalScrollBar().value())]
    assert transcript.items.index(reading) >= transcript.items.index(divided)
    before = reading.top - transcript.verticalScrollBar().value()
    stage.window.actions_registry["overflow_stop"].trigger()
    assert divided.boxes[0].y == first_box - DIVIDER_HEIGHT
    follower = transcript.items[transcript.items.index(divided) + 1]
    assert follower.top > divided.top
    assert abs(reading.top - transcript.verticalScrollBar().value() - before) <= 1.0


def test_words_in_chinese(stage: Stage, qtbot) -> None:
    nearly_full(stage, qtbot)
    language = Language("zh_CN")
    language.install()
    try:
        write(stage, TEN)
        qtbot.waitUntil(stage.page.context_notice.isVisible)
        assert "模型将不再读取最早消息中的" in stage.page.context_notice.label.text()
        press_enter(stage)
        qtbot.waitUntil(lambda: bool(dividers(stage)))
        assert dividers(stage)[0][1].startswith("模型不再读取之前的")
        wait_sent(stage, qtbot, len(submits(stage)))
    finally:
        language.remove()


# --- the menu -------------------------------------------------------------------------------------


def test_the_menu_shows_and_changes_the_policy_of_the_tab_in_front(stage: Stage) -> None:
    actions = stage.window.actions_registry
    first = stage.page.conversation_id
    assert actions["overflow_stop"].isChecked()
    actions["overflow_drop_oldest"].trigger()
    assert stage.session.conversation(first).overflow is DROP
    second = stage.window.new_tab()
    assert actions["overflow_stop"].isChecked()
    assert stage.session.conversation(second).overflow is OverflowPolicy.STOP
    stage.window.show_conversation(first)
    assert actions["overflow_drop_oldest"].isChecked()
    stage.session.set_overflow(first, OverflowPolicy.STOP)
    assert actions["overflow_stop"].isChecked()


@pytest.mark.qt_log_ignore("This plugin does not support")
def test_the_menu_of_a_tab_changes_its_conversation_and_no_other(stage: Stage) -> None:
    first = stage.page.conversation_id
    second = stage.window.new_tab()
    tabs = stage.window.tab_area.tabs
    tabs.show_menu(tabs.tabRect(0).center())
    (menu,) = [found for found in tabs.findChildren(QMenu) if found.isVisible()]
    (policy,) = [a for a in menu.actions() if a.text() == "When the context is full"]
    choices = policy.menu().actions()
    assert [(c.text(), c.isChecked()) for c in choices] == [
        ("Stop and say so", True),
        ("Drop the oldest messages", False),
    ]
    choices[1].trigger()
    menu.close()
    policies = [stage.session.conversation(i).overflow for i in (first, second)]
    assert policies == [DROP, OverflowPolicy.STOP]
