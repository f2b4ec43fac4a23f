"""Files under ``resources`` and icons recoloured for a theme."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer

RESOURCES = Path(__file__).resolve().parent.parent / "resources"
_ICON_SIZES = (16, 18, 36)


def resource_path(*parts: str) -> Path:
    """The path of a file under ``resources``, in a checkout and in a frozen build alike."""
    return RESOURCES.joinpath(*parts)


@lru_cache(maxsize=128)
def icon_source(name: str) -> str:
    """SVG text of ``resources/icons/<name>.svg``. Raises FileNotFoundError for an unknown name."""
    return resource_path("icons", f"{name}.svg").read_text(encoding="utf-8")


def icon_pixmap(name: str, color: str, size: int, ratio: float = 1.0) -> QPixmap:
    """Icon ``name`` drawn in ``color`` (#RRGGBB), ``size`` logical pixels, ``ratio`` each."""
    key = f"quire/{name}/{color}/{size}/{ratio}"
    found = QPixmap()
    if QPixmapCache.find(key, found):
        return found
    svg = icon_source(name).replace("currentColor", color)
    pixmap = QPixmap(QSize(size, size) * ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    painter = QPainter(pixmap)
    renderer.render(painter, QRectF(0, 0, pixmap.width(), pixmap.height()))
    painter.end()
    pixmap.setDevicePixelRatio(ratio)
    QPixmapCache.insert(key, pixmap)
    return pixmap


def icon(name: str, color: str, disabled_color: str | None = None) -> QIcon:
    """An icon in one colour, with a paler version for the disabled state if one is given."""
    made = QIcon()
    for size in _ICON_SIZES:
        made.addPixmap(icon_pixmap(name, color, size))
        if disabled_color is not None:
            pale = icon_pixmap(name, disabled_color, size)
            made.addPixmap(pale, QIcon.Mode.Disabled)
    return made
