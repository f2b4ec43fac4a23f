"""Blocks to text documents in the colours of a theme."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QImage,
    QPainter,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextLength,
    QTextOption,
    QTextTable,
)

from app import theme as themes
from app.highlight import Span
from app.markdown_blocks import FORMULA, HEADING, TABLE, Block
from app.markdown_math import PLACEHOLDER, Formula
from app.theme import Theme
from app.widgets.transcript.formula_object import FormulaObject
from app.widgets.transcript.formulas import Formulas

CELL_PADDING = 6.0
TABLE_SCALES = ((1.0, CELL_PADDING), (0.9, 5.0), (0.8, 4.0), (0.72, 3.0))
"""How much smaller the letters of a table that is too wide are made, and its cells."""
HEADING_SCALE = {1: 1.45, 2: 1.25, 3: 1.12}


def _wrap(document: QTextDocument, mode: QTextOption.WrapMode) -> None:
    option = document.defaultTextOption()
    option.setWrapMode(mode)
    document.setDefaultTextOption(option)


def _pad(document: QTextDocument, padding: float) -> None:
    for table in document.rootFrame().childFrames():
        if isinstance(table, QTextTable):
            made = table.format().toTableFormat()
            if made.cellPadding() != padding:
                made.setCellPadding(padding)
                table.setFormat(made)


class SafeDocument(QTextDocument):
    """A document that never loads anything: no image, no file, no address."""

    def __init__(self, font: QFont) -> None:
        super().__init__()
        self.setUndoRedoEnabled(False)
        self.setDocumentMargin(0)
        self.setDefaultFont(font)
        _wrap(self, QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)

    def loadResource(self, type: int, name: QUrl | str) -> Any:
        if type != QTextDocument.ResourceType.ImageResource.value:
            return None
        # Given nothing, Qt would take the name of an image for that of a file, and read it.
        image = QImage(1, 1, QImage.Format.Format_ARGB32)
        image.fill(0)
        return image


class DocumentFactory:
    """Makes documents for one theme; a new theme needs a new factory.

    ``formulas``: where pictures of formulas come from; without it their source is shown. ``zoom``:
    how much larger than usual text is.
    """

    def __init__(self, theme: Theme, formulas: Formulas | None = None, zoom: float = 1.0) -> None:
        self.theme = theme
        self.formulas = formulas
        self._object = FormulaObject(formulas, theme.colors["text"]) if formulas else None
        self.body_font = zoomed(themes.body_font(), zoom)
        self.code_font = zoomed(themes.code_font(), zoom)
        self.body_metrics = QFontMetricsF(self.body_font)
        self.code_metrics = QFontMetricsF(self.code_font)
        self._line_percent = _line_percent(self.body_font, self.body_metrics)
        self._style = self._style_sheet(theme.colors["text"])
        self._quiet_style = self._style_sheet(theme.colors["muted"])
        self._formats = {name: _colored(color) for name, color in theme.syntax.items()}
        self._formats[""] = _colored(theme.colors["text"])
        self._plain_line = QTextBlockFormat()
        proportional = QTextBlockFormat.LineHeightTypes.ProportionalHeight
        self._plain_line.setLineHeight(self._line_percent, proportional.value)

    @property
    def fonts(self) -> tuple[QFont, QFont]:
        """Of text and code: what heights depend on."""
        return self.body_font, self.code_font

    @property
    def body_line_height(self) -> float:
        """Height of one line of text, in pixels."""
        return self.body_metrics.lineSpacing() * self._line_percent / 100.0

    def text(self, block: Block, is_quiet: bool = False) -> QTextDocument:
        """A text, heading, table or formula block; ``is_quiet``: in the colour of what is beside
        the point.
        """
        document = SafeDocument(self.body_font)
        document.setDefaultStyleSheet(self._quiet_style if is_quiet else self._style)
        self.update_text(document, block)
        return document

    def update_text(self, document: QTextDocument, block: Block) -> None:
        """Replaces the text of a document made by ``text``."""
        shown = self._shown(block)
        document.setHtml(self._html(shown))
        if block.columns:
            _set_columns(document, block.columns[::-1] if block.mirrored else block.columns)
        if self._object is not None and shown.formulas:
            self._object.place(document, shown.formulas)

    def draw_over(self, painter: QPainter) -> None:
        """After a document was drawn: what Qt would not have drawn readably."""
        if self._object is not None:
            self._object.draw_over(painter)

    def _shown(self, block: Block) -> Block:
        """``block`` with the source of those formulas that cannot be drawn, or not yet."""
        if not block.formulas:
            return block
        drawn = []
        parts = block.html.split(PLACEHOLDER)
        html = parts[0]
        for formula, rest in zip(block.formulas, parts[1:], strict=True):
            if self.formulas is not None and self.formulas.picture(formula) is not None:
                drawn.append(formula)
                html += PLACEHOLDER + rest
            else:
                html += source_html(formula) + rest
        return replace(block, html=html, formulas=tuple(drawn))

    def _html(self, block: Block) -> str:
        if block.kind == FORMULA and block.formulas:
            return f'<p align="center" style="margin:4px 0 4px 0">{block.html}</p>'
        if block.kind == TABLE:
            line = self.theme.colors["strong_line"]
            width = ' width="100%"' if block.columns else ""
            # A frame at the right is placed there; text would flow around it, but there is none.
            side = ' align="right"' if block.mirrored and not block.columns else ""
            return (
                f'<table{width}{side} border="1" cellspacing="0" cellpadding="{CELL_PADDING:g}" '
                f'style="border-collapse:collapse; border-color:{line}; border-style:solid">'
                f"{block.html}</table>"
            )
        if block.kind == HEADING:
            size = self.body_font.pointSizeF() * HEADING_SCALE.get(block.level, 1.0)
            style = f"font-size:{size:.1f}pt; font-weight:600"
            return f'<p style="margin:0; {style}">{block.html}</p>'
        return f'<p style="margin:0; line-height:{self._line_percent}%">{block.html}</p>'

    def fit_table(self, document: QTextDocument, width: float) -> None:
        """Makes the letters of a table so small that no word of it is broken, but not too small to
        be read: then words are broken after all.
        """
        _wrap(document, QTextOption.WrapMode.WordWrap)
        for scale, padding in TABLE_SCALES:
            document.setDefaultFont(zoomed(QFont(self.body_font), scale))
            _pad(document, padding)
            document.setTextWidth(width)
            if document.size().width() <= width + 1.0:
                return
        _wrap(document, QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        document.setTextWidth(width)

    def plain(self, text: str) -> QTextDocument:
        """Text as it was typed. Each line is a paragraph, and so has a direction of its own."""
        document = SafeDocument(self.body_font)
        document.setPlainText(text)
        cursor = QTextCursor(document)
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(self._plain_line)
        cursor.mergeCharFormat(self._formats[""])
        return document

    def code(self, spans: list[Span]) -> QTextDocument:
        """Highlighted code."""
        document = SafeDocument(self.code_font)
        cursor = QTextCursor(document)
        cursor.beginEditBlock()
        self.insert_code(cursor, spans)
        cursor.endEditBlock()
        return document

    def insert_code(self, cursor: QTextCursor, spans: list[Span]) -> None:
        """Inserts highlighted code at ``cursor``."""
        for span in spans:
            cursor.insertText(span.text, self._formats[span.name])

    def _style_sheet(self, color: str) -> str:
        colors = self.theme.colors
        family = self.code_font.family()
        size = self.code_font.pointSizeF()
        mono = f'font-family:"{family}",monospace; font-size:{size}pt'
        return (
            f"p, td, th {{ color: {color}; }}"
            f"a {{ color: {colors['accent']}; text-decoration: underline; }}"
            f"code {{ {mono}; background-color: {colors['raised']}; }}"
            f".math {{ {mono}; color: {color}; }}"
            f"th {{ background-color: {colors['raised']}; font-weight: 600; }}"
        )


def _set_columns(document: QTextDocument, columns: tuple[int, ...]) -> None:
    """Shares the width of a table out, so that all segments of a long one look like one."""
    percent = QTextLength.Type.PercentageLength
    lengths = [QTextLength(percent, 100.0 * chars / sum(columns)) for chars in columns]
    for frame in document.rootFrame().childFrames():
        if isinstance(frame, QTextTable):
            layout = frame.format().toTableFormat()
            layout.setColumnWidthConstraints(lengths)
            frame.setFormat(layout)


def zoomed(font: QFont, zoom: float) -> QFont:
    """``font``, larger."""
    font.setPointSizeF(font.pointSizeF() * zoom)
    return font


def source_html(formula: Formula) -> str:
    """The source of a formula, as it stands in the text."""
    return f'<span class="math">{escape(formula.source)}</span>'.replace("\n", "<br>")


def _colored(color: str) -> QTextCharFormat:
    made = QTextCharFormat()
    made.setForeground(QColor(color))
    return made


def _line_percent(font: QFont, metrics: QFontMetricsF) -> int:
    """Qt's line height is in percent of the font's own spacing; ours is in ems."""
    em = font.pointSizeF() * metrics.fontDpi() / 72.0
    return max(100, round(100.0 * themes.LINE_HEIGHT * em / metrics.lineSpacing()))
