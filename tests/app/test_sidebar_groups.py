"""Groups of the side bar: by age, folders, archive; collapsing; what stays selected."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta

import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtTest import QTest

from app.models import groups
from app.models.groups import Ages, group_title, sort_key
from app.session_state import ConversationSummary
from tests.helpers.listed import entries, headings, listed
from tests.helpers.window_stage import Stage, window_stage

TODAY = date(2026, 3, 5)
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def stage(qtbot):
    with window_stage(qtbot) as made:
        qtbot.waitUntil(made.window.isActiveWindow)
        yield made


def at(day: date, hour: int = 12) -> float:
    return datetime(day.year, day.month, day.day, hour).timestamp()


def stored(name: str, days: float = 0, **labels) -> ConversationSummary:
    return ConversationSummary(name, name, 1, False, 0.0, time.time() - days * 86400, **labels)


def show(stage: Stage, monkeypatch: pytest.MonkeyPatch, *found: ConversationSummary) -> None:
    monkeypatch.setattr(stage.session, "closed_conversations", lambda: list(found))
    stage.window.side_bar.model.reload()


@pytest.mark.parametrize(
    ("days", "hour", "key"),
    [
        (0, 0, groups.TODAY),
        (-2, 0, groups.TODAY),
        (1, 23, groups.YESTERDAY),
        (2, 23, groups.WEEK),
        (6, 0, groups.WEEK),
        (7, 23, groups.MONTH),
        (29, 0, groups.MONTH),
        (30, 23, "2026-02"),
        (400, 12, "2025-01"),
    ],
)
def test_groups_by_age_begin_and_end_with_days(days: int, hour: int, key: str) -> None:
    assert Ages(TODAY).group_of(at(TODAY - timedelta(days=days), hour)) == key


def test_groups_stand_in_their_order() -> None:
    keys = ["archived", "2025-12", "folder:b", "week", "open", "2026-01", "folder:A", "pinned"]
    keys += ["deleted", "today", "month", "yesterday"]
    assert sorted(keys, key=sort_key) == [
        *("pinned", "open", "folder:A", "folder:b", "today", "yesterday", "week", "month"),
        *("2026-01", "2025-12", "archived", "deleted"),
    ]


def test_a_month_is_named() -> None:
    assert group_title("2025-12") == "December 2025"


def test_everything_has_one_place(stage: Stage, monkeypatch) -> None:
    show(
        stage,
        monkeypatch,
        stored("new"),
        stored("old", 400),
        stored("pinned", 400, pinned=True, folder="Work"),
        stored("filed", 400, folder="Work"),
        stored("away", archived=True, pinned=True),
    )
    model = stage.window.side_bar.model
    old = next(key for key in headings(model) if key.startswith("20"))
    assert headings(model) == ["pinned", "open", "folder:Work", "today", old, "archived"]
    # The archive is collapsed at first.
    assert listed(model) == ["pinned", "New conversation", "filed", "new", "old"]


def test_open_ones_stand_where_they_were_filed(stage: Stage) -> None:
    (only,) = stage.session.conversation_ids()
    model = stage.window.side_bar.model
    assert headings(model) == ["open"]
    stage.session.set_folder([only], "Work")
    assert headings(model) == ["folder:Work"]
    stage.session.set_pinned([only], True)
    assert headings(model) == ["pinned"]


def test_a_click_on_a_heading_collapses_it_for_the_next_start_too(
    stage: Stage, monkeypatch
) -> None:
    show(stage, monkeypatch, stored("new"), stored("away", archived=True))
    bar = stage.window.side_bar
    point = bar.list.visualRect(bar.model.index_of_group("today")).center()
    QTest.mouseClick(bar.list.viewport(), LEFT, pos=point)
    assert "new" not in listed(bar.model)
    point = bar.list.visualRect(bar.model.index_of_group("archived")).center()
    QTest.mouseClick(bar.list.viewport(), LEFT, pos=point)
    assert "away" in listed(bar.model)
    assert stage.session.window_state("collapsed_groups") == '["deleted", "today"]'


def test_headings_open_and_close_by_keyboard(stage: Stage, monkeypatch) -> None:
    show(stage, monkeypatch, stored("new"))
    bar = stage.window.side_bar
    bar.focus_list()
    bar.list.setCurrentIndex(bar.model.index_of_group("today"))
    QTest.keyClick(bar.list, Qt.Key.Key_Left)
    assert "new" not in listed(bar.model)
    QTest.keyClick(bar.list, Qt.Key.Key_Return)
    assert "new" in listed(bar.model)
    QTest.keyClick(bar.list, Qt.Key.Key_Down)
    QTest.keyClick(bar.list, Qt.Key.Key_Left)
    assert bar.list.currentIndex() == bar.model.index_of_group("today")


def test_a_heading_says_its_count_and_state(stage: Stage, monkeypatch) -> None:
    show(stage, monkeypatch, stored("a"), stored("b"))
    index = stage.window.side_bar.model.index_of_group("today")
    text = index.data(Qt.ItemDataRole.AccessibleTextRole)
    assert text == "Today, 2 conversations, expanded"


def test_what_is_found_by_title_has_no_headings_and_is_found_in_collapsed_groups(
    stage: Stage, monkeypatch
) -> None:
    show(stage, monkeypatch, stored("needle"), stored("needle too", archived=True), stored("hay"))
    stage.window.side_bar.search.setText("Needle")
    model = stage.window.side_bar.model
    assert (listed(model), headings(model)) == (["needle", "needle too"], [])


def test_a_title_that_changes_elsewhere_keeps_the_selection(stage: Stage, monkeypatch) -> None:
    show(stage, monkeypatch, *(stored(f"c{n}") for n in range(20)))
    bar = stage.window.side_bar
    for name in ("c3", "c7"):
        bar.list.selectionModel().select(
            bar.model.index_of(name), QItemSelectionModel.SelectionFlag.Select
        )
    (only,) = stage.session.conversation_ids()
    stage.session.rename(only, "Another title")
    stage.window.new_tab()
    show(stage, monkeypatch, *(stored(f"c{n}") for n in range(20) if n != 5))
    selected = {row.conversation_id for row in bar.list.selected_rows()}
    assert selected >= {"c3", "c7"}
    assert selected <= {"c3", "c7", only}


def test_other_conversations_in_the_same_places_are_not_selected_for_them(
    stage: Stage, monkeypatch
) -> None:
    show(stage, monkeypatch, stored("a"), stored("b"))
    bar = stage.window.side_bar
    flag = QItemSelectionModel.SelectionFlag
    bar.list.selectionModel().select(bar.model.index_of("a"), flag.ClearAndSelect)
    show(stage, monkeypatch, stored("b"), stored("a"))
    assert [row.conversation_id for row in bar.list.selected_rows()] in ([], ["a"])


def test_html_in_titles_and_folders_is_text(stage: Stage, monkeypatch, qtbot) -> None:
    title, folder = "<img src=x onerror=alert(1)>", "<b>bold</b>"
    show(stage, monkeypatch, stored("x", folder=folder), stored(title))
    bar = stage.window.side_bar
    assert title in listed(bar.model)
    assert bar.model.index_of_group(f"folder:{folder}").data() == folder
    plain = bar.grab().toImage()
    show(stage, monkeypatch, stored("x", folder="bold"), stored(title))
    assert bar.grab().toImage() != plain


def test_five_thousand_are_painted_and_changed_within_the_time(stage: Stage, monkeypatch) -> None:
    many = [stored(f"c{n}", n / 10, folder="Work" if n % 7 == 0 else "") for n in range(5000)]
    started = time.thread_time()
    show(stage, monkeypatch, *many)
    stage.window.side_bar.grab()
    assert time.thread_time() - started < 1.0
    (only,) = stage.session.conversation_ids()
    started = time.thread_time()
    for n in range(20):
        stage.session.rename(only, f"Title {n}")
    assert (time.thread_time() - started) / 20 < 0.05
    # No widget of its own for any row.
    assert len(stage.window.side_bar.list.viewport().children()) < 5


def test_the_groups_of_a_start_are_those_of_the_end(stage: Stage) -> None:
    stage.session.set_window_state("collapsed_groups", '["open"]')
    bar = type(stage.window.side_bar)(
        stage.session, stage.themes, stage.window.actions_registry, stage.window
    )
    assert [entry.is_collapsed for entry in entries(bar.model)] == [True]
