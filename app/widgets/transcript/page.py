"""Where every message lies on the page, and what is laid out. No painting, no input."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.message import USER_PAD_X, MessageItem

MAX_COLUMN = 760
SIDE_MARGIN = 20
TOP_MARGIN, BOTTOM_MARGIN = 20.0, 16.0
MESSAGE_GAP = 6.0
_MAX_PASSES = 6


@dataclass(frozen=True, slots=True)
class Anchor:
    """A point of a box that should not move while heights around it change."""

    item: MessageItem
    box_index: int
    offset: float


class Page:
    """Messages from top to bottom. Pixels, from the top left corner of the whole page."""

    def __init__(self, factory: DocumentFactory) -> None:
        self.factory = factory
        self.items: list[MessageItem] = []
        self.column = float(MAX_COLUMN)
        self.left = 0.0
        self.height = 0.0
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
        for item in self.items:
            item.top = y
            tops.append(y)
            y += item.height + MESSAGE_GAP
        self._tops = tops
        self.height = y + BOTTOM_MARGIN

    def index_at(self, y: float) -> int:
        """Index of the message at or above ``y``; 0 on an empty page."""
        return max(0, bisect_right(self._tops, y) - 1)

    def box_at(self, y: float) -> tuple[int, int] | None:
        """(message index, box index) of the box at or nearest above ``y``."""
        if not self.items:
            return None
        index = self.index_at(y)
        boxes = self.items[index].boxes
        if not boxes:
            return None
        local = y - self.items[index].top
        at = bisect_right([box.y for box in boxes], local) - 1
        return index, max(0, at)

    def box_left(self, item: MessageItem) -> float:
        """Left edge of a message's boxes."""
        if not item.view.is_user:
            return self.left
        return self.left + self.column - item.bubble_width + USER_PAD_X

    def anchor_at(self, y: float) -> Anchor | None:
        """The box at ``y``, to come back to after heights changed."""
        found = self.box_at(y)
        if found is None:
            return None
        item = self.items[found[0]]
        return Anchor(item, found[1], y - item.top - item.boxes[found[1]].y)

    def anchor_y(self, anchor: Anchor) -> float:
        """Where the anchor is now."""
        boxes = anchor.item.boxes
        if anchor.box_index >= len(boxes):
            return anchor.item.top
        return anchor.item.top + boxes[anchor.box_index].y + anchor.offset

    def lay_out(self, top: float, bottom: float) -> bool:
        """Lays out what lies between ``top`` and ``bottom``. True if a height changed."""
        changed = False
        for index in range(self.index_at(top), len(self.items)):
            item = self.items[index]
            if item.top > bottom:
                break
            self._live.add(item)
            changed |= item.lay_out(self.column, top - item.top, bottom - item.top, self.factory)
        if changed:
            self.place()
        return changed

    def settle(self, y: float, height: float, margin: float, follow: bool) -> float:
        """Lays out around the window at ``y`` until nothing moves. Returns the window's new ``y``.

        The box at the top of the window stays where it is, or the end of the page if ``follow``.
        """
        for _ in range(_MAX_PASSES):
            if follow:
                y = max(0.0, self.height - height)
            anchor = None if follow else self.anchor_at(y)
            if not self.lay_out(y - margin, y + height + margin):
                break
            if anchor is not None:
                y = self.anchor_y(anchor)
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
            for box in item.boxes:
                box.release()
                box.is_exact = False

    def visible(self, top: float, bottom: float) -> list[tuple[MessageItem, list[BlockBox]]]:
        """Messages and their boxes that touch ``top`` … ``bottom``."""
        found = []
        for index in range(self.index_at(top), len(self.items)):
            item = self.items[index]
            if item.top > bottom:
                break
            if item.top + item.height >= top:
                near = [
                    box
                    for box in item.boxes
                    if item.top + box.y + box.height >= top and item.top + box.y <= bottom
                ]
                found.append((item, near))
        return found
