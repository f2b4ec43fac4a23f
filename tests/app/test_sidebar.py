"""The side bar: open and stored conversations, finding, choosing, five thousand of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.conversation import Conversation
from app.models.conversations import Row
from app.paths import Profile
from app.store import Store
from app.widgets.ages import age_words, short_age_words
from app.widgets.swatch import Activity
from tests.helpers.listed import entries, listed
from tests.helpers.window_stage import Stage, window_stage


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        yield made


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
    assert listed(stage.window.side_bar.model) == ["One", "Two", "Three"]


def test_a_closed_conversation_moves_below_and_opens_again(stage: Stage, qtbot) -> None:
    ids = name_all(stage, "One", "Two", "Three")
    stage.session.send(ids[0], "Keep me")
    qtbot.waitUntil(lambda: not stage.session.is_busy(ids[0]))
    stage.window.tab_area.close_conversation(ids[0])
    model = stage.window.side_bar.model
    qtbot.waitUntil(lambda: listed(model)[-1:] == ["One"])
    row = entries(model)[-1]
    assert isinstance(row, Row)
    assert not row.is_open
    stage.window.side_bar.conversation_chosen.emit(ids[0])
    assert stage.window.tab_area.tabs.current_id() == ids[0]


def test_one_that_opens_again_is_listed_once_whatever_comes_first(stage: Stage, qtbot) -> None:
    ids = name_all(stage, "One", "Two", "Three")
    stage.session.send(ids[0], "Keep me")
    qtbot.waitUntil(lambda: not stage.session.is_busy(ids[0]))
    stage.window.tab_area.close_conversation(ids[0])
    model = stage.window.side_bar.model
    qtbot.waitUntil(lambda: listed(model)[-1:] == ["One"])
    stage.session.reopen_conversation(ids[0])
    # A change of another is told at once, while the stored ones are still to be read again.
    stage.session.conversation_changed.emit(ids[1])
    stage.session.rename(ids[1], "Second")
    assert sorted(listed(model)) == ["One", "Second", "Three"]
    model.reload()
    assert sorted(listed(model)) == ["One", "Second", "Three"]


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
    assert listed(stage.window.side_bar.model) == ["Paging"]
    search.setText("对话")
    assert listed(stage.window.side_bar.model) == ["中文对话"]
    search.clear()
    assert listed(stage.window.side_bar.model) == ["Paging", "Weather", "中文对话"]


def test_activity_is_in_the_accessible_text(stage: Stage) -> None:
    (only,) = name_all(stage, "One")
    model = stage.window.side_bar.model
    model.set_activity(only, Activity.STREAMING)
    text = model.index_of(only).data(Qt.ItemDataRole.AccessibleTextRole)
    assert text == "One, answering"


@pytest.mark.parametrize("activity", [a for a in Activity if a is not Activity.IDLE])
def test_activity_is_drawn_behind_the_title(stage: Stage, activity: Activity) -> None:
    (only,) = name_all(stage, "One")
    bar = stage.window.side_bar
    bar.model.set_activity(only, Activity.IDLE)
    idle = bar.list.viewport().grab().toImage()
    bar.model.set_activity(only, activity)
    assert bar.list.viewport().grab().toImage() != idle


def test_five_thousand_stored_conversations_are_usable_within_a_second(
    qtbot, tmp_path: Path
) -> None:
    store = Store(Profile(tmp_path))
    store.add_conversations(
        [
            Conversation(f"id{n}", f"Conversation {n}", updated_at=n * 9e4, is_open=False)
            for n in range(5000)
        ]
    )
    assert store.flush(60.0)
    store.close()
    # Of this thread alone, so that other programs do not count.
    started = time.thread_time()
    with window_stage(qtbot, load=False, profile=tmp_path) as stage:
        bar = stage.window.side_bar
        bar.grab()
        assert time.thread_time() - started < 1.0
        assert len(listed(bar.model)) == 5001
        started = time.thread_time()
        bar.search.setText("4321")
        bar.grab()
        assert listed(bar.model) == ["Conversation 4321"]
        bar.search.clear()
        bar.list.scrollToBottom()
        bar.grab()
        assert time.thread_time() - started < 1.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "now"), (59, "now"), (60, "1 min"), (7200, "2 h"), (86400, "1 day"), (864000, "10 days")],
)
def test_age_in_words(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


@pytest.mark.parametrize(
    ("days", "words"),
    [(0.5, "12 h"), (1, "1 d"), (59, "59 d"), (60, "2 mo"), (729, "24 mo"), (730, "2 y")],
)
def test_age_in_few_words(days: float, words: str) -> None:
    assert short_age_words(days * 86400) == words
