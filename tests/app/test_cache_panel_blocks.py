"""Blocks one by one: table, magnifier, text, screen reader, keyboard in the block tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QPaintEvent, QRegion, QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.cache_panel.block_tables import BlockTables
from app.cache_panel.meter import Meter
from app.cache_panel.pool_view import PoolView
from app.gauges import Gauge
from engine.api.commands import BlockText
from engine.api.events import BlockTextReady
from tests.helpers.panel_stage import PanelStage, panel_stage, shown
from tests.helpers.scripted_pool import ScriptedPool, four_conversations

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

MakeStage = Callable[..., PanelStage]


@pytest.fixture
def make_stage(qtbot: QtBot) -> MakeStage:
    def make(scripted: ScriptedPool | None = None) -> PanelStage:
        stage = shown(qtbot, panel_stage(qtbot, scripted))
        qtbot.wait(60)
        return stage

    return make


def view_of(stage: PanelStage) -> PoolView:
    assert stage.panel.live is not None
    return stage.panel.live.view


def texts_of(stage: PanelStage) -> str:
    labels = stage.panel.findChildren(QLabel)
    return "\n".join(label.text() for label in labels if label.isVisible())


def test_without_a_pool_there_is_nothing_to_press(qtbot: QtBot) -> None:
    stage = PanelStage(four_conversations(), publish_on_subscribe=False)
    qtbot.addWidget(stage.panel)
    stage.panel.resize(380, 860)
    stage.panel.show()
    qtbot.waitUntil(lambda: stage.panel.live is not None)
    area = view_of(stage).area
    assert not any(button.isEnabled() for button in area.buttons)
    # A snapshot from before that is taken for the one of an earlier subscription.
    qtbot.waitUntil(lambda: stage.subscriptions == 1)
    stage.publish()
    stage.deliver()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    assert area.table_button.isEnabled()
    assert area.zoom_in_button.isEnabled()
    stage.panel.hide()


# --- the magnifier ---


def test_plus_magnifies_around_the_cursor_and_0_shows_all_again(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage(four_conversations(num_blocks=4000))
    grid = view_of(stage).grid
    grid.setFocus()
    fitting = grid.layout_in_use
    for _ in range(3):
        qtbot.keyClick(grid, Qt.Key.Key_Plus)
    assert grid.is_magnified
    large = grid.layout_in_use
    assert large.side > fitting.side
    qtbot.keyClick(grid, Qt.Key.Key_End)
    shown = grid.layout_in_use
    assert shown.end == 4000
    assert grid.cursor_block == 3999
    qtbot.keyClick(grid, Qt.Key.Key_0)
    assert not grid.is_magnified
    assert grid.layout_in_use.first == 0
    assert grid.layout_in_use.side == fitting.side


def test_wheel_scrolls_what_is_magnified_and_the_bar_follows(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage(four_conversations(num_blocks=4000))
    area = view_of(stage).area
    grid = area.grid
    assert not area.bar.isVisible()
    turn_wheel(grid, 120, Qt.KeyboardModifier.ControlModifier)
    turn_wheel(grid, 120, Qt.KeyboardModifier.ControlModifier)
    assert area.bar.isVisible()
    turn_wheel(grid, -240, Qt.KeyboardModifier.NoModifier)
    first = grid.layout_in_use.first
    assert first > 0
    assert area.bar.value() == first // grid.layout_in_use.columns
    assert f"blocks {first:,}–" in area.more.text()
    area.bar.setValue(area.bar.maximum())
    assert grid.layout_in_use.end == 4000


def turn_wheel(grid: object, delta: int, modifiers: Qt.KeyboardModifier) -> None:
    middle = QPointF(50, 20)
    event = QWheelEvent(
        middle, middle, QPoint(), QPoint(0, delta), Qt.MouseButton.NoButton, modifiers,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(grid, event)


def test_magnified_cells_are_drawn_as_they_change(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage(four_conversations(num_blocks=4000))
    grid = view_of(stage).grid
    grid.zoom_in()
    grid.zoom_in()
    grid.scroll_to_row(1)
    stage.scripted.finish("r1")
    stage.scripted.admit("r9", "c1", range(7000, 7900))
    stage.deliver()
    qtbot.waitUntil(lambda: stage.panel.model.last_seq == stage.scripted.log.seq)
    by_changes = np.array(grid._picture._pixels)
    grid.redraw()
    assert np.array_equal(by_changes, grid._picture._pixels)


# --- the table ---


def test_table_lists_the_blocks_in_words(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage()
    area = view_of(stage).area
    area.grid.move_cursor(3)
    area.table_button.click()
    listed = area.block_list
    assert listed.model.rowCount() == stage.scripted.pool.num_used
    row = listed.table.currentIndex().row()
    assert int(listed.model.blocks[row]) == 3
    cells = [listed.model.index(row, column).data() for column in range(5)]
    assert cells[:2] == ["3", "shared, 4 references"]
    assert cells[2].startswith("1 First, 2 Second")
    assert cells[3] == "48–63"
    reader = listed.model.index(row, 0).data(Qt.ItemDataRole.AccessibleTextRole)
    assert reader.startswith("Block 3: shared, 4 references")
    assert "Block 3: shared" in texts_of(stage)


def test_table_shows_what_is_chosen_and_follows_the_pool(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    area = view_of(stage).area
    area.table_button.click()
    listed = area.block_list
    listed.filter_box.setCurrentIndex(listed.filter_box.findData("shared"))
    assert listed.model.rowCount() == 12
    listed.filter_box.setCurrentIndex(listed.filter_box.findData("cached"))
    assert listed.model.rowCount() == 0
    stage.scripted.finish("r1")
    stage.deliver()
    qtbot.waitUntil(lambda: listed.model.rowCount() == stage.scripted.pool.num_cached > 0)
    listed.filter_box.setCurrentIndex(listed.filter_box.findData("all"))
    assert listed.model.rowCount() == 512


# --- a block's text ---


def test_text_of_the_block_pointed_at_is_asked_for_once_and_shown(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    grid = view_of(stage).grid
    for block in (1, 2, 3):
        grid.move_cursor(block)
    qtbot.waitUntil(lambda: any(isinstance(c, BlockText) for c in stage.commands))
    asked = [c for c in stage.commands if isinstance(c, BlockText)]
    assert [c.block_id for c in asked] == [3]
    reply = BlockTextReady(asked[0].command_id, 3, "Why <b>so</b>\nsalty?", (1, 2), 48, ("c1",))
    stage.client.post(reply)
    qtbot.waitUntil(lambda: "“Why <b>so</b>⏎salty?”" in texts_of(stage))
    assert "salty?" in grid.accessibleDescription()
    grid.move_cursor(500)
    assert "salty" not in texts_of(stage)
    grid.move_cursor(3)
    assert "salty" in texts_of(stage)
    assert sum(isinstance(c, BlockText) for c in stage.commands) == 1


def test_a_free_block_has_no_text_to_ask_for(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage()
    view_of(stage).grid.move_cursor(511)
    qtbot.wait(200)
    assert not any(isinstance(c, BlockText) for c in stage.commands)


# --- what a draft would do ---


def test_draft_that_evicts_says_so_and_marks_the_blocks(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    grid = view_of(stage).grid
    before = grid.grab().toImage()
    gauge = Gauge(
        "text", 2048, 10, 300, 192, blocks_needed=19, blocks_shared=12, blocks_evicted=2,
        blocks_short=1, evicted_ids=("c2",), evicted_blocks=(20, 21),
    )  # fmt: skip
    stage.session.gauges.known["c1"] = gauge
    stage.session.gauges.changed.emit("c1")
    said = texts_of(stage)
    assert "19 blocks, 12 of them already there." in said
    assert "2 cached blocks would be evicted (struck through): tokens of 2 Second." in said
    assert "1 block short" in said
    assert grid.grab().toImage() != before
    stage.session.gauges.known.clear()
    stage.session.gauges.changed.emit("c1")
    assert "already there" not in texts_of(stage)
    qtbot.wait(60)
    assert grid._leaving == frozenset()


# --- screen readers and keyboard ---


def test_screen_reader_finds_the_cells(qtbot: QtBot, make_stage: MakeStage) -> None:
    grid = view_of(make_stage()).grid
    reader = QAccessible.queryAccessibleInterface(grid)
    assert reader.text(QAccessible.Text.Name) == "Block pool"
    assert reader.childCount() == 512
    cell = reader.child(3)
    assert cell.text(QAccessible.Text.Name) == "Block 3: shared, 4 references"
    assert "Tokens 48 to 63" in cell.text(QAccessible.Text.Description)
    assert cell.rect().center() == grid.mapToGlobal(grid.rect_of(3).toAlignedRect().center())
    found = reader.childAt(cell.rect().center().x(), cell.rect().center().y())
    assert reader.indexOfChild(found) == 3
    grid.setFocus()
    grid.move_cursor(7)
    assert reader.indexOfChild(reader.focusChild()) == 7
    assert reader.child(512) is None


def test_block_tables_are_read_with_the_keyboard(qtbot: QtBot, make_stage: MakeStage) -> None:
    stage = make_stage()
    tables = view_of(stage).tables
    tables.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(tables, Qt.Key.Key_Down)
    qtbot.keyClick(tables, Qt.Key.Key_Right)
    second = stage.scripted.requests["r2"].block_table
    assert f"Block {second[1]}:" in texts_of(stage)
    assert tables.accessibleDescription().startswith("Second, ")
    qtbot.keyClick(tables, Qt.Key.Key_End)
    assert f"Block {second[-1]}: private" in tables.accessibleDescription()


# --- what is gone of a finished conversation ---


def test_a_block_that_is_gone_is_not_taken_for_what_lies_there_now(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    tables = view_of(stage).tables
    left = stage.scripted.requests["r3"].block_table[-1]
    stage.scripted.finish("r3")
    assert stage.scripted.admit("r9", "c1", range(9000, 9016))
    assert stage.scripted.requests["r9"].block_table == [left]
    stage.deliver()
    qtbot.waitUntil(lambda: any(not strip.is_live for strip in tables.strips))
    place = next(i for i, strip in enumerate(tables.strips) if not strip.is_live)
    last = len(tables.strips[place].blocks) - 1
    assert tables.strips[place].blocks[last] == -1
    row = tables._rows[place]
    center = tables._cell_rect(row, last).center()
    assert tables.block_at(center) == -1
    assert tables._lit_rects(row) == []
    view_of(stage).light(frozenset({left}))
    assert tables._lit_rects(row) == []
    qtbot.mouseClick(tables, Qt.MouseButton.LeftButton, pos=center.toPoint())
    assert f"Logical block {last} is gone" in tables.accessibleDescription()
    assert f"Block {left}" not in texts_of(stage)


class PaintedRegion(QObject):
    """What a widget was asked to paint."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.region = QRegion()
        widget.installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent):
            self.region = self.region.united(event.region())
        return False


