"""Parts of a message that are parsed, placed and found as one.

A long message has hundreds of sections. Those far from the viewport are not parsed; their height is
a guess. Nothing here walks over all blocks of a message, so that one of 1.2 MB costs no more per
frame than a short one.
"""

from __future__ import annotations

from bisect import bisect_right

from app.markdown import MarkdownStream
from app.markdown_blocks import PLAIN, THOUGHT, Block
from app.markdown_slices import TextSlice, between_characters
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory

MAX_BOXES = 48
"""A growing message begins a new section after so many blocks."""
_NOWHERE = TextSlice(0, 0)
_PLAIN_LINES = 40
_PLAIN_CHARS = 4000


class Section:
    """Geometry in pixels: ``top`` from the top of the message, ``height`` with all gaps.

    ``source``: the message's text, of which it shows ``place_in_text``; None where the blocks come
    from a stream. ``is_plain``: the text is shown as typed. ``thought``: number of the reasoning
    that it belongs to, or 0; folded, it takes no room.
    """

    def __init__(
        self,
        index: int,
        source: str | None = None,
        place: TextSlice = _NOWHERE,
        is_plain: bool = False,
        thought: int = 0,
    ) -> None:
        self.index = index
        self.source = source
        self.place_in_text = place
        self.is_plain = is_plain
        self.thought = thought
        self.is_folded = False
        self.top = 0.0
        self.height = 0.0
        self.boxes: list[BlockBox] = []
        self.is_parsed = source is None
        self._offsets: list[float] = []
        self._natural = 0.0

    def add(self, block: Block, before: BlockBox | None) -> BlockBox:
        """Appends a box. ``before``: the one above it, in whatever section."""
        box = BlockBox(block, before, self, len(self.boxes))
        self.boxes.append(box)
        return box

    @property
    def is_header(self) -> bool:
        """True for the line that folds a thought."""
        return bool(self.boxes) and self.boxes[0].block.kind == THOUGHT

    def parse(self, width: float, factory: DocumentFactory) -> None:
        """Makes the boxes, with guessed heights."""
        if self.is_parsed or self.source is None:
            return
        self.is_parsed = True
        before = None
        for block in self.blocks():
            before = self.add(block, before)
        self.estimate(width, factory)

    def blocks(self) -> list[Block]:
        """The blocks of its part of the text, whether or not it has boxes for them."""
        source, place = self.source, self.place_in_text
        if source is None:
            return [box.block for box in self.boxes]
        text = source[place.start : place.end]
        if self.is_plain:
            starts_line = place.start == 0 or source[place.start - 1] == "\n"
            return [Block(PLAIN, html=text, first=starts_line)]
        stream = MarkdownStream(text, place.state)
        stream.finish(place.fence_goes_on, place.columns)
        return stream.closed

    def estimate(self, width: float, factory: DocumentFactory) -> None:
        """Guesses all heights for ``width``."""
        if self.is_parsed:
            for box in self.boxes:
                box.estimate(width, factory)
            self.place()
            return
        assert self.source is not None
        place = self.place_in_text
        self._natural = guess_height(self.source, place.start, place.end, width, factory)
        self.height = 0.0 if self.is_folded else self._natural

    def fold(self, is_folded: bool) -> None:
        """Takes all room away, or gives it back."""
        self.is_folded = is_folded
        self.height = 0.0 if is_folded else self._natural
        if is_folded:
            self.release(0.0, -1.0)

    def place(self) -> None:
        """Stacks the boxes."""
        y = 0.0
        offsets = []
        for box in self.boxes:
            y += box.gap
            box.offset = y
            offsets.append(y)
            y += box.height
        self._offsets = offsets
        self._natural = y
        self.height = 0.0 if self.is_folded else y

    def box_at(self, y: float) -> BlockBox | None:
        """The box at or nearest above ``y``, from the section's top."""
        if not self.boxes or self.is_folded:
            return None
        return self.boxes[max(0, bisect_right(self._offsets, y) - 1)]

    def boxes_between(self, top: float, bottom: float) -> list[BlockBox]:
        """Those that touch ``top`` … ``bottom``, from the section's top."""
        if self.is_folded:
            return []
        first = max(0, bisect_right(self._offsets, top) - 1)
        found = []
        for box in self.boxes[first:]:
            if box.offset > bottom:
                break
            if box.offset + box.height >= top:
                found.append(box)
        return found

    def lay_out(self, width: float, top: float, bottom: float, factory: DocumentFactory) -> bool:
        """Lays out the boxes between ``top`` and ``bottom``. True if a height changed."""
        changed = False
        for box in self.boxes_between(top, bottom):
            changed |= abs(box.lay_out(width, factory)) > 0.01
        if changed:
            self.place()
        return changed

    def release(self, top: float, bottom: float) -> bool:
        """Drops the documents outside ``top`` … ``bottom``. True if some are left."""
        is_left = False
        for box in self.boxes:
            if box.document is None:
                continue
            if box.offset + box.height < top or box.offset > bottom:
                box.release()
            else:
                is_left = True
        return is_left


def slice_plain(text: str) -> list[TextSlice]:
    """Cuts typed text into pieces that are quick to lay out, without the line ends between them."""
    found = []
    start = 0
    while True:
        end, begins = _end_of_piece(text, start)
        found.append(TextSlice(start, end))
        if begins is None:
            return found
        start = begins


def _end_of_piece(text: str, start: int) -> tuple[int, int | None]:
    """(end of the piece, start of the next one or None)."""
    end = start
    for _ in range(_PLAIN_LINES):
        newline = text.find("\n", end, start + _PLAIN_CHARS)
        if newline < 0:
            break
        end = newline + 1
    else:
        return end - 1, end
    if len(text) - start <= _PLAIN_CHARS:
        return len(text), None
    if end > start:
        return end - 1, end
    space = text.rfind(" ", start + _PLAIN_CHARS // 2, start + _PLAIN_CHARS)
    cut = space + 1 if space > 0 else between_characters(text, start + _PLAIN_CHARS)
    return (cut, cut) if cut < len(text) else (len(text), None)


def guess_height(text: str, start: int, end: int, width: float, factory: DocumentFactory) -> float:
    """Height of running text, from how long it is and how many lines it has. Quick at any size."""
    per_line = max(8.0, width / (factory.body_metrics.averageCharWidth() or 7.0))
    lines = (end - start) / per_line + text.count("\n", start, end) * 0.7 + 1.0
    return lines * factory.body_line_height
