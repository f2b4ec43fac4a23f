"""The end of a message that streams: boxes that may still change, kept in line with the text."""

from __future__ import annotations

from app.markdown import MarkdownStream
from app.markdown_blocks import Block
from app.markdown_slices import SliceStart
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.sections import MAX_BOXES, Section


class GrowingEnd:
    """Appends to the message's ``sections``. A box whose block is closed is not touched again.

    ``thought``: the reasoning that the text belongs to, or 0.
    """

    def __init__(
        self, text: str, start: SliceStart, sections: list[Section], thought: int = 0
    ) -> None:
        self.thought = thought
        self._stream = MarkdownStream("", start)
        self._pending = text
        self._sections = sections
        self._open_boxes: list[BlockBox] = []
        self._num_closed = 0

    def append(self, text: str) -> None:
        """Cheap; ``take`` parses it."""
        self._pending += text

    def take(
        self, is_open: bool, width: float, factory: DocumentFactory, limit: int | None = None
    ) -> bool:
        """Parses what is new, at most ``limit`` characters of it. ``is_open`` False: the text is
        complete. True if something is left for the next time.
        """
        stream = self._stream
        stream.append(self._pending[:limit])
        self._pending = "" if limit is None else self._pending[limit:]
        is_behind = bool(self._pending)
        if is_open or is_behind:
            stream.refresh()
        else:
            stream.finish()
        fresh = stream.closed[self._num_closed :]
        num_closed = len(fresh)
        fresh += stream.open
        touched = {
            box.section
            for index, block in enumerate(fresh)
            if (box := self._fitted(index, block, width, factory)) is not None
        }
        while len(self._open_boxes) > len(fresh):
            box = self._open_boxes.pop()
            box.section.boxes.pop()
            touched.add(box.section)
        for box in self._open_boxes[:num_closed]:
            box.close()
        del self._open_boxes[:num_closed]
        self._num_closed += num_closed
        for section in touched:
            section.place()
        return is_behind

    def _fitted(
        self, index: int, block: Block, width: float, factory: DocumentFactory
    ) -> BlockBox | None:
        """The box for an open block; None if it shows that block already."""
        if index == len(self._open_boxes):
            box = self._new_box(block)
        else:
            box = self._open_boxes[index]
            if box.block == block:
                return None
            box.replace_block(block, factory)
        if box.document is None:
            box.estimate(width, factory)
        return box

    def _new_box(self, block: Block) -> BlockBox:
        tail = self._sections[-1] if self._sections else None
        goes_on = tail is not None and tail.source is None and tail.thought == self.thought
        if tail is None or not goes_on or tail.is_header or len(tail.boxes) >= MAX_BOXES:
            tail = Section(len(self._sections), thought=self.thought)
            self._sections.append(tail)
        box = tail.add(block, self._last_box())
        self._open_boxes.append(box)
        return box

    def _last_box(self) -> BlockBox | None:
        """The box above the next one; None if its section is not parsed."""
        for section in reversed(self._sections):
            if section.boxes or not section.is_parsed:
                return section.boxes[-1] if section.boxes else None
        return None