def test_a_line_between_common_and_own_blocks_leaves_nothing_behind(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    strips = view_of(stage).tables.strips
    tables = BlockTables(stage.theme.theme, str, Meter())
    qtbot.addWidget(tables)
    tables.resize(344, 400)
    tables.set_strips(strips)
    tables.show()
    row = tables._rows[0]
    line = tables._cell_rect(row, row.strip.shared_blocks)
    below = QPoint(round(line.left()), math.ceil(line.bottom()) + 2)
    qtbot.waitExposed(tables)
    qtbot.wait(50)
    painted = PaintedRegion(tables)
    own = replace(strips[0], codes=np.full(len(strips[0].blocks), strips[0].codes[-1]))
    tables.set_strips([replace(own, shared_blocks=0), *strips[1:]])
    qtbot.waitUntil(lambda: painted.region.contains(line.center().toPoint()))
    assert painted.region.contains(below)
    assert not painted.region.contains(QPoint(5, 390))


def test_cells_stay_where_they_are_while_they_are_pointed_at(
    qtbot: QtBot, make_stage: MakeStage
) -> None:
    stage = make_stage()
    view = view_of(stage)
    heights = []
    for block in (0, 500, -1, 12, -1):
        view.grid.block_hovered.emit(block)
        qtbot.wait(0)
        view.show_block_text(block, "What stands in it." if block >= 0 else "")
        QApplication.processEvents()
        heights.append(view.grid.height())
    assert len(set(heights)) == 1
    view.grid.block_hovered.emit(-1)
    view.resize(view.width() + 200, view.height())
    QApplication.processEvents()
    assert view.grid.height() >= heights[0]
