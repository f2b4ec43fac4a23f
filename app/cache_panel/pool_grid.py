"""The pool as a grid of cells, with hover, keyboard cursor and rims around written blocks."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QHelpEvent,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QStyle, QToolTip, QWidget

from app.cache_panel.grid_image import GridImage
from app.cache_panel.grid_layout import FLAT_SIDE, GridLayout
from app.cache_panel.looks import Looks
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.rims import Rims
from app.cache_panel.tiles import TileAtlas
from app.theme import Theme

MARGIN = 3
# A pool that does not fit in cells of 10 pixels shows its touched part, in cells of up to 18.
SIDES = (10, 18)
MIN_RIM_SIDE = 4
MAX_RIMS = 256

_KEY_STEPS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, -1),
    Qt.Key.Key_Down: (0, 1),
    Qt.Key.Key_PageUp: (0, -8),
    Qt.Key.Key_PageDown: (0, 8),
}


class PoolGrid(QWidget):
    """Shows ``model``; the owner calls ``refresh`` with what changed.

    ``describe(block_id)`` gives the plain text of a cell's tool tip. ``block_hovered(block_id)``
    follows the mouse and the keyboard cursor; -1 when neither is on a cell. While a large pool is
    mostly untouched, its first blocks alone are shown, in larger cells; see ``num_hidden``.
    """

    block_hovered = Signal(int)
    num_hidden_changed = Signal(int)

    def __init__(
        self, looks: Looks, theme: Theme, describe: Callable[[int], str],
        parent: QWidget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(parent)
        self._looks = looks
        self._theme = theme
        self._describe = describe
        self._model: PoolModel | None = None
        self._atlas: TileAtlas | None = None
        self._picture: GridImage | None = None
        self._rims = Rims(self)
        self._cursor = 0
        self._last_hidden = 0
        self._pointed = -1
        self._highlight: frozenset[int] = frozenset()
        self.setMouseTracking(True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        return QSize(340, 260)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 64)

    @property
    def layout_in_use(self) -> GridLayout | None:
        """How the cells stand now; None before the first model."""
        return None if self._picture is None else self._picture.layout

    @property
    def num_hidden(self) -> int:
        """Blocks behind the last cell: all free, and not shown while there is no need."""
        if self._model is None or self._picture is None:
            return 0
        return self._model.num_blocks - self._picture.layout.num_blocks

    @property
    def cursor_block(self) -> int:
        """The block under the keyboard cursor."""
        return self._cursor

    @property
    def is_animating(self) -> bool:
        """True while rims fade."""
        return self._rims.are_fading

    def set_model(self, model: PoolModel | None) -> None:
        """Shows another pool, or none."""
        self._model = model
        self.redraw()

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        self.redraw()

    def set_highlight(self, blocks: Collection[int]) -> None:
        """Outlines blocks, for instance those of a hovered table."""
        if self._highlight != frozenset(blocks):
            self._highlight = frozenset(blocks)
            self.update()

    def redraw(self) -> None:
        """Lays out and draws the whole pool again."""
        model, ratio = self._model, self.devicePixelRatioF()
        self._rims.end()
        if model is None:
            self._picture = None
        else:
            layout = GridLayout.fit(
                model.num_blocks,
                model.num_touched(),
                int((self.width() - 2 * MARGIN) * ratio),
                int((self.height() - 2 * MARGIN) * ratio),
                (int(SIDES[0] * ratio), int(SIDES[1] * ratio)),
            )
            self._picture = GridImage(layout, self._atlas_for(layout.side, ratio))
            self._picture.draw_all(self._looks.codes(model, slice(layout.num_blocks)))
            self._cursor = min(self._cursor, layout.num_blocks - 1)
        self.update()
        if self.num_hidden != self._last_hidden:
            self._last_hidden = self.num_hidden
            self.num_hidden_changed.emit(self.num_hidden)

    def _atlas_for(self, side: int, ratio: float) -> TileAtlas:
        atlas = self._atlas
        if atlas is None or (atlas.theme, atlas.side, atlas.ratio) != (self._theme, side, ratio):
            atlas = self._atlas = TileAtlas(self._theme, side, ratio)
        return atlas

    def refresh(self, dirty: Collection[int], written: Collection[int]) -> None:
        """Draws the cells of ``dirty`` blocks again and puts rims around ``written`` ones."""
        model, picture = self._model, self._picture
        if model is None or picture is None or not dirty:
            return
        blocks = np.fromiter(dirty, np.int64, len(dirty))
        if int(blocks.max()) >= picture.layout.num_blocks:
            self.redraw()
            return
        cells, members = picture.members(blocks)
        picture.draw(cells, self._looks.codes(model, members))
        if written and picture.layout.side >= MIN_RIM_SIDE * self.devicePixelRatioF():
            self._put_rims(written)
        rows = cells // picture.layout.columns
        self._update_rows(int(rows.min()), int(rows.max()))

    def _put_rims(self, written: Collection[int]) -> None:
        blocks = sorted(written)[:MAX_RIMS]
        fades = self.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration) > 0
        self._rims.put([self.rect_of(block).toAlignedRect() for block in blocks], fades=fades)

    def _update_rows(self, first: int, last: int) -> None:
        assert self._picture is not None
        height = self._picture.layout.row_height / self.devicePixelRatioF()
        top, bottom = int(first * height), int((last + 1) * height) + 2 * MARGIN + 1
        self.update(0, top, self.width(), bottom - top)

    # --- painting ---

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.color("background"))
        if self._picture is None:
            return
        painter.drawImage(MARGIN, MARGIN, self._picture.image)
        self._rims.paint(painter, self._theme.color("text"))
        accent = self._theme.color("accent")
        self._outline(painter, sorted(self._highlight), accent, 1.6)
        if self._pointed >= 0:
            self._outline(painter, [self._pointed], accent, 2.0)
        if self.hasFocus():
            self._outline(painter, [self._cursor], self._theme.color("text"), 3.0)
            self._outline(painter, [self._cursor], accent, 1.5)
        painter.end()

    def _outline(self, painter: QPainter, blocks: list[int], color: QColor, width: float) -> None:
        painter.setPen(QPen(color, width, j=Qt.PenJoinStyle.MiterJoin))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        shown = self._picture.layout.num_blocks if self._picture is not None else 0
        painter.drawRects([self.rect_of(block) for block in blocks if block < shown])

    def rect_of(self, block_id: int) -> QRectF:
        """The block's cell in logical pixels, without its gap."""
        assert self._picture is not None
        layout, ratio = self._picture.layout, self.devicePixelRatioF()
        x, y = layout.origin(block_id)
        gap = 0 if layout.side <= FLAT_SIDE else 1
        width, height = (layout.side - gap) / ratio, (layout.row_height - gap) / ratio
        return QRectF(x / ratio + MARGIN, y / ratio + MARGIN, width, height)

    def block_at(self, point: QPointF) -> int:
        """The block under a point in logical pixels, or -1."""
        if self._picture is None:
            return -1
        ratio = self.devicePixelRatioF()
        return self._picture.layout.block_at(
            (point.x() - MARGIN) * ratio, (point.y() - MARGIN) * ratio
        )

    # --- pointing ---

    def _point_at(self, block_id: int) -> None:
        if block_id != self._pointed:
            self._pointed = block_id
            self.block_hovered.emit(block_id)
            self.update()

    def move_cursor(self, block_id: int) -> None:
        """Puts the keyboard cursor on a block."""
        if self._picture is not None:
            self._cursor = max(0, min(block_id, self._picture.layout.num_blocks - 1))
            self.block_hovered.emit(self._cursor)
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point_at(self.block_at(event.position()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        block = self.block_at(event.position())
        if block >= 0:
            self.move_cursor(block)
        super().mousePressEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._point_at(-1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        layout = self.layout_in_use
        key = Qt.Key(event.key())
        if layout is None or event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            super().keyPressEvent(event)
        elif key in _KEY_STEPS:
            columns, rows = _KEY_STEPS[key]
            cell = columns + rows * layout.columns
            self.move_cursor(self._cursor + cell * layout.blocks_per_cell)
        elif key == Qt.Key.Key_Home:
            self.move_cursor(0)
        elif key == Qt.Key.Key_End:
            self.move_cursor(layout.num_blocks - 1)
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
                QToolTip.showText(event.globalPos(), as_tool_tip(self._describe(block)), self)
            else:
                QToolTip.hideText()
            return True
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self.redraw()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.redraw()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._rims.end()


def as_tool_tip(text: str) -> str:
    """Plain text as a tool tip shows it: nothing in it can be taken for markup."""
    return f"<p style='white-space:pre'>{html.escape(text)}</p>"
