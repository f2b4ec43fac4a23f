"""The side bar: open and stored conversations, finding, choosing, five thousand of them."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.models.conversations import ROW_ROLE, ConversationListModel
from app.session_state import ConversationSummary
from app.widgets.ages import age_words
from app.widgets.swatch import Activity
from tests.helpers.window_stage import Stage, window_stage


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


def titles(model: ConversationListModel) -> list[str]:
    return [str(model.index(n).data()) for n in range(model.rowCount())]


def name_all(stage: Stage, *names: str) -> list[str]:
    """Renames the first conversation and opens one more for each further name."""
    ids = stage.session.conversation_ids()
    while len(ids) < len(names):
        ids.append(stage.window.new_tab())
    for conversation_id, name in zip(ids, names, strict=True):
        stage.session.rename(conversation_id, name)
    stage.window.side_bar.model.reload()
    return ids


def test_open_conversations_are_listed_in_the_order_of_their_tabs(stage: Stage) -> None:
    name_all(stage, "One", "Two", "Three")
    assert titles(stage.window.side_bar.model) == ["One", "Two", "Three"]


def test_a_closed_conversation_moves_below_and_opens_again(stage: Stage, qtbot) -> None:
    ids = name_all(stage, "One", "Two", "Three")
    stage.session.send(ids[0], "Keep me")
    qtbot.waitUntil(lambda: not stage.session.is_busy(ids[0]))
    stage.window.tab_area.close_conversation(ids[0])
    model = stage.window.side_bar.model
    qtbot.waitUntil(lambda: titles(model)[-1:] == ["One"])
    row = model.index(model.rowCount() - 1).data(ROW_ROLE)
    assert not row.is_open
    stage.window.side_bar.conversation_chosen.emit(ids[0])
    assert stage.window.tab_area.tabs.current_id() == ids[0]


def test_a_click_shows_the_conversation(stage: Stage, qtbot) -> None:
    ids = name_all(stage, "One", "Two")
    view = stage.window.side_bar.list
    index = stage.window.side_bar.model.index_of(ids[0])
    point = view.visualRect(index).center()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    assert stage.window.tab_area.tabs.current_id() == ids[0]


def test_finding_by_title_ignores_case(stage: Stage) -> None:
    name_all(stage, "Paging", "Weather", "中文对话")
    search = stage.window.side_bar.search
    QTest.keyClicks(search, "PAG")
    assert titles(stage.window.side_bar.model) == ["Paging"]
    search.setText("对话")
    assert titles(stage.window.side_bar.model) == ["中文对话"]
    search.clear()
    assert stage.window.side_bar.model.rowCount() == 3


def test_activity_is_in_the_accessible_text(stage: Stage) -> None:
    (only,) = name_all(stage, "One")
    model = stage.window.side_bar.model
    model.set_activity(only, Activity.STREAMING)
    text = model.index_of(only).data(Qt.ItemDataRole.AccessibleTextRole)
    assert text == "One, answering"


def test_five_thousand_conversations_are_listed_quickly(stage: Stage, monkeypatch) -> None:
    stored = [
        ConversationSummary(f"id{n}", f"Conversation {n}", n, False, 0.0, float(n))
        for n in range(5000)
    ]
    monkeypatch.setattr(stage.session, "closed_conversations", lambda: stored)
    started = time.perf_counter()
    stage.window.side_bar.model.reload()
    stage.window.side_bar.list.grab()
    assert time.perf_counter() - started < 1.0
    assert stage.window.side_bar.model.rowCount() == 5001


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "now"), (59, "now"), (60, "1 min"), (7200, "2 h"), (86400, "1 day"), (864000, "10 days")],
)
def test_age_in_words(seconds: float, words: str) -> None:
    assert age_words(seconds) == words
