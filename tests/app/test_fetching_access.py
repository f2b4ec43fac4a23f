"""Fetching by keyboard, for screen readers, and in words of the user's language."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.app_error import AppError
from app.fetching import errors
from app.fetching.errors import FetchError
from app.fetching.run import State
from app.i18n import Language
from app.widgets.fetching.words import described_codes, error_words, job_words, left_words
from engine.api.errors import ErrorInfo
from tests.helpers.fetching_page import Stage, shown_page

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    with shown_page(qtbot, tmp_path) as made:
        yield made


def name_of(widget: QWidget) -> str:
    interface = QAccessible.queryAccessibleInterface(widget)
    return "" if interface is None else interface.text(QAccessible.Text.Name)


def test_tab_comes_to_everything_and_everything_has_a_name(stage: Stage) -> None:
    stage.pause_at(50_000)
    stage.wait(State.PAUSED)
    stage.page.activateWindow()
    stage.page.focus_search()
    seen: list[QWidget] = []
    for _ in range(40):
        widget = stage.page.window().focusWidget()
        if widget in seen:
            break
        seen.append(widget)
        QTest.keyClick(widget, Qt.Key.Key_Tab)
    wanted = {
        stage.page.edit,
        stage.page.kind,
        stage.page.search_button,
        stage.page.token_button,
        stage.page.list,
        stage.view.page_button,
        stage.view.list,
        stage.view.button,
        stage.row.resume_button,
        stage.row.cancel_button,
    }
    assert {name_of(widget) for widget in wanted - set(seen)} == set()
    assert [type(widget) for widget in seen if not name_of(widget)] == []
    assert name_of(stage.row.resume_button) == "Go on with org/tiny-GGUF · Q4_K_M"


def test_enter_in_the_list_of_choices_fetches(stage: Stage) -> None:
    stage.choose()
    stage.view.list.setFocus()
    QTest.keyClick(stage.view.list, Qt.Key.Key_Return)
    stage.wait(State.DONE)


def test_pausing_by_keyboard_leaves_the_keyboard_on_going_on(stage: Stage) -> None:
    stage.hub.stop_at = 1000
    stage.hub.gate.clear()
    stage.fetch()
    stage.wait(State.FETCHING)
    stage.page.activateWindow()
    stage.row.pause_button.setFocus()
    stage.qtbot.waitUntil(stage.row.pause_button.hasFocus)
    QTest.keyClick(stage.row.pause_button, Qt.Key.Key_Space)
    stage.wait(State.PAUSED)
    assert stage.row.resume_button.hasFocus()


def test_every_error_of_fetching_has_words_with_its_numbers(qapp: object) -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, AppError) and kind is not FetchError
    ]
    assert {kind.code for kind in kinds} - {"app_error"} == described_codes()
    numbers = {
        **{"host": "h", "reason": "r", "name": "n", "status": 500, "seconds": 3},
        **{"needed": 10, "free": 5, "expected": 7, "actual": 8},
    }
    language = Language("zh_CN")
    language.install()
    try:
        for code in described_codes():
            cause, action = error_words(ErrorInfo(code, "m", "a", tuple(numbers.items())))
            assert not cause.isascii(), cause
            assert not action.isascii(), action
    finally:
        language.remove()


def test_an_error_without_its_numbers_keeps_its_own_words(qapp: object) -> None:
    assert error_words(ErrorInfo("hub_trouble", "Own words.", "Do.")) == ("Own words.", "Do.")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s left"), (89, "89 s left"), (600, "10 min left"), (7300, "2 h 2 min left")],
)
def test_the_time_left_is_no_more_precise_than_it_can_be(
    qapp: object, seconds: float, words: str
) -> None:
    assert left_words(seconds) == words


def test_a_running_fetch_says_amount_speed_and_time(stage: Stage) -> None:
    stage.pause_at(50_000)
    view = replace(
        stage.wait(State.PAUSED), state=State.FETCHING, speed=2_500_000.0, seconds_left=40.0
    )
    assert job_words(view, "h") == "50 KB of 205 KB · 2.5 MB/s · 40 s left"
