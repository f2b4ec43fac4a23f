"""Block tables painted as strips under each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.cache_panel import words
from app.cache_panel.grid_image import GridImage
from app.cache_panel.grid_layout import FLAT_SIDE, GridLayout
from app.cache_panel.meter import Meter
from app.cache_panel.strips import Strip
from app.cache_panel.tiles import TileAtlas
from app.theme import Theme

LABEL_HEIGHT = 20
ROW_GAP = 10
SWATCH = 14
OVERHANG = 3
"""Pixels by which lines and outlines reach beyond the cells."""
MAX_SIDE = 16
MIN_SIDE = 4
# The smallest cell with which a table may take one line, two, three; then as many as it needs.
SMALLEST_BY_LINES = ((1, 10), (2, 8), (3, 6))


@dataclass(slots=True)
class StripRow:
    """A strip as it is laid out; ``label``: number, title and figures."""

    strip: Strip
    top: int
    picture: GridImage
    label: tuple[int, str, str]


class StripCanvas(QWidget):
    """Paints strips: the same column is the same logical block."""

    height_changed = Signal()

    def __init__(self, theme: Theme, meter: Meter, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._meter = meter
        self._rows: list[StripRow] = []
        self._atlas: TileAtlas | None = None
        self._columns = 1
        self._highlight = -1
        self._lit: frozenset[int] = frozenset()
        self._height = 0
        self._empty_words = ""
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(340, max(self._height, LABEL_HEIGHT))

    def minimumSizeHint(self) -> QSize:
        return QSize(120, max(self._height, LABEL_HEIGHT))

    @property
    def strips(self) -> list[Strip]:
        """What is shown."""
        return [row.strip for row in self._rows]

    @property
    def columns(self) -> int:
        """Logical blocks in one line."""
        return self._columns

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        self._atlas = None
        self.set_strips(self.strips)

    def set_strips(self, strips: list[Strip], *, with_labels: bool = True) -> None:
        """Shows these strips; repaints only what looks different.

        ``with_labels`` False leaves the words of strips that are there already as they are: they
        are dearer to draw than cells, and nobody reads them many times a second.
        """
        laid_out = self._choose_cells(strips)
        old = {} if laid_out else {row.strip.key: row for row in self._rows}
        rows: list[StripRow] = []
        top = 0
        for strip in strips:
            before = old.get(strip.key)
            label = label_of(strip) if before is None or with_labels else before.label
            row = StripRow(strip, top, self._picture_of(strip, before), label)
            if before is None or before.top != top:
                self._update_row(row)
            elif before.label != label:
                self.update(0, top, self.width(), LABEL_HEIGHT)
            rows.append(row)
            top = self._rect_of(row).bottom() + 1 + ROW_GAP
        if laid_out or len(rows) != len(self._rows):
            self.update()
        self._rows = rows
        if top != self._height:
            self._height = top
            self.updateGeometry()
            self.height_changed.emit()

    def _picture_of(self, strip: Strip, before: StripRow | None) -> GridImage:
        """The picture from before, if only the fill of the last block changed, or a new one."""
        if before is None or not np.array_equal(before.strip.codes, strip.codes):
            picture = self._draw(strip)
            if before is not None:
                self._update_row(before)
            return picture
        if before.strip.last_fill != strip.last_fill:
            self._draw_last(before.picture, strip)
            self.update(self._cell_rect(before, len(strip.blocks) - 1).toAlignedRect())
        return before.picture

    def say_when_empty(self, text: str) -> None:
        """What stands here while there is no strip."""
        if text != self._empty_words:
            self._empty_words = text
            self.update()

    def _update_row(self, row: StripRow) -> None:
        self.update(self._rect_of(row).adjusted(0, 0, 0, OVERHANG))

    def light(self, blocks: frozenset[int]) -> None:
        """Outlines blocks wherever they stand."""
        if blocks != self._lit:
            self._lit = blocks
            self.update()

    def set_highlight(self, block_id: int) -> None:
        """Outlines a block wherever it stands; -1 for none."""
        if block_id != self._highlight:
            self._highlight = block_id
            self.update()

    def _choose_cells(self, strips: list[Strip]) -> bool:
        """Sets size and number of columns for all strips alike. True if they changed."""
        ratio = self.devicePixelRatioF()
        longest = max((len(strip.blocks) for strip in strips), default=1)
        width = max(1, int(self.width() * ratio))
        side = _side_for(width, longest, ratio)
        columns = _columns_for(width, side, longest)
        atlas = self._atlas
        if atlas is not None and (atlas.side, atlas.ratio, self._columns) == (side, ratio, columns):
            return False
        if atlas is None or (atlas.side, atlas.ratio) != (side, ratio):
            self._atlas = TileAtlas(self._theme, side, ratio)
        self._columns = columns
        return True

    def _draw(self, strip: Strip) -> GridImage:
        atlas = self._atlas
        assert atlas is not None
        layout = GridLayout(len(strip.blocks), atlas.side, self._columns, atlas.side)
        picture = GridImage(layout, atlas)
        picture.draw_all(strip.codes)
        self._draw_last(picture, strip)
        return picture

    def _draw_last(self, picture: GridImage, strip: Strip) -> None:
        atlas = self._atlas
        assert atlas is not None
        if strip.is_live and atlas.side > FLAT_SIDE:
            part = atlas.part_filled(int(strip.codes[-1]), strip.last_fill)
            picture.put(len(strip.blocks) - 1, part)

    def _rect_of(self, row: StripRow) -> QRect:
        height = math.ceil(row.picture.layout.height / self.devicePixelRatioF())
        return QRect(0, row.top, self.width(), LABEL_HEIGHT + height)

    # --- painting ---

    def paintEvent(self, event: QPaintEvent) -> None:
        with self._meter:
            self._paint(event)

    def _paint(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.color("background"))
        region = event.region()
        if not self._rows:
            painter.setPen(self._theme.color("muted"))
            painter.drawText(QRect(0, 0, self.width(), LABEL_HEIGHT), _LEFT, self._empty_words)
        for row in self._rows:
            label = QRect(0, row.top, self.width(), LABEL_HEIGHT)
            if region.intersects(label):
                self._paint_label(painter, row)
            if region.intersects(self._rect_of(row).adjusted(0, LABEL_HEIGHT, 0, 0)):
                painter.drawImage(0, row.top + LABEL_HEIGHT, row.picture.image)
                self._paint_divergence(painter, row)
        if self._lit:
            painter.setPen(QPen(self._theme.color("accent"), 1.6))
            painter.drawRects([rect for row in self._rows for rect in self._lit_rects(row)])
        if self._highlight >= 0:
            painter.setPen(QPen(self._theme.color("accent"), 2.0))
            painter.drawRects(self._rects_of(self._highlight))
        self.paint_over(painter)
        painter.end()

    def paint_over(self, painter: QPainter) -> None:
        """What a subclass draws on top of everything."""

    def _paint_divergence(self, painter: QPainter, row: StripRow) -> None:
        """A line where a table leaves what it has in common with others."""
        strip = row.strip
        if 0 < strip.shared_blocks < len(strip.blocks):
            rect = self._cell_rect(row, strip.shared_blocks)
            painter.setPen(QPen(self._theme.color("background"), 4.0))
            painter.drawLine(rect.topLeft(), rect.bottomLeft())
            painter.setPen(QPen(self._theme.color("text"), 2.0))
            painter.drawLine(
                QPointF(rect.left(), rect.top() - 2), QPointF(rect.left(), rect.bottom() + 2)
            )  # fmt: skip

    def _paint_label(self, painter: QPainter, row: StripRow) -> None:
        theme = self._theme
        number, title, right = row.label
        hue = theme.hue(number) if number else theme.color("muted")
        swatch = QRectF(0, row.top + 1, SWATCH, SWATCH)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(hue)
        painter.drawRoundedRect(swatch, 4, 4)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        font = self.font()
        font.setPointSizeF(9.0)
        painter.setFont(font)
        if number:
            painter.setPen(theme.on(hue))
            painter.drawText(swatch, Qt.AlignmentFlag.AlignCenter, str(number))
        line = QRect(SWATCH + 6, row.top, self.width() - SWATCH - 6, SWATCH + 2)
        room = line.width() - painter.fontMetrics().horizontalAdvance(right) - 12
        painter.setPen(theme.color("text" if row.strip.is_live else "muted"))
        elided = painter.fontMetrics().elidedText(title, Qt.TextElideMode.ElideRight, room)
        painter.drawText(line, _LEFT, elided)
        painter.setPen(theme.color("muted"))
        painter.drawText(line, _RIGHT, right)

    def _lit_rects(self, row: StripRow) -> list[QRectF]:
        blocks = enumerate(row.strip.blocks)
        return [self._cell_rect(row, index) for index, block in blocks if block in self._lit]

    def _rects_of(self, block_id: int) -> list[QRectF]:
        return [
            self._cell_rect(row, row.strip.blocks.index(block_id))
            for row in self._rows
            if block_id in row.strip.blocks
        ]

    def _cell_rect(self, row: StripRow, index: int) -> QRectF:
        ratio = self.devicePixelRatioF()
        x, y = row.picture.layout.origin(index)
        size = max(1, row.picture.layout.side - 1) / ratio
        return QRectF(x / ratio, row.top + LABEL_HEIGHT + y / ratio, size, size)

    # --- events ---

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self.set_strips(self.strips)
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.set_strips(self.strips)


_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@lru_cache(maxsize=64)
def _side_for(width: int, longest: int, ratio: float) -> int:
    """Edge of a cell in device pixels: the longest table in few lines, or else in small cells."""
    for lines, smallest in SMALLEST_BY_LINES:
        for side in range(int(MAX_SIDE * ratio), int(smallest * ratio) - 1, -1):
            if math.ceil(longest / _columns_for(width, side, longest)) <= lines:
                return side
    return int(MIN_SIDE * ratio)


def _columns_for(width: int, side: int, longest: int) -> int:
    columns = max(1, width // side)
    return columns if columns >= longest or columns < 16 else columns - columns % 4


def label_of(strip: Strip) -> tuple[int, str, str]:
    """Number, title and figures."""
    return strip.number, strip.title or words.untitled(strip), words.strip(strip)
