"""The page that is made ahead, and the tab that takes it."""

from __future__ import annotations

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.i18n import Language
from app.widgets import spare_page
from app.widgets.conversation_page import ConversationPage
from app.widgets.spare_page import SparePage
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_page, "DELAY_MS", 5)
    monkeypatch.setattr(spare_page, "STEP_MS", 1)


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def spare_of(stage: Stage) -> SparePage:
    return stage.window.tab_area.pages.spare


def all_pages(stage: Stage) -> list[ConversationPage]:
    return stage.window.findChildren(ConversationPage)


def test_a_new_tab_takes_the_page_made_ahead_and_makes_no_widget_of_one(
    stage: Stage, qtbot
) -> None:
    qtbot.waitUntil(lambda: spare_of(stage).is_ready)
    (spare,) = (page for page in all_pages(stage) if page is not stage.page)
    assert not spare.isVisible()
    before = len(spare.findChildren(QWidget))
    conversation_id = stage.window.new_tab()
    assert stage.page is spare
    assert spare.isVisible()
    assert spare.conversation_id == conversation_id
    # The handle of a sheet or a menu is made when it is first shown; the parts are there.
    assert len(spare.findChildren(QWidget)) - before <= 2
    QTest.keyClicks(spare.composer.edit, "Hello there")
    spare.composer.submit()
    qtbot.waitUntil(
        lambda: [item.text for item in spare.transcript.items][-1:] == ["A short answer."]
    )


def test_the_next_page_is_made_after_one_was_taken(stage: Stage, qtbot) -> None:
    taken = []
    for _ in range(3):
        qtbot.waitUntil(lambda: spare_of(stage).is_ready)
        stage.window.new_tab()
        taken.append(stage.page)
    assert len(set(map(id, taken))) == 3
    qtbot.waitUntil(lambda: spare_of(stage).is_ready)
    assert len(all_pages(stage)) == 5


@pytest.mark.parametrize("steps", range(12))
def test_a_page_that_is_half_made_is_completed_for_a_tab(
    stage: Stage, qtbot, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    qtbot.waitUntil(lambda: spare_of(stage).is_ready)
    monkeypatch.setattr(spare_page, "DELAY_MS", 100_000)
    stage.window.new_tab()
    for _ in range(steps):
        spare_of(stage)._on_timer_timeout()
    conversation_id = stage.window.new_tab()
    page = stage.page
    assert page.conversation_id == conversation_id
    assert page.isVisible()
    assert page.composer.edit.hasFocus()
    assert page.empty_state.isVisible()
    assert page.layout().count() == 7
    assert page.stack.count() == 3


def test_nothing_of_one_conversation_is_in_the_page_of_another(stage: Stage, qtbot) -> None:
    first = stage.page
    qtbot.waitUntil(lambda: spare_of(stage).is_ready)
    first.composer.edit.setPlainText("a draft of the first")
    first.empty_state.prompt.setPlainText("Answer in rhymes.")
    first.flush()
    fork = stage.session.fork(first.conversation_id)
    second = stage.page
    assert second is not first
    assert second.conversation_id == fork
    assert second.composer.text() == ""
    assert second.empty_state.prompt.toPlainText() == "Answer in rhymes."
    qtbot.waitUntil(lambda: spare_of(stage).is_ready)
    stage.window.new_tab()
    assert stage.page.composer.text() == ""
    assert stage.page.empty_state.prompt.toPlainText() == stage.session.default_system_prompt
    assert first.composer.text() == "a draft of the first"


def test_a_page_made_before_another_theme_and_model_shows_them(stage: Stage, qtbot) -> None:
    qtbot.waitUntil(lambda: spare_of(stage).is_ready)
    stage.themes.set_mode("dark")
    stage.session.set_default_system_prompt("Be brief.")
    stage.session.unload_model()
    stage.window.new_tab()
    page = stage.page
    assert page.empty_state.prompt.toPlainText() == "Be brief."
    assert page.empty_state.model.text() == all_pages(stage)[0].empty_state.model.text()
    dark = page.composer.palette().window().color()
    assert dark == all_pages(stage)[0].composer.palette().window().color()
    assert dark.lightnessF() < 0.5


def test_another_language_makes_the_spare_page_anew(qtbot) -> None:
    language = Language("en")
    language.install()
    try:
        with window_stage(qtbot, language=language) as stage:
            qtbot.waitUntil(lambda: spare_of(stage).is_ready)
            old = spare_of(stage)
            language.switch_to("zh_CN")
            stage.window.rebuilder.request()
            qtbot.waitUntil(lambda: spare_of(stage) is not old and spare_of(stage).is_ready)
            stage.window.new_tab()
            assert stage.page.composer.edit.accessibleName() == "消息"
            assert len(list(stage.window.tab_area.pages)) == 2
    finally:
        language.remove()
