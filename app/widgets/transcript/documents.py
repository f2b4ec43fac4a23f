"""Blocks to text documents in the colours of a theme."""

from __future__ import annotations

from html import escape
from typing import Any

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextOption,
)

from app import theme as themes
from app.highlight import Span
from app.markdown_blocks import HEADING, TABLE, Block
from app.theme import Theme

HEADING_SCALE = {1: 1.45, 2: 1.25, 3: 1.12}


class SafeDocument(QTextDocument):
    """A document that never loads anything: no image, no file, no address."""

    def __init__(self, font: QFont) -> None:
        super().__init__()
        self.setUndoRedoEnabled(False)
        self.setDocumentMargin(0)
        self.setDefaultFont(font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setDefaultTextOption(option)

    def loadResource(self, type: int, name: QUrl | str) -> Any:
        return None


class DocumentFactory:
    """Makes documents for one theme; a new theme needs a new factory."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.body_font = themes.body_font()
        self.code_font = themes.code_font()
        self.body_metrics = QFontMetricsF(self.body_font)
        self.code_metrics = QFontMetricsF(self.code_font)
        self._line_percent = _line_percent(self.body_font, self.body_metrics)
        self._style = self._style_sheet()
        self._formats = {name: _colored(color) for name, color in theme.syntax.items()}
        self._formats[""] = _colored(theme.colors["text"])

    @property
    def body_line_height(self) -> float:
        """Height of one line of text, in pixels."""
        return self.body_metrics.lineSpacing() * self._line_percent / 100.0

    def text(self, block: Block) -> QTextDocument:
        """A text, heading or table block."""
        document = SafeDocument(self.body_font)
        document.setDefaultStyleSheet(self._style)
        document.setHtml(self.html(block))
        return document

    def update_text(self, document: QTextDocument, block: Block) -> None:
        """Replaces the text of a document made by ``text``."""
        document.setHtml(self.html(block))

    def html(self, block: Block) -> str:
        if block.kind == TABLE:
            line = self.theme.colors["strong_line"]
            return (
                '<table border="1" cellspacing="0" cellpadding="6" '
                f'style="border-collapse:collapse; border-color:{line}; border-style:solid">'
                f"{block.html}</table>"
            )
        if block.kind == HEADING:
            size = themes.BODY_POINT_SIZE * HEADING_SCALE.get(block.level, 1.0)
            style = f"font-size:{size:.1f}pt; font-weight:600"
            return f'<p style="margin:0; {style}">{block.html}</p>'
        return f'<p style="margin:0; line-height:{self._line_percent}%">{block.html}</p>'

    def plain(self, text: str) -> QTextDocument:
        """Text as it was typed."""
        document = SafeDocument(self.body_font)
        document.setDefaultStyleSheet(self._style)
        lines = escape(text).replace("\n", "<br>")
        style = f"margin:0; line-height:{self._line_percent}%; white-space:pre-wrap"
        document.setHtml(f'<p style="{style}">{lines}</p>')
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

    def _style_sheet(self) -> str:
        colors = self.theme.colors
        family = self.code_font.family()
        size = themes.CODE_POINT_SIZE
        mono = f'font-family:"{family}",monospace; font-size:{size}pt'
        return (
            f"p, td, th {{ color: {colors['text']}; }}"
            f"a {{ color: {colors['accent']}; text-decoration: underline; }}"
            f"code {{ {mono}; background-color: {colors['raised']}; }}"
            f".math {{ {mono}; color: {colors['text']}; }}"
            f"th {{ background-color: {colors['raised']}; font-weight: 600; }}"
        )


def _colored(color: str) -> QTextCharFormat:
    made = QTextCharFormat()
    made.setForeground(QColor(color))
    return made


def _line_percent(font: QFont, metrics: QFontMetricsF) -> int:
    """Qt's line height is in percent of the font's own spacing; ours is in ems."""
    em = font.pointSizeF() * metrics.fontDpi() / 72.0
    return max(100, round(100.0 * themes.LINE_HEIGHT * em / metrics.lineSpacing()))
