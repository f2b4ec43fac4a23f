"""Where every message lies on the page, and what is laid out. No painting, no input."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PySide6.QtCore import QPointF, Qt

from app.widgets.transcript.body import USER_PAD_X
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.message import AT_ONCE, MessageItem

MAX_COLUMN = 760
SIDE_MARGIN = 20
TOP_MARGIN, BOTTOM_MARGIN = 20.0, 16.0
MESSAGE_GAP = 6.0
_MAX_PASSES = 6


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in a message that should not move while heights around it change.

    ``section`` and ``box`` by number, −1 where there is none yet. ``share`` of the height of the
    box, or else of the section, or else of the message; ``rest``: pixels above or below all of it.
    ``char``: a character in the line at the place, if the box was laid out, and ``line_offset``:
    pixels from the top of that line.
    """

    item: MessageItem
    section: int = -1
    box: int = -1
    share: float = 0.0
    rest: float = 0.0
    char: int = -1
    line_offset: float = 0.0

    def within(self, height: float) -> float:
        """Pixels from the top of what is so high now."""
        return self.share * height + self.rest


class Page:
    """Messages from top to bottom. Pixels, from the top left corner of the whole page.

    ``is_behind``: after ``settle``, a message in sight has text that it does not show yet.
    """

    def __init__(self, factory: DocumentFactory) -> None:
        self.factory = factory
        self.items: list[MessageItem] = []
        self.column = float(MAX_COLUMN)
        self.left = 0.0
        self.height = 0.0
        self.is_behind = False
        self._tops: list[float] = []
        self._live: set[MessageItem] = set()

    def set_width(self, width: int) -> None:
        """Fits the column into ``width``; all heights become estimates if it changed."""
        column = float(max(160, min(MAX_COLUMN, width - 2 * SIDE_MARGIN)))
        self.left = float(max(0, round((width - column) / 2)))
        if column != self.column:
            self.column = column
            self.reestimate()

    def reestimate(self) -> None:
        """Guesses every height anew: another width or other fonts."""
        for item in self.items:
            item.estimate(self.column, self.factory)
        self.place()

    def add(self, item: MessageItem) -> None:
        item.estimate(self.column, self.factory)
        self.items.append(item)
        self.place()

    def place(self) -> None:
        """Stacks the messages."""
        y = TOP_MARGIN
        tops = []
        for index, item in enumerate(self.items):
            item.index = index
            item.top = y
            tops.append(y)
            y += item.height + MESSAGE_GAP
        self._tops = tops
        self.height = y + BOTTOM_MARGIN

    def index_at(self, y: float) -> int:
        """Index of the message at or above ``y``; 0 on an empty page."""
        return max(0, bisect_right(self._tops, y) - 1)

    def box_at(self, y: float) -> tuple[MessageItem, BlockBox] | None:
        """The box at or nearest above ``y``; None where nothing is laid out."""
        if not self.items:
            return None
        item = self.items[self.index_at(y)]
        section = item.section_at(y - item.top)
        box = None if section is None else section.box_at(y - item.top - section.top)
        return None if box is None else (item, box)

    def box_left(self, item: MessageItem) -> float:
        """Left edge of a message's boxes."""
        if not item.view.is_user:
            return self.left
        return self.left + self.column - item.bubble_width + USER_PAD_X

    def anchor_at(self, y: float) -> Anchor | None:
        """What is at ``y``, to come back to after heights changed."""
        if not self.items:
            return None
        item = self.items[self.index_at(y)]
        local = y - item.top
        section = item.section_at(local)
        if section is None:
            return Anchor(item, -1, -1, *_share(local, item.height))
        local -= section.top
        box = section.box_at(local)
        if box is None:
            return Anchor(item, section.index, -1, *_share(local, section.height))
        local -= box.offset
        share, rest = _share(local, box.height)
        line = None if rest else _line_at(box, local)
        if line is None:
            return Anchor(item, section.index, box.index, share, rest)
        char, top = line
        return Anchor(item, section.index, box.index, share, rest, char, local - top)

    def anchor_y(self, anchor: Anchor) -> float:
        """Where the anchor is now; as near as can be told while its box is not laid out."""
        item = anchor.item
        if not 0 <= anchor.section < len(item.sections):
            return item.top + (anchor.within(item.height) if anchor.section < 0 else 0.0)
        section = item.sections[anchor.section]
        top = item.top + section.top
        if not 0 <= anchor.box < len(section.boxes):
            return top + (anchor.within(section.height) if anchor.box < 0 else 0.0)
        box = section.boxes[anchor.box]
        y = _line_y(box, anchor.char) if anchor.char >= 0 else None
        within = anchor.within(box.height) if y is None else y + anchor.line_offset
        return top + box.offset + within

    def lay_out(self, top: float, bottom: float) -> bool:
        """Lays out what lies between ``top`` and ``bottom``. True if a height changed."""
        changed = False
        for item in self._near(top, bottom):
            self._live.add(item)
            changed |= item.lay_out(self.column, top - item.top, bottom - item.top, self.factory)
        if changed:
            self.place()
        return changed

    def _near(self, top: float, bottom: float) -> Iterator[MessageItem]:
        for index in range(self.index_at(top), len(self.items)):
            if self.items[index].top > bottom:
                break
            yield self.items[index]

    def settle(
        self, y: float, height: float, margin: float, follow: bool, anchor: Anchor | None = None
    ) -> float:
        """Lays out around the window at ``y`` until nothing moves. Returns the window's new ``y``.

        What is at the top of the window stays there, or ``anchor`` comes there, or the end of the
        page if ``follow``.
        """
        if follow:
            y = max(0.0, self.height - height)
        elif anchor is not None:
            y = self.anchor_y(anchor)
        self.is_behind = False
        for item in self._near(y - margin, y + height + margin):
            item.sync(self.column, self.factory, AT_ONCE)
            self.is_behind |= item.is_behind
        self.place()
        for _ in range(_MAX_PASSES):
            if follow:
                y = max(0.0, self.height - height)
            elif anchor is not None:
                y = max(0.0, min(self.anchor_y(anchor), self.height - height))
            kept = anchor if follow or anchor is not None else self.anchor_at(y)
            if not self.lay_out(y - margin, y + height + margin):
                break
            if kept is not None:
                y = self.anchor_y(kept)
        if follow:
            return max(0.0, self.height - height)
        return max(0.0, min(y, self.height - height))

    def release(self, top: float, bottom: float) -> None:
        """Drops the documents outside ``top`` … ``bottom``."""
        for item in list(self._live):
            if not item.release(top - item.top, bottom - item.top):
                self._live.discard(item)

    def clear(self) -> None:
        """Takes all messages off the page."""
        self.items = []
        self._live.clear()
        self.place()

    def remove(self, item: MessageItem) -> None:
        """Takes one message off the page."""
        self.items.remove(item)
        self._live.discard(item)
        self.place()

    def drop_documents(self) -> None:
        """Drops all documents; fonts or colours changed."""
        for item in self.items:
            item.drop_documents()
        self._live.clear()

    def drop_some(self, is_meant: Callable[[BlockBox], bool]) -> bool:
        """Drops the documents of the boxes that are meant. True if there were any."""
        dropped = False
        for item in self._live:
            for box in item.live_boxes():
                if is_meant(box):
                    box.release()
                    box.is_exact = False
                    dropped = True
        return dropped

    def visible(self, top: float, bottom: float) -> list[tuple[MessageItem, list[BlockBox]]]:
        """Messages and their boxes that touch ``top`` … ``bottom``."""
        found = []
        for index in range(self.index_at(top), len(self.items)):
            item = self.items[index]
            if item.top > bottom:
                break
            if item.top + item.height >= top:
                found.append((item, item.boxes_between(top - item.top, bottom - item.top)))
        return found


def _share(y: float, height: float) -> tuple[float, float]:
    """``y`` as a share of ``height``, and what is left above or below."""
    share = min(1.0, max(0.0, y / height)) if height > 0 else 0.0
    return share, y - share * height if share in (0.0, 1.0) else 0.0


def _line_at(box: BlockBox, y: float) -> tuple[int, float] | None:
    """(first character, top from the box's top) of the line at ``y``; None without a layout."""
    if box.document is None or not box.is_exact or y < box.text_y:
        return None
    layout = box.document.documentLayout()
    char = layout.hitTest(QPointF(0.0, y - box.text_y), Qt.HitTestAccuracy.FuzzyHit)
    if char < 0:
        return None
    top = _line_y(box, char)
    return None if top is None else (char, top)


def _line_y(box: BlockBox, char: int) -> float | None:
    """Top of the line that holds a character, from the box's top; None without a layout."""
    if box.document is None or not box.is_exact:
        return None
    block = box.document.findBlock(char)
    if not block.isValid():
        return None
    line = block.layout().lineForTextPosition(char - block.position())
    if not line.isValid():
        return None
    top = box.document.documentLayout().blockBoundingRect(block).y()
    return box.text_y + top + line.y()
