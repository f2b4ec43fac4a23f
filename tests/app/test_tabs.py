"""Tabs: swatches, activity, renaming, order, closing and reopening."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.theme import ThemeManager
from app.widgets.swatch import Activity, mark_pixmap
from app.widgets.tab_bar import ConversationTabs
from app.widgets.tab_list import TabListButton

LEFT, MIDDLE = Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton


@pytest.fixture
def tabs(qtbot) -> ConversationTabs:
    themes = ThemeManager("light")
    themes.apply()
    bar = ConversationTabs(themes)
    qtbot.addWidget(bar)
    for number, name in enumerate(("a", "b", "c"), start=1):
        bar.add(name)
        bar.set_mark(name, number, f"Title {name}", Activity.IDLE)
    bar.resize(700, 40)
    bar.show()
    qtbot.waitExposed(bar)
    return bar


def test_ids_and_titles(tabs: ConversationTabs) -> None:
    assert tabs.ids() == ["a", "b", "c"]
    assert tabs.tabText(1) == "Title b"
    assert tabs.current_id() == "a"


def test_an_ampersand_in_a_title_is_shown(tabs: ConversationTabs) -> None:
    tabs.set_mark("a", 1, "Q&A", Activity.IDLE)
    assert tabs.tabText(0) == "Q&&A"
    assert tabs.accessibleTabName(0) == "1: Q&A"


def test_a_title_with_html_is_no_html(tabs: ConversationTabs) -> None:
    tabs.set_mark("a", 1, "<b>x</b>", Activity.IDLE)
    assert "&lt;b&gt;x" in tabs.tabToolTip(0)


@pytest.mark.parametrize(
    ("activity", "words"),
    [
        (Activity.STREAMING, "answering"),
        (Activity.WAITING, "waiting"),
        (Activity.DONE_UNSEEN, "new answer"),
        (Activity.FAILED_UNSEEN, "failed"),
    ],
)
def test_activity_is_told_to_screen_readers(
    tabs: ConversationTabs, activity: Activity, words: str
) -> None:
    tabs.set_mark("b", 2, "Title b", activity)
    assert tabs.accessibleTabName(1) == f"2: Title b, {words}"


def test_marks_differ_in_shape_and_number(tabs: ConversationTabs) -> None:
    theme = ThemeManager("light").theme
    images = [mark_pixmap(theme, 1, activity, 1.0).toImage() for activity in Activity]
    images.append(mark_pixmap(theme, 9, Activity.IDLE, 1.0).toImage())
    assert all(a != b for n, a in enumerate(images) for b in images[n + 1 :])


def test_double_click_renames(tabs: ConversationTabs, qtbot) -> None:
    QTest.mouseDClick(tabs, LEFT, pos=tabs.tabRect(1).center())
    assert tabs.editor is not None
    QTest.keyClicks(tabs.editor, "New name")
    with qtbot.waitSignal(tabs.rename_finished) as told:
        QTest.keyClick(tabs.editor, Qt.Key.Key_Return)
    assert told.args == ["b", "New name"]
    assert tabs.editor is None


def test_escape_leaves_the_title(tabs: ConversationTabs, qtbot) -> None:
    tabs.start_rename("a")
    QTest.keyClicks(tabs.editor, "Other")
    with qtbot.assertNotEmitted(tabs.rename_finished):
        QTest.keyClick(tabs.editor, Qt.Key.Key_Escape)
    assert tabs.editor is None


def test_close_button_and_middle_click_ask_to_close(tabs: ConversationTabs, qtbot) -> None:
    button = tabs.tabButton(1, tabs.ButtonPosition.RightSide)
    assert button.accessibleName() == "Close tab"
    with qtbot.waitSignal(tabs.close_requested) as told:
        QTest.mouseClick(button, LEFT)
    assert told.args == ["b"]
    with qtbot.waitSignal(tabs.close_requested) as told:
        QTest.mouseClick(tabs, MIDDLE, pos=tabs.tabRect(0).center())
    assert told.args == ["a"]
    assert tabs.count() == 3


def test_moving_a_tab_tells_the_order(tabs: ConversationTabs, qtbot) -> None:
    with qtbot.waitSignal(tabs.order_changed) as told:
        tabs.moveTab(0, 2)
    assert told.args == [["b", "c", "a"]]
    assert tabs.index_of("a") == 2


def test_removing_a_tab(tabs: ConversationTabs) -> None:
    tabs.remove("b")
    tabs.remove("nobody")
    assert tabs.ids() == ["a", "c"]
    assert tabs.index_of("b") == -1


def test_the_tab_in_front_is_moved_and_stays_at_the_ends(tabs: ConversationTabs) -> None:
    tabs.move_current(1)
    assert tabs.ids() == ["b", "a", "c"]
    assert tabs.current_id() == "a"
    tabs.move_current(-1)
    tabs.move_current(-1)
    assert tabs.ids() == ["a", "b", "c"]


@pytest.mark.qt_log_ignore("This plugin does not support")
def test_the_list_of_tabs_names_all_and_chooses_one(tabs: ConversationTabs, qtbot) -> None:
    tabs.set_mark("c", 3, "Q&A", Activity.WAITING)
    button = TabListButton(ThemeManager("light"), tabs)
    qtbot.addWidget(button)
    button.show()
    button.open_list()
    menu = button.menu_shown
    assert menu is not None
    texts = [action.text() for action in menu.actions()]
    assert texts == ["1: Title a", "2: Title b", "3: Q&&A, waiting"]
    QTest.keyClick(menu, Qt.Key.Key_Down)
    QTest.keyClick(menu, Qt.Key.Key_Return)
    assert tabs.current_id() == "b"
