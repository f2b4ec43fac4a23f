"""The grid with what belongs to it: a magnifier, a scroll bar, and a table instead of it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QHBoxLayout,
    QScrollBar,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel import grid_access, words
from app.cache_panel.block_list import BlockList
from app.cache_panel.grid_canvas import NO_LIMIT
from app.cache_panel.names import Names
from app.cache_panel.parts import plain_label, set_text
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.pool_model import PoolModel
from app.i18n import tr

_GAP = 4


class GridArea(QWidget):
    """``grid`` or ``block_list``, as was chosen; ``block_hovered`` of the one that is seen.

    ``view_changed()``: ``most_height`` may be another one.
    """

    block_hovered = Signal(int)
    view_changed = Signal()

    def __init__(self, grid: PoolGrid, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.grid = grid
        self._names = names
        self._block_list: BlockList | None = None
        self.bar = QScrollBar(Qt.Orientation.Vertical)
        self.bar.setAccessibleName(tr("Rows of the block pool"))
        self.bar.hide()
        self.more = plain_label(tone="muted")
        self.zoom_out_button = _button("−", tr("Smaller cells"))
        self.zoom_in_button = _button("+", tr("Larger cells"))
        self.fit_button = _button(tr("Fit"), tr("Show as much of the pool as fits"))
        self.table_button = _button(tr("Table"), tr("Show the blocks as a table"))
        self.table_button.setCheckable(True)
        self._pool: PoolModel | None = None
        self._stack = QStackedWidget()
        self._lay_out()
        self.zoom_in_button.clicked.connect(lambda: grid.zoom_in(grid.cursor_block))
        self.zoom_out_button.clicked.connect(lambda: grid.zoom_out(grid.cursor_block))
        self.fit_button.clicked.connect(grid.zoom_to_fit)
        self.table_button.toggled.connect(self._on_table_toggled)
        self.bar.valueChanged.connect(grid.scroll_to_row)
        grid.view_changed.connect(self._on_grid_view_changed)
        grid.block_hovered.connect(self.block_hovered)
        grid.cursor_moved.connect(lambda: grid_access.tell_cursor(grid))
        grid_access.install()
        self.set_model(None)

    def _lay_out(self) -> None:
        inner = QWidget()
        beside = QHBoxLayout(inner)
        beside.setContentsMargins(0, 0, 0, 0)
        beside.setSpacing(2)
        beside.addWidget(self.grid, 1)
        beside.addWidget(self.bar)
        self._stack.addWidget(inner)
        self.row = QWidget()
        row = QHBoxLayout(self.row)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        for button in self.buttons:
            row.addWidget(button)
        row.addWidget(self.more, 1, Qt.AlignmentFlag.AlignRight)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(_GAP)
        layout.addWidget(self._stack, 1)
        layout.addWidget(self.row)

    @property
    def block_list(self) -> BlockList:
        """The table, which is made when it is first wanted: few need it."""
        if self._block_list is None:
            self._block_list = BlockList(self._names)
            self._block_list.block_chosen.connect(self.block_hovered)
            self._stack.addWidget(self._block_list)
        return self._block_list

    @property
    def buttons(self) -> list[QToolButton]:
        return [self.zoom_out_button, self.zoom_in_button, self.fit_button, self.table_button]

    @property
    def is_table(self) -> bool:
        """Whether the table is seen instead of the grid."""
        return self.table_button.isChecked()

    @property
    def most_height(self) -> int:
        """More than this would stay empty."""
        if self._pool is None or self.is_table or self.grid.is_magnified:
            return NO_LIMIT
        below = self.row.sizeHint().height() + _GAP if self.row.isVisibleTo(self) else 0
        return min(NO_LIMIT, self.grid.most_height + below)

    def set_model(self, pool: PoolModel | None) -> None:
        """Shows another pool, or none."""
        self._pool = pool
        self.grid.set_model(pool)
        if self._block_list is not None:
            self._block_list.show_pool(pool)
        for button in self.buttons:
            button.setEnabled(pool is not None)
        self._on_grid_view_changed()

    def show_words(self) -> None:
        """The table as things are now."""
        if self.is_table:
            self.block_list.show_pool(self._pool)

    def _on_table_toggled(self, is_table: bool) -> None:
        if is_table:
            self._stack.setCurrentWidget(self.block_list)
            self.block_list.show_pool(self._pool)
            self.block_list.go_to(self.grid.cursor_block)
        else:
            self._stack.setCurrentIndex(0)
        self._on_grid_view_changed()

    def _on_grid_view_changed(self) -> None:
        grid = self.grid
        first, seen, total = grid.rows_in_view
        blocked = self.bar.blockSignals(True)
        self.bar.setRange(0, max(0, total - seen))
        self.bar.setPageStep(seen)
        self.bar.setValue(first)
        self.bar.blockSignals(blocked)
        self.bar.setVisible(grid.is_magnified and total > seen)
        has_cells = self._pool is not None and not self.is_table
        self.zoom_in_button.setEnabled(has_cells)
        self.zoom_out_button.setEnabled(has_cells and grid.is_magnified)
        self.fit_button.setEnabled(has_cells and grid.is_magnified)
        layout = grid.layout_in_use
        if self.is_table or layout is None:
            text = ""
        elif grid.is_magnified:
            text = tr(
                "blocks {first}–{last} of {total}",
                first=f"{layout.first:,}",
                last=f"{layout.end - 1:,}",
                total=f"{self._pool.num_blocks if self._pool else 0:,}",
            )
        else:
            text = words.more_free(grid.num_hidden)
        set_text(self.more, text)
        self.view_changed.emit()


def _button(text: str, name: str) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setToolTip(name)
    button.setAccessibleName(name)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button
