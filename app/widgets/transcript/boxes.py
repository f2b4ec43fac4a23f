"""One block on the page: its place, its height, and its document while it is near the viewport."""

from __future__ import annotations

from PySide6.QtGui import QTextDocument

from app.highlight import ROOT, Stack, lex
from app.markdown_blocks import CODE, HEADING, RULE, TABLE, TEXT, Block
from app.widgets.transcript.code import OpenCode
from app.widgets.transcript.documents import DocumentFactory

PLAIN = "plain"
INDENT = 24.0
QUOTE = 16.0
CODE_PADDING = 12.0
CODE_HEADER = 30.0
_MAX_PREDECESSORS = 4


class BlockBox:
    """Geometry in pixels: ``y`` from the top of its message, ``height`` without ``gap`` above it.

    ``height`` is an estimate until ``lay_out``; ``is_exact`` tells. ``document`` is None while the
    box is far from the viewport. ``width`` is what the whole box may take.
    """

    def __init__(self, block: Block, before: BlockBox | None) -> None:
        self.block = block
        self.before = before
        self.y = 0.0
        self.width = 0.0
        self.height = 0.0
        self.is_exact = False
        self.document: QTextDocument | None = None
        self.end_stack: Stack | None = None
        self._code: OpenCode | None = None

    @property
    def gap(self) -> float:
        """Space above the box."""
        if self.before is None:
            return 0.0
        kind, other = self.block.kind, self.before.block
        if kind == CODE:
            return 12.0 if self.block.first else 0.0
        if kind == HEADING:
            return 18.0
        if kind == PLAIN:
            return 0.0
        if self.block.indent and other.indent and kind == TEXT == other.kind:
            return 5.0
        return 12.0 if CODE in (kind, other.kind) else 10.0

    @property
    def text_x(self) -> float:
        """Left edge of the text, from the left edge of the box."""
        left = self.block.indent * INDENT + self.block.quote * QUOTE
        return left + (CODE_PADDING if self.block.kind == CODE else 0.0)

    @property
    def text_y(self) -> float:
        """Top edge of the text, from the top of the box."""
        return CODE_HEADER if self.block.kind == CODE and self.block.first else 0.0

    @property
    def text_width(self) -> float:
        right = CODE_PADDING if self.block.kind == CODE else 0.0
        return max(40.0, self.width - self.text_x - right)

    def plain_text(self) -> str:
        """The text that selecting the whole box gives, without a document if possible."""
        if self.block.kind == CODE:
            return self.block.code
        if self.block.kind == PLAIN:
            return self.block.html
        if self.block.kind == RULE:
            return ""
        document = self.document
        if document is None:
            document = QTextDocument()
            document.setHtml(self.block.html.join(_TEXT_WRAP[self.block.kind]))
        return document.toPlainText().replace("\ufffc", "")

    def estimate(self, width: float, factory: DocumentFactory) -> None:
        """Guesses the height for ``width`` from the length of the text."""
        self.width = width
        self.is_exact = False
        if self.block.kind == RULE:
            self.height = 1.0
        elif self.block.kind == CODE:
            lines = self.block.code.count("\n") + 1
            self.height = lines * factory.code_metrics.lineSpacing() + self._frame_height()
        else:
            per_line = max(8.0, self.text_width / (factory.body_metrics.averageCharWidth() or 7.0))
            text = self.block.html
            lines = sum(int(len(part) / per_line) + 1 for part in text.split("\n"))
            self.height = lines * factory.body_line_height

    def lay_out(self, width: float, factory: DocumentFactory) -> float:
        """Makes the document and takes its true height. Returns by how much the height changed."""
        if self.document is not None and self.is_exact and self.width == width:
            return 0.0
        before = self.height
        self.width = width
        if self.block.kind == RULE:
            self.height = 1.0
        else:
            document = self._ensure_document(factory)
            document.setTextWidth(self.text_width)
            self.height = document.size().height() + self._frame_height()
        self.is_exact = True
        return self.height - before

    def release(self) -> None:
        """Drops the document; the height stays known."""
        self.document = None
        self._code = None

    def replace_block(self, block: Block, factory: DocumentFactory) -> None:
        """The open block changed: keeps the document where its kind allows."""
        old, self.block = self.block, block
        self.is_exact = False
        self.end_stack = None
        if self.document is None:
            return
        if self._code is not None and self._code.extend(block):
            return
        if old.kind == block.kind and block.kind in (TEXT, HEADING, TABLE):
            factory.update_text(self.document, block)
        else:
            self.release()

    def close(self) -> None:
        """The block will not change any more: what was coloured line by line is coloured anew."""
        if self._code is not None and self._code.is_rough:
            self.release()
            self.is_exact = False

    def _frame_height(self) -> float:
        if self.block.kind != CODE:
            return 0.0
        return self.text_y + (CODE_PADDING if self.block.last else 0.0)

    def _ensure_document(self, factory: DocumentFactory) -> QTextDocument:
        if self.document is None:
            if self.block.kind == CODE:
                start = ROOT if self.block.first else self._stack_before(_MAX_PREDECESSORS)
                spans, self.end_stack = lex(self.block.code, self.block.language, start)
                self.document = factory.code(spans)
                self._code = OpenCode(self.document, self.block, start, factory)
            elif self.block.kind == PLAIN:
                self.document = factory.plain(self.block.html)
            else:
                self.document = factory.text(self.block)
        return self.document

    def _stack_before(self, limit: int) -> Stack:
        """The lexer's state where this segment begins; guessed beyond ``limit`` segments."""
        before = self.before
        if before is None or before.block.kind != CODE or limit == 0:
            return ROOT
        if before.end_stack is None:
            first = before.block.first
            start = ROOT if first else before._stack_before(limit - 1)
            _spans, before.end_stack = lex(before.block.code, before.block.language, start)
        return before.end_stack


_TEXT_WRAP = {
    TEXT: ("<p>", "</p>"),
    HEADING: ("<p>", "</p>"),
    TABLE: ("<table>", "</table>"),
}
