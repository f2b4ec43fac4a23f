"""Parts of the panel: the badge, how they share the room, names for screen readers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest
from PySide6.QtCore import QPoint, QRect, Qt, QTimer
from PySide6.QtGui import QFontMetrics, QGuiApplication
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.cache_panel.grid_canvas import LARGEST_SIDE
from app.cache_panel.parts import WrappedLabel, fitting
from tests.helpers.panel_stage import PanelStage, grid_of, panel_stage, shown, texts_of
from tests.helpers.scripted_pool import ScriptedPool

# Said by the offscreen platform about every window with a least size.
pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

MakeStage = Callable[..., PanelStage]


@pytest.fixture
def make_stage(qtbot: QtBot) -> MakeStage:
    return partial(panel_stage, qtbot)


def test_invariant_violation_is_shown(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.violation = "block 3: ref_count 2, but 1 table entries and 0 pins"
    shown(qtbot, stage)
    assert stage.violation in texts_of(stage.panel)


@pytest.mark.qt_log_ignore("does not support raise", extend=True)
def test_red_badge_offers_the_facts_and_the_diagnostics(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    stage.violation = "block 3: ref_count 2, but 1 table entries and 0 pins"
    shown(qtbot, stage)
    badge = stage.panel.live.view.badge
    assert badge.property("tone") == "error"
    asked: list[bool] = []
    stage.panel.diagnostics_requested.connect(lambda: asked.append(True))
    copy, diagnostics = badge.menu_of_help().actions()
    copy.trigger()
    assert QGuiApplication.clipboard().text() == stage.violation
    diagnostics.trigger()
    assert asked == [True]


LOW = [(740, 170), (900, 180), (1200, 250), (900, 290), (1500, 330)]


@pytest.mark.parametrize(
    "size", [(360, 400), (360, 560), (420, 860), (700, 860), (1200, 400), *LOW]
)
def test_nothing_is_cut_off_and_nothing_overlaps(
    qtbot: QtBot, make_stage: MakeStage, size: tuple[int, int]
) -> None:
    stage = make_stage()
    stage.panel.let_be_low(size in LOW)
    shown(qtbot, stage, *size)
    # Nested layouts pass a change on one event at a time.
    qtbot.wait(60)
    assert (stage.panel.width(), stage.panel.height()) == size
    labels = [w for w in stage.panel.findChildren(QLabel) if w.isVisible() and w.text()]
    for label in labels:
        if label.wordWrap():
            assert label.height() >= label.heightForWidth(label.width()), label.text()
        else:
            assert label.width() >= label.sizeHint().width(), label.text()
            assert label.height() >= label.minimumSizeHint().height(), label.text()
    assert stage.panel.live is not None
    pages = stage.panel.live.view.pages
    choices = [part for part in (*pages.buttons, pages.box) if part.isVisible()]
    assert len(choices) in (1, len(pages.buttons))
    boxes = [
        QRect(part.mapTo(stage.panel, QPoint(0, 0)), part.size())
        for part in [*labels, grid_of(stage), *choices, pages._stack]
    ]
    assert all(stage.panel.rect().contains(box) for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.intersects(other)


def test_a_low_panel_chooses_its_page_from_a_list(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage(), 360, 400)
    assert stage.panel.live is not None
    pages = stage.panel.live.view.pages
    assert [pages.box.itemText(i) for i in range(pages.box.count())] == [
        button.text() for button in pages.buttons
    ]
    pages.box.setFocus()
    qtbot.keyClick(pages.box, Qt.Key.Key_Down)
    assert pages.current == 1
    stage.panel.resize(360, 860)
    qtbot.wait(60)
    assert pages.buttons[1].isVisible()
    assert pages.buttons[1].isChecked()
    pages.buttons[3].click()
    assert pages.box.currentIndex() == 3


def test_a_small_pool_leaves_the_rest_to_the_pages(qtbot: QtBot, make_stage: MakeStage) -> None:
    small = shown(qtbot, make_stage(ScriptedPool(40)), 380, 860)
    large = shown(qtbot, make_stage(ScriptedPool(4000)), 380, 860)
    qtbot.wait(60)
    assert small.panel.live is not None
    assert large.panel.live is not None
    view, other = small.panel.live.view, large.panel.live.view
    layout = view.grid.layout_in_use
    assert layout is not None
    assert layout.side == LARGEST_SIDE
    assert view.grid.height() - layout.height < LARGEST_SIDE
    assert view.pages.height() > other.pages.height() + 40
    # Magnified, or as a table, it takes as much as that of a large pool.
    fitting = view.grid.height()
    view.grid.zoom_in(0)
    qtbot.waitUntil(lambda: view.grid.height() > fitting + 20)
    view.grid.zoom_to_fit()
    qtbot.waitUntil(lambda: view.grid.height() == fitting)
    view.area.table_button.click()
    qtbot.waitUntil(lambda: view.area.block_list.height() > fitting + 20)
    assert view.area.height() == other.area.height()


def test_a_page_is_up_to_date_when_it_is_chosen_while_nothing_happens(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = shown(qtbot, make_stage())
    live = stage.panel.live
    assert live is not None
    timers = stage.panel.findChildren(QTimer)
    qtbot.waitUntil(lambda: not any(timer.isActive() for timer in timers))
    view = live.view
    for part, rows in ((view.shares, view.shares.model), (view.lane, view.lane.model)):
        assert rows.rowCount() == 0
        view.pages.reveal(part)
        assert rows.rowCount() >= 4


def test_label_gives_back_the_lines_that_it_no_longer_needs(qtbot: QtBot) -> None:
    label = WrappedLabel(1)
    qtbot.addWidget(label)
    label.resize(200, 20)
    label.show()
    label.show_text("word " * 60)
    high = label.height()
    label.show_text("word")
    assert label.height() < high / 3


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_long_sentence_ends_with_a_whole_line(qtbot: QtBot, lines: int) -> None:
    font = QGuiApplication.font()
    text = "Pool full: 3 blocks short. Goes on when 2 A conversation with a long title ends. " * 3
    shown = fitting(text, font, 260, lines)
    metrics = QFontMetrics(font)
    room = QRect(0, 0, 260, 10_000)
    height = metrics.boundingRect(room, int(Qt.TextFlag.TextWordWrap), shown).height()
    assert round(height / metrics.lineSpacing()) == lines
    assert shown.endswith("…")
    assert text.startswith(shown[:-1])
    assert fitting("Short.", font, 260, lines) == "Short."


def test_parts_have_accessible_names(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = shown(qtbot, make_stage())
    for part in stage.panel.findChildren(QWidget):
        if part.focusPolicy() != Qt.FocusPolicy.NoFocus:
            assert part.accessibleName(), part
