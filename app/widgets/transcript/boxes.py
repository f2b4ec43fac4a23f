"""One block on the page: its place, its height, and its document while it is near the viewport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QTextDocument

from app.find_text import plain_text, read_text
from app.highlight import ROOT, Span, Stack, lex
from app.markdown_blocks import CODE, FORMULA, HEADING, PLAIN, RULE, TABLE, TEXT, THOUGHT, Block
from app.markdown_inline import begins_right_to_left
from app.markdown_math import with_sources
from app.widgets.transcript.code import OpenCode
from app.widgets.transcript.documents import DocumentFactory

if TYPE_CHECKING:
    from app.widgets.transcript.sections import Section

INDENT = 24.0
QUOTE = 16.0
CODE_PADDING = 12.0
CODE_HEADER = 30.0
THOUGHT_HEIGHT = 28.0
_MAX_PREDECESSORS = 4


class BlockBox:
    """Geometry in pixels: ``y`` from the top of its message, ``height`` without ``gap`` above it.

    ``height`` is an estimate until ``lay_out``; ``is_exact`` tells. ``document`` is None while the
    box is far from the viewport. ``width`` is what the whole box may take. ``offset`` is from the
    top of its ``section``, in which it is number ``index``.
    """

    def __init__(self, block: Block, before: BlockBox | None, section: Section, index: int) -> None:
        self.block = block
        self.is_right_to_left = _is_right_to_left(block)
        self.before = before
        self.section = section
        self.index = index
        self.offset = 0.0
        self.width = 0.0
        self.height = 0.0
        self.is_exact = False
        self.document: QTextDocument | None = None
        self.end_stack: Stack | None = None
        self._code: OpenCode | None = None

    @property
    def y(self) -> float:
        return self.section.top + self.offset

    @property
    def gap(self) -> float:
        """Space above the box."""
        if self.before is None and self.section.index == 0:
            return 0.0
        # Where the section above is not parsed, it ends in a paragraph as far as anybody knows.
        kind = self.block.kind
        other = _PARAGRAPH if self.before is None else self.before.block
        if kind == CODE:
            return 12.0 if self.block.first else 0.0
        if kind == HEADING:
            return 18.0
        if kind == PLAIN:
            return 0.0
        if kind == TABLE and not self.block.first:
            # Its upper border on the lower one of the segment above.
            return -3.0
        if self.block.indent and other.indent and kind == TEXT == other.kind:
            return 5.0
        return 12.0 if CODE in (kind, other.kind) else 10.0

    @property
    def quote(self) -> int:
        """Number of bars at its left: of quotes, and one of reasoning."""
        is_thought = self.section.thought > 0
        return self.block.quote + (1 if is_thought else 0)

    @property
    def text_x(self) -> float:
        """Left edge of the text, from the left edge of the box."""
        left = 0.0 if self.is_right_to_left else self.inset
        return left + (CODE_PADDING if self.block.kind == CODE else 0.0)

    @property
    def inset(self) -> float:
        """Room for bars and markers beside the text, where its lines begin."""
        return self.block.indent * INDENT + self.quote * QUOTE

    @property
    def text_y(self) -> float:
        """Top edge of the text, from the top of the box."""
        return CODE_HEADER if self.block.kind == CODE and self.block.first else 0.0

    @property
    def text_width(self) -> float:
        right = CODE_PADDING if self.block.kind == CODE else 0.0
        if self.is_right_to_left:
            right += self.inset
        return max(40.0, self.width - self.text_x - right)

    def plain_text(self) -> str:
        """The text that selecting the whole box gives, without a document if possible."""
        if self.block.kind == CODE:
            return self.block.code
        if self.block.kind == PLAIN:
            return self.block.html
        if self.block.kind in (RULE, THOUGHT):
            return ""
        if self.document is None or self.block.mirrored:
            text = read_text(self.block).replace("\u00a0", " ")
        else:
            text = with_sources(self.document.toPlainText(), self.block.formulas)
        return text.strip("\n")

    def text_document(self, factory: DocumentFactory) -> QTextDocument | None:
        """The document, or one like it that is not kept: what is read must not move for it."""
        if self.document is not None or self.block.kind in (RULE, THOUGHT):
            return self.document
        if self.block.kind == CODE:
            return factory.code([Span("", self.block.code)])
        return self._text_document(factory)

    def estimate(self, width: float, factory: DocumentFactory) -> None:
        """Guesses the height for ``width`` from the length of the text."""
        self.width = width
        self.is_exact = False
        if self.block.kind in _FIXED_HEIGHTS:
            self.height = _FIXED_HEIGHTS[self.block.kind]
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
        if self.block.kind in _FIXED_HEIGHTS:
            self.height = _FIXED_HEIGHTS[self.block.kind]
        else:
            document = self._ensure_document(factory)
            # Parts of one long table look alike only if none is made to fit by itself.
            if self.block.kind == TABLE and not self.block.columns:
                factory.fit_table(document, self.text_width)
            document.setTextWidth(self.text_width)
            self.height = document.size().height() + self._frame_height()
        self.is_exact = True
        return self.height - before

    def narrow(self, width: float) -> None:
        """Makes the lines as short as what is around them; none breaks for it, but right-to-left
        ones begin elsewhere.
        """
        if self.document is not None and self.document.textWidth() != width:
            self.document.setTextWidth(width)

    def release(self) -> None:
        """Drops the document; the height stays known."""
        self.document = None
        self._code = None

    def replace_block(self, block: Block, factory: DocumentFactory) -> None:
        """The open block changed: keeps the document where its kind allows."""
        old, self.block = self.block, block
        self.is_right_to_left = _is_right_to_left(block)
        self.is_exact = False
        self.end_stack = None
        if self.document is None:
            return
        if self._code is not None and self._code.extend(block):
            return
        if old.kind == block.kind and block.kind in (TEXT, HEADING, TABLE, FORMULA):
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
            else:
                self.document = self._text_document(factory)
        return self.document

    def _text_document(self, factory: DocumentFactory) -> QTextDocument:
        if self.block.kind == PLAIN:
            return factory.plain(self.block.html)
        return factory.text(self.block, is_quiet=self.section.thought > 0)

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


def _is_right_to_left(block: Block) -> bool:
    """True if the first letter of a block that stands beside something says so."""
    if block.kind == CODE or not (block.indent or block.quote):
        return False
    if block.kind == TABLE:
        return block.mirrored
    return begins_right_to_left(plain_text(block)[:_FIRST_CHARS])


_FIRST_CHARS = 200
_PARAGRAPH = Block(TEXT)
_FIXED_HEIGHTS = {RULE: 1.0, THOUGHT: THOUGHT_HEIGHT}
