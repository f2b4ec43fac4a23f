"""The selection of a transcript: held by the view, over as many messages as the user likes."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QTextCursor, QTextDocument

from app.markdown_blocks import PLAIN
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.formula_object import with_drawn
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.page import Page


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A character: message, section and box by number, offset in the box's document.

    None of these numbers changes while text streams, or with theme, fonts and width.
    """

    message: int
    section: int
    box: int
    char: int


def position_of(item: MessageItem, box: BlockBox, char: int) -> Position:
    """A character of a box."""
    return Position(item.index, box.section.index, box.index, char)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is selected of one box. ``separator``: what parts it from the box above. ``starts``: its
    beginning is selected; ``is_whole``: all of it.
    """

    box: BlockBox
    text: str
    separator: str
    starts: bool
    is_whole: bool


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
        self.anchor = Position(0, 0, 0, 0)
        self.caret = Position(len(self._page.items) - 1, _END, _END, _END)

    def range_in(self, item: MessageItem, box: BlockBox) -> tuple[int, int] | None:
        """(start, end) selected in a box; ``end`` may be beyond its text. None if nothing is."""
        if self.is_empty:
            return None
        first, last = self._ends()
        here = (item.index, box.section.index, box.index)
        first_box = (first.message, first.section, first.box)
        last_box = (last.message, last.section, last.box)
        if here < first_box or here > last_box:
            return None
        start = first.char if here == first_box else 0
        end = last.char if here == last_box else _END
        return (start, end) if start < end else None

    def text(self) -> str:
        """What is selected, as plain text; blocks one line apart, messages two."""
        return "\n\n".join(
            "".join(
                piece.separator
                + (f"{piece.box.block.marker} " if _shows_marker(piece) else "")
                + piece.text
                for piece in chosen
            )
            for _item, chosen in self.chosen()
        )

    def chosen(self) -> list[tuple[MessageItem, list[Chosen]]]:
        """What is selected of each message, box by box; folded reasoning is not."""
        if self.is_empty:
            return []
        first, last = self._ends()
        found = []
        for item in self._page.items[first.message : last.message + 1]:
            # A message far from the viewport may not be cut into boxes yet.
            item.parse_all(self._page.column, self._page.factory)
            pieces: list[Chosen] = []
            for section in item.sections:
                if section.is_folded or section.is_header:
                    continue
                for box in section.boxes:
                    place = self.range_in(item, box)
                    if place is not None:
                        separator = _separator(box) if pieces else ""
                        pieces.append(self._piece(box, separator, *place))
            if pieces:
                found.append((item, pieces))
        return found

    def short_text(self) -> str:
        """What is selected, if it is part of one line; else empty."""
        if self.is_empty:
            return ""
        first, last = self._ends()
        if (first.message, first.section, first.box) != (last.message, last.section, last.box):
            return ""
        text = self.text()
        return text if len(text) <= _SHORT and "\n" not in text else ""

    def _ends(self) -> tuple[Position, Position]:
        assert self.anchor is not None
        assert self.caret is not None
        first, last = sorted((self.anchor, self.caret))
        return first, last

    def _piece(self, box: BlockBox, separator: str, start: int, end: int) -> Chosen:
        if start == 0 and end == _END:
            return Chosen(box, box.plain_text(), separator, True, True)
        document = box.text_document(self._page.factory)
        is_whole = start == 0 and (document is None or end >= document.characterCount() - 1)
        text = box.plain_text() if is_whole else _document_text(document, start, end)
        return Chosen(box, text, separator, start == 0, is_whole)


def _shows_marker(piece: Chosen) -> bool:
    return bool(piece.box.block.marker) and piece.starts


def _separator(box: BlockBox) -> str:
    """What parts a box from the one above: nothing where a long line was cut."""
    return "" if box.block.kind == PLAIN and not box.block.first else "\n"


_END = 1 << 30
_SHORT = 80


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
    cursor = cursor_for(document, start, end)
    text = with_drawn(document, cursor.selectionStart(), cursor.selectedText())
    return text.replace("\u2029", "\n").replace("\u2028", "\n").replace("\u00a0", " ")
