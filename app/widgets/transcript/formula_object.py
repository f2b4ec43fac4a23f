"""Formulas in documents: placed on the baseline, in the colour of the text."""

from __future__ import annotations

import re
from collections.abc import Callable

from PySide6.QtCore import QByteArray, QPointF, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QFontMetrics,
    QFontMetricsF,
    QImage,
    QPagedPaintDevice,
    QPainter,
    QPyTextObject,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtSvg import QSvgRenderer

from app.formula_picture import INK, X_HEIGHT, Picture
from app.markdown_math import PLACEHOLDER, Formula
from app.widgets.transcript.formulas import Formulas

OBJECT = QTextFormat.ObjectTypes.UserObject.value + 1
SOURCE = QTextFormat.Property.UserProperty.value + 1
# Qt's own mark of an object that is drawn as part of a selection; it has no public name.
_SET_OFF = QTextFormat.Property.ForegroundBrush.value + 1
DISPLAY = QTextFormat.Property.UserProperty.value + 2
_MAX_IMAGES = 400
_DEEP, _OVERHANG = 0.45, 0.25
"""In ems: from which depth below the line on a formula needs room there, and how far it may reach
above the line.
"""
_SHARE_BELOW, _GAP = 0.95, 3.0
"""Lines of text are 1.45 times as high as what is in them, with all of the rest at the bottom: so
much of an object's height comes to lie below the middle of an x. Pixels to the next line.
"""
_MIDDLE = QTextCharFormat.VerticalAlignment.AlignMiddle


class FormulaObject(QPyTextObject):
    """Draws the formulas of documents. Size and colour are those of the text around them."""

    def __init__(self, formulas: Formulas, color: str) -> None:
        super().__init__()
        self._formulas = formulas
        self._color = color
        self._renderers: dict[tuple[str, str], QSvgRenderer] = {}
        self._images: dict[tuple[str, str, int, int], QImage] = {}
        self._over: list[tuple[Picture, QRectF, str]] = []

    def place(self, document: QTextDocument, formulas: tuple[Formula, ...]) -> None:
        """Puts ``formulas`` where the placeholders of a document are. Their fonts stay."""
        document.documentLayout().registerHandler(OBJECT, self)
        cursor = QTextCursor(document)
        for formula in formulas:
            cursor = document.find(PLACEHOLDER, cursor.position())
            if cursor.isNull():
                return
            made = QTextCharFormat()
            made.setObjectType(OBJECT)
            made.setProperty(SOURCE, formula.source)
            made.setProperty(DISPLAY, formula.is_display)
            picture = self._formulas.picture(formula)
            if picture is not None and picture.descent > _DEEP:
                # Qt gives an object room below the baseline only if it is in the middle of a line.
                made.setVerticalAlignment(_MIDDLE)
            cursor.mergeCharFormat(made)

    def intrinsicSize(self, doc: QTextDocument, posInDocument: int, format: QTextFormat) -> QSizeF:
        chars = format.toCharFormat()
        picture = self._picture(chars)
        if picture is None:
            return QSizeF(0, 0)
        em = _em(chars) * _fit(picture, _em(chars), doc.textWidth())
        ascent, descent = picture.ascent * em, picture.descent * em
        if chars.verticalAlignment() != _MIDDLE:
            # No lower than the letters, so that a cell of a table stands on the line of its row.
            letters = QFontMetricsF(chars.font()).ascent()
            return QSizeF(picture.width * em, max(ascent, letters))
        half_x = QFontMetrics(chars.font()).xHeight() / 2.0
        above, below = 2.0 * ascent - half_x, 2.0 * descent + half_x
        if _has_wide_lines(doc, posInDocument):
            # It may reach into the space between the lines, above and below.
            above -= 2.0 * _OVERHANG * em
            below = (descent + _GAP + half_x / 2.0) / _SHARE_BELOW
        return QSizeF(picture.width * em, max(above, below))

    def drawObject(
        self,
        painter: QPainter,
        rect: QRectF | QRect,
        doc: QTextDocument,
        posInDocument: int,
        format: QTextFormat,
    ) -> None:
        chars = format.toCharFormat()
        picture = self._picture(chars)
        if picture is None:
            return
        em = rect.width() / picture.width
        top = _baseline(doc, posInDocument) - picture.ascent * em
        height = (picture.ascent + picture.descent) * em
        target = QRectF(rect.left(), top, rect.width(), height)
        ink = chars.foreground()
        color = ink.color().name() if ink.style() != Qt.BrushStyle.NoBrush else self._color
        if chars.hasProperty(_SET_OFF):
            # Qt lays half of a selection's colour over an object, so that it is drawn afterwards.
            self._over.append((picture, target, color))
            return
        self._draw(painter, picture, target, color)

    def draw_over(self, painter: QPainter) -> None:
        """Draws what is set off in the document that was just drawn, with the same painter."""
        over, self._over = self._over, []
        for picture, target, color in over:
            self._draw(painter, picture, target, color)

    def _draw(self, painter: QPainter, picture: Picture, target: QRectF, color: str) -> None:
        if isinstance(painter.device(), QPagedPaintDevice):
            self._renderer(picture, color).render(painter, target)
            return
        # On whole pixels of the screen: between two it would be blurred.
        to_device = painter.deviceTransform()
        scale = abs(to_device.m11())
        image = self._image(picture, color, target.size() * scale)
        corner = to_device.map(target.topLeft())
        snapped = to_device.inverted()[0].map(QPointF(round(corner.x()), round(corner.y())))
        painter.drawImage(QRectF(snapped, QSizeF(image.size()) / scale), image)

    def _picture(self, chars: QTextCharFormat) -> Picture | None:
        source = str(chars.property(SOURCE))
        return self._formulas.picture(Formula(source, bool(chars.property(DISPLAY))))

    def _renderer(self, picture: Picture, color: str) -> QSvgRenderer:
        key = (picture.svg, color)
        made = self._renderers.get(key)
        if made is None:
            if len(self._renderers) >= _MAX_IMAGES:
                self._renderers.clear()
            svg = picture.svg.replace(INK, color).encode()
            made = self._renderers[key] = QSvgRenderer(QByteArray(svg))
        return made

    def _image(self, picture: Picture, color: str, size: QSizeF) -> QImage:
        """In pixels of the screen."""
        width, height = max(1, round(size.width())), max(1, round(size.height()))
        key = (picture.svg, color, width, height)
        image = self._images.get(key)
        if image is None:
            if len(self._images) >= _MAX_IMAGES:
                self._images.clear()
            image = QImage(width, height, QImage.Format.Format_ARGB32_Premultiplied)
            image.fill(0)
            painter = QPainter(image)
            self._renderer(picture, color).render(painter, QRectF(0, 0, width, height))
            painter.end()
            self._images[key] = image
        return image


