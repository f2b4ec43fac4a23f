"""The tree of branches, drawn in the colours of their blocks; the common trunk once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QEvent, QLineF, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.cache_panel import words
from app.cache_panel.branches import BranchRow
from app.cache_panel.grid_image import GridImage
from app.cache_panel.grid_layout import GridLayout
from app.cache_panel.parts import as_tool_tip
from app.cache_panel.tiles import TileAtlas
from app.i18n import tr, tr_n
from app.theme import Theme

LABEL_HEIGHT, ROW_GAP, SWATCH, INDENT = 20, 10, 14, 12
MIN_SIDE, MAX_SIDE = 4, 16
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(slots=True)
class _Drawn:
    row: BranchRow
    top: int
    picture: GridImage


class BranchView(QWidget):
    """Paints rows; ``block_hovered(block_id)`` follows mouse and keyboard, -1 for none."""

    block_hovered = Signal(int)

    def __init__(
        self, theme: Theme, describe: Callable[[int], str], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._describe = describe
        self._rows: list[BranchRow] = []
        self._drawn: list[_Drawn] = []
        self._atlas: TileAtlas | None = None
        self._side = MAX_SIDE
        self._cursor = (0, 0)
        self._pointed = -1
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Branches and their blocks"))

    @property
    def rows(self) -> list[BranchRow]:
        """What is shown."""
        return self._rows

    def sizeHint(self) -> QSize:
        height = sum(self._height_of(row) for row in self._rows)
        return QSize(340, max(height, 2 * LABEL_HEIGHT))

    def minimumSizeHint(self) -> QSize:
        longest = max((len(row.blocks) for row in self._rows), default=0)
        return QSize(max(120, longest * MIN_SIDE + INDENT), self.sizeHint().height())

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        self._atlas = None
        self._draw()

    def show_rows(self, rows: list[BranchRow]) -> None:
        """Shows these; does nothing if they look the same."""
        if len(rows) == len(self._rows) and all(map(_is_same, rows, self._rows)):
            return
        self._rows = rows
        self._cursor = (min(self._cursor[0], max(0, len(rows) - 1)), self._cursor[1])
        self.setAccessibleDescription("\n".join(row_words(rows, i) for i in range(len(rows))))
        self._draw()
        self.updateGeometry()

    # --- drawing ---

    def _height_of(self, row: BranchRow) -> int:
        ratio = self.devicePixelRatioF()
        return LABEL_HEIGHT + math.ceil(self._side / ratio) + ROW_GAP

    def _draw(self) -> None:
        ratio = self.devicePixelRatioF()
        longest = max((len(row.blocks) for row in self._rows), default=1)
        room = int((self.width() - INDENT) * ratio)
        most, least = int(MAX_SIDE * ratio), int(MIN_SIDE * ratio)
        self._side = max(least, min(most, room // max(1, longest)))
        atlas = self._atlas
        if atlas is None or (atlas.side, atlas.ratio) != (self._side, ratio):
            atlas = self._atlas = TileAtlas(self._theme, self._side, ratio)
        self._drawn = []
        top = 0
        for row in self._rows:
            own = row.codes[row.start :]
            count = max(1, len(own))
            picture = GridImage(GridLayout(count, self._side, count, self._side), atlas)
            if len(own):
                picture.draw_all(own)
            self._drawn.append(_Drawn(row, top, picture))
            top += self._height_of(row)
        self.update()

    def _cell(self, drawn: _Drawn, index: int) -> QRectF:
        side = self._side / self.devicePixelRatioF()
        x = INDENT + index * side
        return QRectF(x, drawn.top + LABEL_HEIGHT, side - 1, side - 1)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.color("background"))
        if not self._drawn:
            painter.setPen(self._theme.color("muted"))
            painter.drawText(self.rect(), _LEFT, tr("No branch of this conversation is computed."))
        for drawn in self._drawn:
            self._paint_line(painter, drawn)
        for index, drawn in enumerate(self._drawn):
            self._paint_label(painter, index, drawn)
            if len(drawn.row.codes) > drawn.row.start:
                cell = self._cell(drawn, drawn.row.start)
                painter.drawImage(cell.topLeft(), drawn.picture.image)
        self._paint_marks(painter)
        painter.end()

    def _paint_line(self, painter: QPainter, drawn: _Drawn) -> None:
        """From the last common block of the parent down to the first own one."""
        row = drawn.row
        if row.parent < 0:
            return
        parent = self._drawn[row.parent]
        above = self._cell(parent, row.start - 1)
        x = round(above.center().x()) + 0.5
        y = self._cell(drawn, row.start).center().y()
        painter.setPen(QPen(self._theme.color("strong_line"), 2))
        painter.drawLine(QLineF(x, above.bottom(), x, y))
        painter.drawLine(QLineF(x, y, self._cell(drawn, row.start).left(), y))

    def _paint_label(self, painter: QPainter, index: int, drawn: _Drawn) -> None:
        theme, row = self._theme, drawn.row
        hue = theme.hue(row.number) if row.number else theme.color("muted")
        swatch = QRectF(INDENT, drawn.top + 1, SWATCH, SWATCH)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(hue)
        painter.drawRoundedRect(swatch, 4, 4)
        font = self.font()
        font.setPointSizeF(9.0)
        painter.setFont(font)
        if row.number:
            painter.setPen(theme.on(hue))
            painter.drawText(swatch, Qt.AlignmentFlag.AlignCenter, str(row.number))
        right = figures_words(row)
        line = QRect(INDENT + SWATCH + 6, drawn.top, self.width() - INDENT - SWATCH - 6, SWATCH + 2)
        room = line.width() - painter.fontMetrics().horizontalAdvance(right) - 12
        painter.setPen(theme.color("text" if row.branch.is_shown else "muted"))
        title = row.branch.label or tr("New conversation")
        elided = painter.fontMetrics().elidedText(title, Qt.TextElideMode.ElideRight, room)
        # A line from a branch above to one below must not run through the words.
        behind = QRect(
            line.topLeft(), QSize(painter.fontMetrics().horizontalAdvance(elided) + 2, 16)
        )
        painter.fillRect(behind.adjusted(-2, 0, 2, 0), theme.color("background"))
        painter.drawText(line, _LEFT, elided)
        painter.setPen(theme.color("muted"))
        painter.drawText(line, _RIGHT, right)
        painter.restore()

    def _paint_marks(self, painter: QPainter) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self._pointed >= 0:
            painter.setPen(QPen(self._theme.color("accent"), 2))
            for drawn in self._drawn:
                for index in range(drawn.row.start, len(drawn.row.blocks)):
                    if drawn.row.blocks[index] == self._pointed:
                        painter.drawRect(self._cell(drawn, index))
        if self.hasFocus() and self._drawn:
            row, index = self._cursor
            drawn = self._drawn[row]
            painter.setPen(QPen(self._theme.color("text"), 3))
            painter.drawRect(self._cell(drawn, max(index, drawn.row.start)))
            painter.setPen(QPen(self._theme.color("accent"), 1.5))
            painter.drawRect(self._cell(drawn, max(index, drawn.row.start)))

    # --- pointing ---

    def place_at(self, point: QPointF) -> tuple[int, int] | None:
        """(row, logical block) under a point; None between the cells."""
        for number, drawn in enumerate(self._drawn):
            inside = drawn.top + LABEL_HEIGHT <= point.y() < drawn.top + self._height_of(drawn.row)
            if inside:
                side = self._side / self.devicePixelRatioF()
                index = int((point.x() - INDENT) // side)
                own = drawn.row.start <= index < len(drawn.row.blocks)
                return (number, index) if own else None
        return None

    def _point_at(self, block_id: int) -> None:
        if block_id != self._pointed:
            self._pointed = block_id
            self.block_hovered.emit(block_id)
            self.update()

    def _block(self, place: tuple[int, int] | None) -> int:
        return -1 if place is None else self._rows[place[0]].blocks[place[1]]

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point_at(self._block(self.place_at(event.position())))

    def leaveEvent(self, event: QEvent) -> None:
        self._point_at(-1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row, index = self._cursor
        moves = {
            Qt.Key.Key_Left: (0, -1),
            Qt.Key.Key_Right: (0, 1),
            Qt.Key.Key_Up: (-1, 0),
            Qt.Key.Key_Down: (1, 0),
            Qt.Key.Key_Home: (0, -index),
            Qt.Key.Key_End: (0, 1 << 30),
        }
        move = moves.get(Qt.Key(event.key()))
        if move is None or not self._rows:
            super().keyPressEvent(event)
            return
        row = min(max(row + move[0], 0), len(self._rows) - 1)
        found = self._rows[row]
        index = min(max(index + move[1], found.start), len(found.blocks) - 1)
        self._cursor = (row, max(index, 0))
        self._point_at(self._block(self._cursor))
        self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._point_at(-1)
        self.update()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            block = self._block(self.place_at(QPointF(event.pos())))
            if block >= 0:
                QToolTip.showText(event.globalPos(), as_tool_tip(self._describe(block)), self)
            else:
                QToolTip.hideText()
            return True
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self._draw()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._draw()


def _is_same(first: BranchRow, second: BranchRow) -> bool:
    return (
        (first.branch, first.number, first.blocks, first.parent, first.start)
        == (second.branch, second.number, second.blocks, second.parent, second.start)
    ) and np.array_equal(first.codes, second.codes)


def figures_words(row: BranchRow) -> str:
    """How many blocks a branch has, and how many are in the pool."""
    total = len(row.blocks)
    if row.num_kept == total:
        return words.blocks(total)
    kept = f"{row.num_kept:,}"
    return tr("{kept} of {blocks} in the pool", kept=kept, blocks=words.blocks(total))


def row_words(rows: list[BranchRow], index: int) -> str:
    """One branch for a screen reader."""
    row = rows[index]
    parts = [f"{row.number} {row.branch.label}".strip(), figures_words(row)]
    if row.parent >= 0:
        parts.append(
            tr_n(
                "shares its first block with branch {other}",
                "shares its first {n} blocks with branch {other}",
                row.start,
                other=f"{row.parent + 1}",
            )
        )
    return ", ".join(parts)
