"""The application's icon as the desktops want it, drawn from resources/icons/quire.svg."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "resources" / "icons" / "quire.svg"
PNG_SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)
"""Sizes of the icon theme `hicolor`, in pixels."""
ICO_SIZES = (16, 20, 24, 32, 40, 48, 64, 256)
"""What Windows asks for between 100 % and 250 % of scaling, and for large icons."""

_HEADER = struct.Struct("<HHH")
_ENTRY = struct.Struct("<BBBBHHII")
_ICON_TYPE = 1
_BITS = 32


def png(size: int) -> bytes:
    """The icon as a PNG of ``size`` × ``size`` pixels."""
    # Here, so that only a build needs Qt.
    from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QRectF
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(0)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(SOURCE.read_bytes())).render(painter, QRectF(0, 0, size, size))
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    if not image.save(buffer, "PNG"):  # type: ignore[call-overload]
        raise RuntimeError(f"Qt could not write the icon of {size} pixels.")
    return bytes(buffer.data().data())


def ico(pictures: Sequence[tuple[int, bytes]]) -> bytes:
    """A Windows icon file of (size, PNG) pairs; Windows reads PNG in them since Vista.

    Format: a header, one directory entry a picture, then the pictures
    (https://learn.microsoft.com/previous-versions/ms997538(v=msdn.10)).
    """
    head = _HEADER.pack(0, _ICON_TYPE, len(pictures))
    place = _HEADER.size + _ENTRY.size * len(pictures)
    entries = b""
    for size, data in pictures:
        side = size % 256  # 256 is written as 0
        entries += _ENTRY.pack(side, side, 0, 0, 1, _BITS, len(data), place)
        place += len(data)
    return head + entries + b"".join(data for _size, data in pictures)


def write_ico(path: Path) -> Path:
    """Writes the icon for Windows and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ico([(size, png(size)) for size in ICO_SIZES]))
    return path
