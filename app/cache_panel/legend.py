"""One sample of each look of a block, drawn by the grid's own painter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from PySide6.QtCore import QRectF
from PySide6.QtGui import QImage, QPainter, QPen

from app.cache_panel.looks import CACHED_CELL, FREE_CELL, PRIVATE_CELL, SHARED_CELL, encode
from app.cache_panel.tiles import TileAtlas
from app.theme import Theme

CODES: Mapping[str, int] = MappingProxyType(
    {
        "private": encode(PRIVATE_CELL, 1),
        "shared": encode(SHARED_CELL, 4),
        "pinned": encode(PRIVATE_CELL, 1, pinned=True),
        "cached": encode(CACHED_CELL, 1),
        "free": encode(FREE_CELL),
    }
)
WRITTEN = "written"


def legend_images(theme: Theme, side: int, ratio: float) -> dict[str, QImage]:
    """A sample of ``side`` logical pixels for each of ``CODES``, and for ``WRITTEN``."""
    atlas = TileAtlas(theme, int(side * ratio), ratio)
    images = {name: atlas.image(code) for name, code in CODES.items()}
    written = images[WRITTEN] = atlas.image(CODES["private"])
    painter = QPainter(written)
    painter.setPen(QPen(theme.color("text"), 1.5))
    painter.drawRect(QRectF(0.75, 0.75, side - 2.5, side - 2.5))
    painter.end()
    return images