def with_drawn(document: QTextDocument, start: int, text: str) -> str:
    """``text``, which stands at ``start`` of a document, with the LaTeX of its formulas."""
    if PLACEHOLDER not in text:
        return text
    parts = text.split(PLACEHOLDER)
    found = parts[0]
    at = start + _units(parts[0])
    for part in parts[1:]:
        cursor = QTextCursor(document)
        cursor.setPosition(at + 1)
        found += str(cursor.charFormat().property(SOURCE) or "") + part
        at += 1 + _units(part)
    return found


def with_places(document: QTextDocument) -> tuple[str, Callable[[int], int]]:
    """(The text of a document with the LaTeX of its pictures, what gives the place in the document
    of a place in that text).
    """
    text = document.toPlainText()
    if text.isascii():
        return text, lambda at: at
    if PLACEHOLDER not in text:
        return text, lambda at: _units(text[:at])
    shown, at = "", 0
    starts: list[int] = []
    for part in re.split(f"({PLACEHOLDER})", text):
        if part == PLACEHOLDER:
            cursor = QTextCursor(document)
            cursor.setPosition(at + 1)
            part, length = str(cursor.charFormat().property(SOURCE) or part), 1
            # Every character of it is at the one place of the picture.
            starts += [at] * len(part)
        else:
            length = _units(part)
            starts += [at + _units(part[:n]) for n in range(len(part))]
        shown += part
        at += length
    starts.append(at)
    return shown, lambda place: starts[place]


def _units(text: str) -> int:
    """Length as Qt counts it, in UTF-16."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _has_wide_lines(document: QTextDocument, at: int) -> bool:
    kind = document.findBlock(at).blockFormat().lineHeightType()
    return kind == QTextBlockFormat.LineHeightTypes.ProportionalHeight.value


def _baseline(document: QTextDocument, at: int) -> float:
    """Where the letters around a character stand, from the top of the document."""
    block = document.findBlock(at)
    line = block.layout().lineForTextPosition(at - block.position())
    top = document.documentLayout().blockBoundingRect(block).y()
    return top + line.y() + line.ascent()


def _em(chars: QTextCharFormat) -> float:
    """Pixels of an em of the formula's font, so that its letters are as high as the text's."""
    metrics = QFontMetricsF(chars.font())
    em = chars.font().pointSizeF() * metrics.fontDpi() / 72.0
    return max(em, min(1.25 * em, metrics.xHeight() / X_HEIGHT))


def _fit(picture: Picture, em: float, width: float) -> float:
    """What a formula is made smaller by, so that it is no wider than a line."""
    return min(1.0, width / (picture.width * em)) if width > 0 else 1.0
