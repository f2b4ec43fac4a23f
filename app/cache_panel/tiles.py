"""Pictures of single cells: one tile for each look, drawn once for a theme and a size.

Every state has a second channel besides its colour: shared blocks a 45° hatch and their count,
cached ones a pale fill and a dotted corner, pinned ones a solid frame, free ones an outline.
"""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRect
from PySide6.QtGui import QColor, QFont, QImage, QPainter, QPen

from app.cache_panel.grid_layout import FLAT_SIDE
from app.cache_panel.looks import (
    CACHED_CELL,
    FREE_CELL,
    LOST,
    MAX_LABEL,
    NUM_CODES,
    PRIVATE_CELL,
    SHARED_CELL,
    decode,
    encode,
)
from app.cache_panel.pool_model import Array
from app.theme import Theme, blend, number_font

TEXT_SIDE = 14
CACHED_AMOUNT = 0.35


class TileAtlas:
    """Tiles of ``side`` × ``side`` device pixels (gap at the right and bottom baked in).

    ``ratio``: device pixels a logical pixel. Up to ``FLAT_SIDE`` pixels a tile is one flat colour.
    """

    def __init__(self, theme: Theme, side: int, ratio: float = 1.0) -> None:
        self.theme = theme
        self.side = side
        self.ratio = ratio
        self.ground = theme.color("background")
        self.gap = 0 if side <= FLAT_SIDE else max(1, round(side / 12))
        self._tiles: dict[int, Array] = {}
        self._flat = self._flat_colors()

    def colors(self, codes: Array) -> Array:
        """uint32 RGB of each code, without any pattern."""
        chosen: Array = self._flat[codes]
        return chosen

    def tiles(self, codes: Array) -> Array:
        """uint32[len(codes), side, side]."""
        present = np.flatnonzero(np.bincount(codes, minlength=1))
        row_of = np.zeros(int(present[-1]) + 1 if len(present) else 1, np.int32)
        row_of[present] = np.arange(len(present))
        pictures = np.stack([self.tile(int(code)) for code in present])
        chosen: Array = pictures[row_of[codes]]
        return chosen

    def tile(self, code: int) -> Array:
        """uint32[side, side] of one code."""
        found = self._tiles.get(code)
        if found is None:
            found = self._tiles[code] = self._draw(code)
        return found

    def part_filled(self, code: int, share: float) -> Array:
        """The tile of ``code`` of which only the left ``share`` (0 to 1) is filled."""
        tile = self.tile(encode(FREE_CELL)).copy()
        width = round((self.side - self.gap) * share)
        tile[:, :width] = self.tile(code)[:, :width]
        return tile

    def image(self, code: int) -> QImage:
        """The tile as an image of its own, for a legend."""
        pixels = self.tile(code)
        image = QImage(pixels.tobytes(), self.side, self.side, 4 * self.side, RGB).copy()
        image.setDevicePixelRatio(self.ratio)
        return image

    def fill_color(self, kind: int, label: int) -> QColor:
        """What the cell is filled with."""
        if kind == FREE_CELL:
            return self.theme.color("raised")
        if kind == SHARED_CELL:
            return self.theme.shared
        hue = self.theme.hue(label) if label else self.theme.color("muted")
        return blend(self.ground, hue, CACHED_AMOUNT) if kind == CACHED_CELL else hue

    def _flat_colors(self) -> Array:
        """Colours indexed by code: [label, pinned, kind] flattened."""
        table = np.zeros((MAX_LABEL + 1, 2, 4), np.uint32)
        num_hues = len(self.theme.hues)
        for kind in (FREE_CELL, PRIVATE_CELL, SHARED_CELL, CACHED_CELL):
            hues = [self.fill_color(kind, label) for label in range(num_hues + 1)]
            for pinned in (0, 1):
                frame = self.theme.color("text")
                row = [blend(hue, frame, 0.6).rgb() if pinned else hue.rgb() for hue in hues]
                table[0, pinned, kind] = row[0]
                repeated = np.resize(np.array(row[1:], np.uint32), MAX_LABEL)
                table[1:, pinned, kind] = repeated
        return table.reshape(NUM_CODES)

    def _draw(self, code: int) -> Array:
        kind, pinned, label = decode(code)
        if self.side <= FLAT_SIDE:
            return np.full((self.side, self.side), self._flat[code], np.uint32)
        image = QImage(self.side, self.side, RGB)
        image.fill(self.ground)
        painter = QPainter(image)
        inner = QRect(0, 0, self.side - self.gap, self.side - self.gap)
        fill = self.fill_color(kind, label)
        painter.fillRect(inner, fill)
        if code == LOST:
            self._cross(painter, inner)
        elif kind == FREE_CELL:
            self._frame(painter, inner, self.theme.color("line"), 1)
        elif kind == SHARED_CELL:
            self._hatch(painter, inner)
        elif kind == CACHED_CELL:
            self._dotted_corner(painter, inner)
        if label and kind != FREE_CELL and self.side >= TEXT_SIDE * self.ratio:
            self._text(painter, inner, str(label), fill, plate=kind == SHARED_CELL)
        if pinned:
            width = max(1, round(min(2 * self.ratio, self.side / 5)))
            self._frame(painter, inner, self.theme.color("text"), width)
            if self.side >= 10:
                inside = inner.adjusted(width, width, -width, -width)
                self._frame(painter, inside, self.ground, max(1, round(self.ratio)))
        painter.end()
        return pixels_of(image)

    def _frame(self, painter: QPainter, rect: QRect, color: QColor, width: int) -> None:
        x, y, w, h = rect.x(), rect.y(), rect.width(), rect.height()
        painter.fillRect(x, y, w, width, color)
        painter.fillRect(x, y + h - width, w, width, color)
        painter.fillRect(x, y, width, h, color)
        painter.fillRect(x + w - width, y, width, h, color)

    def _hatch(self, painter: QPainter, rect: QRect) -> None:
        step = max(3, round(max(4.0 * self.ratio, self.side / 5)))
        # Smoothing would wash the lines out in cells of a few pixels.
        smooth = self.side >= 12
        painter.save()
        painter.setClipRect(rect)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, smooth)
        color = blend(self.theme.shared, self.ground, 0.8)
        painter.setPen(QPen(color, max(1.25, self.side / 14) if smooth else 1))
        shift = 0.5 if smooth else 0.0
        for offset in range(step // 2, 2 * rect.width(), step):
            painter.drawLine(
                QPointF(offset + shift, -shift), QPointF(-shift, offset + shift)
            )  # fmt: skip
        painter.restore()

    def _cross(self, painter: QPainter, rect: QRect) -> None:
        painter.fillRect(rect, self.ground)
        self._frame(painter, rect, self.theme.color("strong_line"), 1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.theme.color("strong_line"), 1.0))
        painter.drawLine(rect.bottomLeft(), rect.topRight())
        painter.restore()

    def _dotted_corner(self, painter: QPainter, rect: QRect) -> None:
        dot = max(1, round(self.ratio * max(1.0, self.side / 16)))
        count = max(1, min(4, rect.width() // (3 * dot)))
        color = self.theme.color("text")
        for row in range(count):
            for column in range(count - row):
                x = rect.right() - dot + 1 - 2 * dot * column
                painter.fillRect(x, rect.top() + 2 * dot * row, dot, dot, color)

    def _text(
        self, painter: QPainter, rect: QRect, text: str, fill: QColor, *, plate: bool
    ) -> None:
        font = QFont(number_font())
        share = 0.62 if len(text) < 3 else 0.46
        font.setPixelSize(max(7, round(rect.height() * share)))
        font.setWeight(QFont.Weight.DemiBold)
        painter.setFont(font)
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        # Centred by its ink: the line height of the font would push digits off the middle.
        ink = painter.fontMetrics().tightBoundingRect(text)
        x = rect.left() + (rect.width() - ink.width()) / 2 - ink.left()
        y = rect.top() + (rect.height() - ink.height()) / 2 - ink.top()
        if plate:
            # The count must not drown in the hatch.
            room = ink.translated(round(x), round(y)).adjusted(-2, -2, 2, 2)
            painter.fillRect(room.intersected(rect), fill)
        painter.setPen(self.theme.on(fill))
        painter.drawText(QPointF(x, round(y)), text)


RGB = QImage.Format.Format_RGB32


def pixels_of(image: QImage) -> Array:
    """uint32[height, width] copy of an RGB32 image."""
    flat = np.frombuffer(image.constBits(), np.uint32)
    return flat.reshape(image.height(), image.bytesPerLine() // 4)[:, : image.width()].copy()
