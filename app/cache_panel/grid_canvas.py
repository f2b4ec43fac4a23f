"""The pool painted as a grid of cells, whole or magnified, with rims around written blocks."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from PySide6.QtCore import QEvent, QLineF, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHideEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QStyle, QWidget

from app.cache_panel.grid_image import GridImage
from app.cache_panel.grid_layout import FLAT_SIDE, GridLayout
from app.cache_panel.looks import Looks
from app.cache_panel.meter import Meter
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.rims import Rims
from app.cache_panel.tiles import TileAtlas
from app.theme import Theme

MARGIN = 3
# A pool that does not fit in cells of 10 pixels shows its touched part, in cells of up to 18.
SIDES = (10, 18)
LARGEST_SIDE = SIDES[1] * 3 // 2
NO_LIMIT = (1 << 24) - 1
"""Qt's own for the height of a widget."""
MIN_RIM_SIDE = 4
MAX_RIMS = 256


class GridCanvas(QWidget):
    """Paints ``model``; the owner calls ``refresh`` with what changed.

    While a large pool is mostly untouched, its first blocks alone are shown, in larger cells; see
    ``num_hidden``. Magnified, it shows a part of the pool; ``view_changed`` tells of both.
    """

    num_hidden_changed = Signal(int)
    view_changed = Signal()

    def __init__(
        self, looks: Looks, theme: Theme, meter: Meter, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._looks = looks
        self._theme = theme
        self._meter = meter
        self._model: PoolModel | None = None
        self._atlas: TileAtlas | None = None
        self._picture: GridImage | None = None
        self._rims = Rims(self)
        self._side: int | None = None
        self._first_row = 0
        self._cursor = 0
        self._last_hidden = 0
        self._pointed = -1
        self._highlight: frozenset[int] = frozenset()
        self._leaving: frozenset[int] = frozenset()
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
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
        if self._model is None or self._picture is None or self._side is not None:
            return 0
        return self._model.num_blocks - self._picture.layout.num_blocks

    @property
    def most_height(self) -> int:
        """The height of the whole pool in its largest cells: more would be of no use."""
        if self._model is None:
            return NO_LIMIT
        columns = max(1, (self.width() - 2 * MARGIN) // LARGEST_SIDE)
        return min(NO_LIMIT, -(-self._model.num_blocks // columns) * LARGEST_SIDE + 2 * MARGIN)

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

    def set_leaving(self, blocks: Collection[int]) -> None:
        """Marks blocks that would be evicted."""
        if self._leaving != frozenset(blocks):
            self._leaving = frozenset(blocks)
            self.update()

    def redraw(self) -> None:
        """Lays out and draws the whole pool again."""
        model, ratio = self._model, self.devicePixelRatioF()
        self._rims.end()
        if model is None:
            self._picture = None
        else:
            layout = self._lay_out(model, ratio)
            self._picture = GridImage(layout, self._atlas_for(layout.side, ratio))
            shown = slice(layout.first, layout.end)
            self._picture.draw_all(self._looks.codes(model, shown))
            self._cursor = min(self._cursor, self._last_block())
        self.update()
        self.view_changed.emit()
        if self.num_hidden != self._last_hidden:
            self._last_hidden = self.num_hidden
            self.num_hidden_changed.emit(self.num_hidden)

    def _lay_out(self, model: PoolModel, ratio: float) -> GridLayout:
        width = int((self.width() - 2 * MARGIN) * ratio)
        height = int((self.height() - 2 * MARGIN) * ratio)
        if self._side is not None:
            side = int(self._side * ratio)
            layout = GridLayout.magnified(model.num_blocks, side, self._first_row, width, height)
            self._first_row = layout.first // layout.columns
            return layout
        return GridLayout.fit(
            model.num_blocks,
            model.num_touched(),
            width,
            height,
            (int(SIDES[0] * ratio), int(SIDES[1] * ratio)),
        )

    def _last_block(self) -> int:
        """The last block that the cursor can reach."""
        if self._model is None or self._picture is None:
            return 0
        layout = self._picture.layout
        return layout.end - 1 if self._side is None else self._model.num_blocks - 1

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
        layout = picture.layout
        if self._side is not None:
            blocks = blocks[(blocks >= layout.first) & (blocks < layout.end)]
            written = [block for block in written if layout.first <= block < layout.end]
            if not len(blocks):
                return
        elif int(blocks.max()) >= layout.num_blocks:
            self.redraw()
            return
        cells, members = picture.members(blocks)
        picture.draw(cells, self._looks.codes(model, members))
        if written and layout.side >= MIN_RIM_SIDE * self.devicePixelRatioF():
            self._put_rims(written)
        rows = cells // layout.columns
        self._update_rows(int(rows.min()), int(rows.max()))

    def _put_rims(self, written: Collection[int]) -> None:
        blocks = list(written)[:MAX_RIMS]
        fades = self.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration) > 0
        self._rims.put(self._cells_of(blocks), fades=fades)

    def _cells_of(self, blocks: list[int]) -> list[QRect]:
        """Whole pixels around the cells of many blocks."""
        assert self._picture is not None
        layout, ratio = self._picture.layout, self.devicePixelRatioF()
        cells = (np.array(blocks) - layout.first) // layout.blocks_per_cell
        rows, columns = np.divmod(cells, layout.columns)
        lefts = np.floor(columns * layout.side / ratio + MARGIN).astype(int).tolist()
        tops = np.floor(rows * layout.row_height / ratio + MARGIN).astype(int).tolist()
        width = math.ceil((layout.side - 1) / ratio)
        height = math.ceil((layout.row_height - 1) / ratio)
        return [QRect(x, y, width, height) for x, y in zip(lefts, tops, strict=True)]

    def _update_rows(self, first: int, last: int) -> None:
        assert self._picture is not None
        height = self._picture.layout.row_height / self.devicePixelRatioF()
        top, bottom = int(first * height), int((last + 1) * height) + 2 * MARGIN + 1
        self.update(0, top, self.width(), bottom - top)

    # --- painting ---

    def paintEvent(self, event: QPaintEvent) -> None:
        with self._meter:
            self._paint(event)

    def _paint(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.color("background"))
        if self._picture is None:
            return
        painter.drawImage(MARGIN, MARGIN, self._picture.image)
        self._rims.paint(painter, self._theme.color("text"))
        self._paint_leaving(painter)
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
        if self._picture is not None:
            layout = self._picture.layout
            shown = [block for block in blocks if layout.first <= block < layout.end]
            painter.drawRects([self.rect_of(block) for block in shown])

    def _paint_leaving(self, painter: QPainter) -> None:
        """A frame with a stroke through it: the shape says it where the colour does not."""
        if self._picture is None or not self._leaving:
            return
        layout = self._picture.layout
        shown = [block for block in self._leaving if layout.first <= block < layout.end]
        rects = [self.rect_of(block) for block in shown]
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(self._theme.color("warning"), 1.6, j=Qt.PenJoinStyle.MiterJoin))
        painter.drawRects(rects)
        painter.drawLines([QLineF(rect.bottomLeft(), rect.topRight()) for rect in rects])

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

    # --- events ---

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self.redraw()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.redraw()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._rims.end()
