"""Answers side by side, and the facts of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.i18n import tr
from app.widgets.facts_dialog import FactsDialog
from app.widgets.transcript.painter import footer_rect
from engine.api.errors import PromptTooLongError
from tests.helpers.acting_stage import LEFT, ask_on, key
from tests.helpers.window_stage import Stage, wait_idle, window_stage

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


def several(stage: Stage, qtbot) -> None:
    if not stage.window.cache_panel.isHidden():
        stage.window.actions_registry["toggle_cache_panel"].trigger()
    numbers = count(1)
    stage.engine.script = lambda _submit: f"Answer number {next(numbers)}."
    stage.page.composer.set_text("Which?")
    key(stage, Qt.Key.Key_3, CONTROL)
    assert stage.page.stack.currentWidget() is stage.page.comparison
    wait_idle(stage, qtbot)


def test_answers_stand_side_by_side_and_one_is_chosen(stage: Stage, qtbot) -> None:
    several(stage, qtbot)
    assert stage.page.composer.text() == ""
    columns = stage.page.comparison.columns
    texts = [column.transcript.items[0].text for column in columns]
    assert texts == [f"Answer number {n}." for n in (1, 2, 3)]
    assert not stage.page.comparison.is_stacked
    lefts = [column.geometry().left() for column in columns]
    assert lefts == sorted(set(lefts))
    QTest.mouseClick(columns[1].choose_button, LEFT)
    assert stage.page.stack.currentWidget() is stage.page.transcript
    assert stage.shown_texts == ["Which?", "Answer number 2."]
    item = stage.page.transcript.items[1]
    assert (item.view.version, item.view.num_versions) == (2, 3)


def test_a_narrow_window_stacks_the_answers(stage: Stage, qtbot) -> None:
    several(stage, qtbot)
    stage.window.resize(745, 700)
    qtbot.waitUntil(lambda: stage.page.comparison.is_stacked)
    columns = stage.page.comparison.columns
    qtbot.waitUntil(lambda: len({column.geometry().left() for column in columns}) == 1)
    assert columns[0].width() > stage.page.comparison.width() - 60
    qtbot.waitUntil(lambda: columns[1].geometry().top() > columns[0].geometry().bottom())


def test_sending_on_ends_the_comparison(stage: Stage, ask, qtbot) -> None:
    several(stage, qtbot)
    ask("More")
    assert stage.page.stack.currentWidget() is stage.page.transcript
    assert stage.shown_texts[:2] == ["Which?", "Answer number 1."]


def test_versions_of_an_answer_are_compared_again(stage: Stage, ask, qtbot) -> None:
    ask("One")
    key(stage, Qt.Key.Key_R, CONTROL)
    wait_idle(stage, qtbot)
    key(stage, Qt.Key.Key_Up, ALT)
    key(stage, Qt.Key.Key_H, CONTROL | SHIFT)
    assert len(stage.page.comparison.columns) == 2
    assert stage.page.comparison.columns[0].choose_button.hasFocus()
    QTest.mouseClick(stage.page.comparison.back_button, LEFT)
    assert stage.page.stack.currentWidget() is stage.page.transcript
    assert stage.page.transcript.items[1].view.version == 2


def test_the_facts_of_an_answer_are_all_there(stage: Stage, ask) -> None:
    ask("One")
    key(stage, Qt.Key.Key_I, CONTROL)
    (dialog,) = stage.page.findChildren(FactsDialog)
    values = {name: label.text() for name, label in dialog.values.items()}
    answer = stage.session.conversation(stage.page.conversation_id).path()[-1]
    assert answer.usage is not None
    assert values[tr("Model")] == "Scripted"
    assert values[tr("Prompt")] == f"{answer.usage.prompt_tokens:,}"
    assert values[tr("Seed")] == str(answer.seed)
    assert values[tr("Ended")] == "By itself"
    assert dialog.repeat_button.isEnabled()
    dialog.close()


def test_run_again_from_the_facts_tells_that_the_text_is_the_same(stage: Stage, ask, qtbot) -> None:
    ask("One")
    key(stage, Qt.Key.Key_I, CONTROL)
    (dialog,) = stage.page.findChildren(FactsDialog)
    QTest.mouseClick(dialog.repeat_button, LEFT)
    wait_idle(stage, qtbot)
    footer = stage.page.transcript.items[1].view.footer
    assert footer.startswith("Same text as version 1 · ")


def test_a_departure_is_told_below_the_answer(stage: Stage, ask, qtbot) -> None:
    ask("One")
    stage.engine.script = lambda _submit: "A shorter answer."
    key(stage, Qt.Key.Key_R, CONTROL | SHIFT)
    wait_idle(stage, qtbot)
    footer = stage.page.transcript.items[1].view.footer
    assert footer.startswith("Departs from version 1 at token 2 (character 8) · ")


def test_answers_are_chosen_by_keyboard_alone(stage: Stage, qtbot) -> None:
    several(stage, qtbot)
    key(stage, Qt.Key.Key_L, CONTROL | SHIFT)
    first, second = (column.choose_button for column in stage.page.comparison.columns[:2])
    assert QApplication.focusWidget() is first
    for _ in range(8):
        if QApplication.focusWidget() is second:
            break
        key(stage, Qt.Key.Key_Tab, Qt.KeyboardModifier.NoModifier)
    assert QApplication.focusWidget() is second
    key(stage, Qt.Key.Key_Space, Qt.KeyboardModifier.NoModifier)
    assert stage.shown_texts == ["Which?", "Answer number 2."]
    assert stage.page.transcript.hasFocus()


def test_a_click_on_the_figures_of_an_answer_shows_all_of_them(stage: Stage, ask) -> None:
    ask("One")
    view = stage.page.transcript
    rect = footer_rect(view.page, view.items[1])
    point = rect.topLeft().toPoint() + QPoint(20, 12 - view.verticalScrollBar().value())
    QTest.mouseClick(view.viewport(), LEFT, pos=point)
    (dialog,) = stage.page.findChildren(FactsDialog)
    dialog.close()


def test_answers_side_by_side_offer_what_works_there(stage: Stage, qtbot) -> None:
    several(stage, qtbot)
    offered = [column.transcript.items[0].view.offers for column in stage.page.comparison.columns]
    assert offered == [("copy_message",)] * 3
    transcript = stage.page.comparison.columns[1].transcript
    transcript.action_requested.emit("message_facts", transcript.items[0].view.message_id)
    (dialog,) = stage.page.findChildren(FactsDialog)
    dialog.close()


def test_the_facts_leave_the_window_usable(stage: Stage, ask) -> None:
    ask("One")
    stage.page.message_actions.run("message_facts")
    (dialog,) = stage.page.findChildren(FactsDialog)
    assert dialog.isVisible()
    assert not dialog.isModal()
    ask("Two")
    dialog.close()


def test_answers_that_are_refused_together_leave_no_columns_behind(stage: Stage, qtbot) -> None:
    stage.engine.refusal = lambda _submit: PromptTooLongError("too long", prompt_tokens=9000)
    stage.page.composer.set_text("Which?")
    key(stage, Qt.Key.Key_2, CONTROL)
    wait_idle(stage, qtbot)
    assert stage.page.comparison.columns == []
    assert stage.page.stack.currentWidget() is stage.page.empty_state
    assert stage.page.composer.text() == "Which?"
