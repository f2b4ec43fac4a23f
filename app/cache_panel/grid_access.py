"""The grid for screen readers: a list with one child for each cell that is shown."""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import QObject, QPoint, QRect
from PySide6.QtGui import QAccessible, QAccessibleEvent, QAccessibleInterface
from PySide6.QtWidgets import QAccessibleWidget

from app.cache_panel.pool_grid import PoolGrid
from app.overrides import guarded
from app.widgets.item_access import ItemAccess


class GridAccess(QAccessibleWidget):
    """Children stand in address order; the one under the keyboard cursor has the focus."""

    def __init__(self, grid: PoolGrid) -> None:
        super().__init__(grid, QAccessible.Role.List, grid.accessibleName())
        self.grid = grid
        self._cells: dict[int, CellAccess] = {}

    def childCount(self) -> int:
        layout = self.grid.layout_in_use
        return 0 if layout is None else layout.num_cells

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        if not 0 <= index < self.childCount():
            return None
        cell = self._cells.get(index)
        if cell is None:
            # Kept for good: Qt may hold on to what it was given.
            cell = self._cells[index] = CellAccess(self, index)
        return cell

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        block = self.grid.block_at(self.grid.mapFromGlobal(QPoint(x, y)).toPointF())
        return None if block < 0 else self.child(self.index_of(block))

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        return child.index if isinstance(child, CellAccess) else -1

    def focusChild(self) -> QAccessibleInterface | None:  # type: ignore[override]
        return self.child(self.index_of(self.grid.cursor_block)) if self.grid.hasFocus() else None

    def index_of(self, block_id: int) -> int:
        """Which child shows the block, or -1."""
        layout = self.grid.layout_in_use
        if layout is None or not layout.first <= block_id < layout.end:
            return -1
        return (block_id - layout.first) // layout.blocks_per_cell


class CellAccess(ItemAccess):
    """One cell; it stands for the (first) block that the cell shows now."""

    def __init__(self, grid: GridAccess, index: int) -> None:
        super().__init__(grid)
        self.index = index
        self._grid = grid

    @property
    def block_id(self) -> int:
        layout = self._grid.grid.layout_in_use
        return -1 if layout is None else layout.first + self.index * layout.blocks_per_cell

    def isValid(self) -> bool:
        return 0 <= self.index < self._grid.childCount()

    def text(self, kind: QAccessible.Text) -> str:
        lines = self._grid.grid.describe(self.block_id).split("\n")
        if kind == QAccessible.Text.Name:
            return lines[0]
        return ", ".join(lines[1:]) if kind == QAccessible.Text.Description else ""

    def rect(self) -> QRect:
        grid = self._grid.grid
        rect = grid.rect_of(self.block_id).toAlignedRect()
        return QRect(grid.mapToGlobal(rect.topLeft()), rect.size())

    def state(self) -> QAccessible.State:
        state = QAccessible.State()
        state.focusable = True
        is_current = self.block_id == self._grid.grid.cursor_block
        state.focused = is_current and self._grid.grid.hasFocus()
        state.selected = is_current
        return state


@cache
def install() -> None:
    """Makes Qt ask here for the accessible interface of a grid."""
    QAccessible.installFactory(guarded(_make))


def _make(_class_name: str, widget: QObject) -> QAccessibleInterface | None:
    if not isinstance(widget, PoolGrid):
        return None
    access = GridAccess(widget)
    # The wrapper must live as long as Qt knows the interface.
    widget.access = access
    return access


def tell_cursor(grid: PoolGrid) -> None:
    """The keyboard cursor has moved: a screen reader reads the new cell."""
    if QAccessible.isActive():
        event = QAccessibleEvent(grid, QAccessible.Event.Focus)
        access = grid.access
        if isinstance(access, GridAccess):
            event.setChild(max(0, access.index_of(grid.cursor_block)))
        QAccessible.updateAccessibility(event)
