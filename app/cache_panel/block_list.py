"""The pool as a table, one row a block: everything that the grid says with colours, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QItemSelectionModel, QModelIndex, QSize, Qt, Signal
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHeaderView,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel import words
from app.cache_panel.event_tape import Index
from app.cache_panel.names import Names
from app.cache_panel.pool_model import Array, PoolModel
from app.i18n import tr
from app.theme import number_font
from engine.api.snapshot import CACHED, USED

BLOCK, STATE, CONVERSATIONS, TOKENS, STEP = range(5)
IN_USE, SHARED, PINNED, KEPT, ALL = "used", "shared", "pinned", "cached", "all"


class BlockListModel(QAbstractTableModel):
    """Blocks in address order; words are made only for rows that are looked at."""

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = names
        self._pool: PoolModel | None = None
        self.blocks: Array = np.zeros(0, np.int64)

    def show_blocks(self, pool: PoolModel | None, blocks: Array) -> None:
        """Shows these blocks of a pool."""
        if pool is self._pool and np.array_equal(blocks, self.blocks):
            if len(blocks):
                self.dataChanged.emit(self.index(0, 0), self.index(len(blocks) - 1, STEP))
            return
        self.beginResetModel()
        self._pool, self.blocks = pool, blocks
        self.endResetModel()

    def row_of(self, block_id: int) -> int:
        """The block's row, or -1."""
        row = int(np.searchsorted(self.blocks, block_id))
        return row if row < len(self.blocks) and self.blocks[row] == block_id else -1

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        return 0 if parent.isValid() else len(self.blocks)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        return 0 if parent.isValid() else STEP + 1

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return [tr("Block"), tr("State"), tr("Conversations"), tr("Tokens"), tr("Written in")][
                section
            ]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        pool = self._pool
        if not index.isValid() or pool is None:
            return None
        block = int(self.blocks[index.row()])
        if role == Qt.ItemDataRole.FontRole:
            return number_font()
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return ", ".join(words.block(pool, self._names, block))
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(pool, block, index.column())
        return None

    def _text(self, pool: PoolModel, block: int, column: int) -> str:
        match column:
            case 0:
                return f"{block:,}"
            case 1:
                return words.state(pool, block)
            case 2:
                return words.whose(pool, self._names, block)
            case 3:
                return words.token_range(pool, block)
        step = int(pool.last_step[block])
        return tr("step {step}", step=f"{step:,}") if step >= 0 else ""


class BlockList(QWidget):
    """The table with a choice of what it shows; ``block_chosen`` follows the row in front."""

    block_chosen = Signal(int)

    def __init__(self, names: Names, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._pool: PoolModel | None = None
        self._wanted = -1
        self.model = BlockListModel(names, self)
        self.filter_box = QComboBox()
        self.filter_box.setAccessibleName(tr("Blocks to list"))
        self.filter_box.view().setAccessibleName(tr("Blocks to list"))
        for key, text in _filters():
            self.filter_box.addItem(text, key)
        self.filter_box.currentIndexChanged.connect(self._on_filter_changed)
        self.table = QTableView()
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Blocks of the pool"))
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setTabKeyNavigation(False)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 6)
        header = self.table.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        for column, characters in ((BLOCK, 7), (STATE, 18), (CONVERSATIONS, 16), (TOKENS, 12)):
            self.table.setColumnWidth(column, characters * self.fontMetrics().averageCharWidth())
        self.table.selectionModel().currentRowChanged.connect(self._on_current_row_changed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.filter_box)
        layout.addWidget(self.table, 1)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 64)

    def sizeHint(self) -> QSize:
        return QSize(340, 260)

    def show_pool(self, pool: PoolModel | None) -> None:
        """Lists the blocks that are wanted, as they are now; nothing while it cannot be seen."""
        self._pool = pool
        if pool is None:
            self.model.show_blocks(None, np.zeros(0, np.int64))
        elif self.isVisible():
            chosen = _chosen(pool, str(self.filter_box.currentData()))
            if not np.array_equal(chosen, self.model.blocks):
                self.model.show_blocks(pool, chosen)
                self.go_to(self._wanted)
            else:
                self.model.show_blocks(pool, chosen)

    def go_to(self, block_id: int) -> None:
        """Puts the current row on a block, if it is listed."""
        self._wanted = block_id
        row = self.model.row_of(block_id) if block_id >= 0 else -1
        if row >= 0:
            index = self.model.index(row, 0)
            flags = QItemSelectionModel.SelectionFlag
            self.table.selectionModel().setCurrentIndex(
                index, flags.ClearAndSelect | flags.Rows
            )  # fmt: skip

    def _on_current_row_changed(self, index: QModelIndex, _before: QModelIndex) -> None:
        if index.isValid():
            self._wanted = int(self.model.blocks[index.row()])
            self.block_chosen.emit(self._wanted)

    def _on_filter_changed(self) -> None:
        self.show_pool(self._pool)


def _filters() -> list[tuple[str, str]]:
    return [
        (IN_USE, tr("Blocks in use")),
        (SHARED, tr("Shared blocks")),
        (PINNED, tr("Pinned blocks")),
        (KEPT, tr("Cached blocks")),
        (ALL, tr("All blocks")),
    ]


def _chosen(pool: PoolModel, key: str) -> Array:
    """Ids of the blocks that belong to a filter, ascending."""
    if key == ALL:
        return np.arange(pool.num_blocks)
    used = pool.state == USED
    mask = {
        IN_USE: used,
        SHARED: used & (pool.ref_count - pool.pins > 1),
        PINNED: pool.pins > 0,
        KEPT: pool.state == CACHED,
    }[key]
    found: Array = np.flatnonzero(mask)
    return found
