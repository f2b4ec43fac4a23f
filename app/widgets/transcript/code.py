"""Code that still grows: only its new lines are lexed and inserted."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor, QTextDocument

from app.highlight import Stack, lex
from app.markdown_blocks import CODE, Block
from app.widgets.transcript.documents import DocumentFactory


class OpenCode:
    """The document of a code segment, and how far its colours are settled.

    A line is lexed once it is complete, with the state after the line before. Rules that look over
    several lines miss that way; ``is_rough`` tells that the segment should be lexed as a whole when
    it is closed.
    """

    def __init__(
        self, document: QTextDocument, block: Block, start: Stack, factory: DocumentFactory
    ) -> None:
        self.is_rough = False
        self._document = document
        self._block = block
        self._factory = factory
        self._settled = ""
        self._stack = start

    def extend(self, block: Block) -> bool:
        """Takes over ``block``, which goes on where the last one stopped. False if it does not."""
        same = (CODE, self._block.language, self._block.first)
        if (block.kind, block.language, block.first) != same:
            return False
        if not block.code.startswith(self._settled):
            return False
        self.is_rough = True
        self._block = block
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        # Positions in a document count UTF-16 units.
        cursor.setPosition(len(self._settled.encode("utf-16-le", "surrogatepass")) // 2)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        self._insert_new_lines(cursor, block.code)
        rest = block.code[len(self._settled) :]
        self._factory.insert_code(cursor, lex(rest, block.language, self._stack)[0])
        cursor.endEditBlock()
        return True

    def _insert_new_lines(self, cursor: QTextCursor, code: str) -> None:
        end = code.rfind("\n") + 1
        fresh = code[len(self._settled) : end]
        if not fresh:
            return
        spans, self._stack = lex(fresh[:-1], self._block.language, self._stack)
        self._factory.insert_code(cursor, spans)
        cursor.insertText("\n")
        self._settled = code[:end]
