"""The pool as a grid of cells, with hover, keyboard cursor and a magnifier."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QToolTip, QWidget

from app.cache_panel.grid_magnifier import GridMagnifier
from app.cache_panel.looks import Looks
from app.cache_panel.meter import Meter
from app.cache_panel.parts import as_tool_tip
from app.theme import Theme

_DRAGS = Qt.MouseButton.LeftButton | Qt.MouseButton.MiddleButton
_KEY_STEPS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, -1),
    Qt.Key.Key_Down: (0, 1),
    Qt.Key.Key_PageUp: (0, -8),
    Qt.Key.Key_PageDown: (0, 8),
}


class PoolGrid(GridMagnifier):
    """Shows ``model``; the owner calls ``refresh`` with what changed.

    ``describe(block_id)`` gives the plain text of a cell's tool tip. ``block_hovered(block_id)``
    follows the mouse and the keyboard cursor; -1 when neither is on a cell. Ctrl and the wheel, or
    plus, minus and 0, magnify; the wheel alone and dragging scroll what is magnified.
    """

    block_hovered = Signal(int)
    cursor_moved = Signal()

    def __init__(
        self, looks: Looks, theme: Theme, describe: Callable[[int], str], meter: Meter,
        parent: QWidget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(looks, theme, meter, parent)
        self.describe = describe
        self.access: object = None
        self._drag_from: tuple[float, int] | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def _point_at(self, block_id: int) -> None:
        if block_id != self._pointed:
            self._pointed = block_id
            self.block_hovered.emit(block_id)
            self.update()

    def move_cursor(self, block_id: int) -> None:
        """Puts the keyboard cursor on a block."""
        if self._picture is not None:
            self._cursor = max(0, min(block_id, self._last_block()))
            self.show_block(self._cursor)
            self.block_hovered.emit(self._cursor)
            self.cursor_moved.emit()
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._drag_from is not None and event.buttons() & _DRAGS and self._picture is not None:
            y, row = self._drag_from
            height = self._picture.layout.row_height / self.devicePixelRatioF()
            self.scroll_to_row(row - round((event.position().y() - y) / height))
        self._point_at(self.block_at(event.position()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        block = self.block_at(event.position())
        if block >= 0:
            self.move_cursor(block)
        self._drag_from = event.position().y(), self._first_row
        super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._drag_from = None
        super().mouseReleaseEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._point_at(-1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        layout = self.layout_in_use
        key = Qt.Key(event.key())
        # Plus needs Shift on many keyboards.
        free = Qt.KeyboardModifier.KeypadModifier | Qt.KeyboardModifier.ShiftModifier
        if layout is None or event.modifiers() & ~free:
            super().keyPressEvent(event)
        elif key in _KEY_STEPS:
            columns, rows = _KEY_STEPS[key]
            cell = columns + rows * layout.columns
            self.move_cursor(self._cursor + cell * layout.blocks_per_cell)
        elif key == Qt.Key.Key_Home:
            self.move_cursor(0)
        elif key == Qt.Key.Key_End:
            self.move_cursor(self._last_block())
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom_in(self._cursor)
        elif key == Qt.Key.Key_Minus:
            self.zoom_out(self._cursor)
        elif key == Qt.Key.Key_0:
            self.zoom_to_fit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if self._model is not None:
            self.block_hovered.emit(self._cursor)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.block_hovered.emit(self._pointed)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            block = self.block_at(QPointF(event.pos()))
            if block >= 0 and self._model is not None:
                QToolTip.showText(event.globalPos(), as_tool_tip(self.describe(block)), self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        notches = event.angleDelta().y() / 120
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            block = self.block_at(event.position())
            if notches:
                (self.zoom_in if notches > 0 else self.zoom_out)(block)
        elif self._side is not None:
            first, seen, _total = self.rows_in_view
            self.scroll_to_row(first - round(notches * max(1, seen // 4)))
        else:
            event.ignore()
