"""The selection of a transcript: held by the view, over as many messages as the user likes."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QTextCursor, QTextDocument

from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.page import Page


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A character: message index, box index, offset in the box's document."""

    message: int
    box: int
    char: int


class Selection:
    """From ``anchor`` (where the mouse went down) to ``caret``; empty while one of them is None."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.anchor: Position | None = None
        self.caret: Position | None = None

    def clear(self) -> None:
        self.anchor = self.caret = None

    @property
    def is_empty(self) -> bool:
        return self.anchor is None or self.caret is None or self.anchor == self.caret

    def select_all(self) -> None:
        """Everything on the page."""
        if not self._page.items:
            return
        last = len(self._page.items) - 1
        self.anchor = Position(0, 0, 0)
        self.caret = Position(last, max(0, len(self._page.items[last].boxes) - 1), _END)

    def range_in(self, message: int, box: int) -> tuple[int, int] | None:
        """(start, end) selected in a box; ``end`` may be beyond its text. None if nothing is."""
        if self.is_empty:
            return None
        assert self.anchor is not None
        assert self.caret is not None
        first, last = sorted((self.anchor, self.caret))
        here = (message, box)
        if here < (first.message, first.box) or here > (last.message, last.box):
            return None
        start = first.char if here == (first.message, first.box) else 0
        end = last.char if here == (last.message, last.box) else _END
        return (start, end) if start < end else None

    def text(self) -> str:
        """What is selected, as plain text; blocks one line apart, messages two."""
        messages: list[str] = []
        for m, item in enumerate(self._page.items):
            # A message far from the viewport may not be cut into boxes yet.
            if self._touches(m):
                item.sync(self._page.column, self._page.factory)
            pieces = [
                self._piece(box, *found)
                for b, box in enumerate(item.boxes)
                if (found := self.range_in(m, b)) is not None
            ]
            if pieces:
                messages.append("\n".join(pieces))
        return "\n\n".join(messages)

    def _touches(self, message: int) -> bool:
        if self.is_empty:
            return False
        assert self.anchor is not None
        assert self.caret is not None
        first, last = sorted((self.anchor, self.caret))
        return first.message <= message <= last.message

    def _piece(self, box: BlockBox, start: int, end: int) -> str:
        if start == 0 and end == _END:
            text = box.plain_text()
        else:
            box.lay_out(box.width, self._page.factory)
            text = _document_text(box.document, start, end)
        return f"{box.block.marker} {text}" if box.block.marker and start == 0 else text


_END = 1 << 30


def cursor_for(document: QTextDocument, start: int, end: int) -> QTextCursor:
    """A cursor that selects ``start`` … ``end``, both cut to the document."""
    last = max(0, document.characterCount() - 1)
    cursor = QTextCursor(document)
    cursor.setPosition(min(start, last))
    cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
    return cursor


def _document_text(document: QTextDocument | None, start: int, end: int) -> str:
    if document is None:
        return ""
    text = cursor_for(document, start, end).selectedText()
    return text.replace("\u2029", "\n").replace("\u2028", "\n").replace("\u00a0", " ")
