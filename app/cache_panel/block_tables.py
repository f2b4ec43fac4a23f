"""Block tables as strips, to point at and to read with the keyboard."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPointF, QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QToolTip, QWidget

from app.cache_panel import words
from app.cache_panel.meter import Meter
from app.cache_panel.parts import as_tool_tip
from app.cache_panel.strip_canvas import LABEL_HEIGHT, StripCanvas, label_of
from app.theme import Theme


class BlockTables(StripCanvas):
    """``block_hovered(block_id)`` follows mouse and keyboard, -1 on none.

    With the keyboard, Up and Down go from table to table at the same logical block, Left and Right
    within one; a click puts the cursor on a cell; ``cursor_moved(rect)`` says where it is.
    ``describe(block_id)`` gives the plain text of a tool tip.
    """

    block_hovered = Signal(int)
    cursor_moved = Signal(QRect)

    def __init__(
        self,
        theme: Theme,
        describe: Callable[[int], str],
        meter: Meter,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(theme, meter, parent)
        self._describe = describe
        self._cursor = (0, 0)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def place_at(self, point: QPointF) -> tuple[int, int] | None:
        """(row, logical block) under a point; None between the cells."""
        ratio = self.devicePixelRatioF()
        for number, row in enumerate(self._rows):
            y = point.y() - row.top - LABEL_HEIGHT
            index = row.picture.layout.block_at(point.x() * ratio, y * ratio)
            if index >= 0:
                return number, index
        return None

    def block_at(self, point: QPointF) -> int:
        """The block under a point; -1 for none, and for an entry whose block is gone."""
        place = self.place_at(point)
        return -1 if place is None else self._rows[place[0]].strip.blocks[place[1]]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        row, index = self._cursor
        moves = {
            Qt.Key.Key_Up: (-1, 0), Qt.Key.Key_Down: (1, 0),
            Qt.Key.Key_Left: (0, -1), Qt.Key.Key_Right: (0, 1),
            Qt.Key.Key_Home: (0, -index), Qt.Key.Key_End: (0, 10**9),
        }  # fmt: skip
        if key not in moves or not self._rows:
            super().keyPressEvent(event)
            return
        down, right = moves[Qt.Key(key)]
        self._move_cursor(row + down, index + right)

    def _move_cursor(self, row: int, index: int) -> None:
        row = max(0, min(row, len(self._rows) - 1))
        strip = self._rows[row].strip
        index = max(0, min(index, len(strip.blocks) - 1))
        self._cursor = (row, index)
        self.setAccessibleDescription(
            ", ".join([*label_of(strip)[1:], *self._words_at(row, index).split("\n")])
        )
        self.block_hovered.emit(strip.blocks[index])
        self.cursor_moved.emit(self._cell_rect(self._rows[row], index).toAlignedRect())
        self.update()

    def _words_at(self, row: int, index: int) -> str:
        block = self._rows[row].strip.blocks[index]
        return self._describe(block) if block >= 0 else words.gone(index)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        by_key = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        if self._rows and event.reason() in by_key:
            self._move_cursor(*self._cursor)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.block_hovered.emit(-1)
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        place = self.place_at(event.position())
        if place is not None:
            self._move_cursor(*place)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.block_hovered.emit(self.block_at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        self.block_hovered.emit(-1)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            place = self.place_at(QPointF(event.pos()))
            if place is not None:
                QToolTip.showText(event.globalPos(), as_tool_tip(self._words_at(*place)), self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def paint_over(self, painter: QPainter) -> None:
        row, index = self._cursor
        if not self.hasFocus() or row >= len(self._rows):
            return
        index = min(index, len(self._rows[row].strip.blocks) - 1)
        cell = self._cell_rect(self._rows[row], index)
        painter.setPen(QPen(self._theme.color("text"), 3.0))
        painter.drawRect(cell)
        painter.setPen(QPen(self._theme.color("accent"), 1.5))
        painter.drawRect(cell)
