"""Find in page: looks through a whole conversation bit by bit and never holds the window up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from PySide6.QtCore import QObject, QTimer, Signal

from app.find_text import folded, may_hold, occurrences, shown_text
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.formula_object import with_places
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.page import Anchor
from app.widgets.transcript.sections import Section

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

SLICE_S = 0.005
_AGAIN_MS = 400


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """The place of a hit by numbers: message, section, block, and which one in the block."""

    message: int
    section: int
    box: int
    number: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Characters of a document, as Qt counts them, that are to be set off."""

    start: int
    end: int
    is_current: bool


class Finder(QObject):
    """Hits of one word in a transcript. ``changed``: other hits, or another one is the current."""

    changed = Signal()

    def __init__(self, view: Transcript) -> None:
        super().__init__(view)
        self._view = view
        self._needle = ""
        self._before: list[Hit] = []
        self._after: list[Hit] = []
        self.current: Hit | None = None
        self._work: Iterator[None] | None = None
        self._texts: WeakKeyDictionary[Section, list[str]] = WeakKeyDictionary()
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._on_timer)
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setInterval(_AGAIN_MS)
        self._again.timeout.connect(self._look_again)

    @property
    def hits(self) -> list[Hit]:
        """What was found so far, from top to bottom."""
        return self._before + self._after

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    @property
    def number(self) -> int:
        """Number of the current hit among all, from 1; 0 if there is none."""
        return self.hits.index(self.current) + 1 if self.current in self.hits else 0

    def find(self, words: str) -> None:
        """Looks for other words, from what is in sight on. Empty ends it."""
        needle = folded(words)
        if needle == self._needle and not self._again.isActive():
            return
        self._needle = needle
        self.current = None
        self._start()

    def step(self, by: int) -> None:
        """Goes to the next hit (1) or the one before (−1), round and round."""
        hits = self.hits
        if hits:
            here = hits.index(self.current) if self.current in hits else -1 if by > 0 else 0
            self._show(hits[(here + by) % len(hits)])

    def content_changed(self, is_other: bool = False) -> None:
        """Text came: looks again soon. ``is_other``: other messages are shown, no hit holds."""
        if is_other and self._needle:
            self._before, self._after, self._work = [], [], None
            self._timer.stop()
        if self._needle and not self._again.isActive():
            self._again.start()

    def marks(self, item: MessageItem, box: BlockBox) -> list[Mark]:
        """What to set off in a box that is laid out."""
        if not self._needle or box.document is None:
            return []
        text, places = with_places(box.document)
        current = self.current
        is_here = current is not None and (
            (current.message, current.section, current.box)
            == (item.index, box.section.index, box.index)
        )
        found = []
        for number, at in enumerate(occurrences(folded(text), self._needle)):
            stop = at + len(self._needle)
            # Where it ends within the picture of a formula, all of that is meant.
            start, end = places(at), max(places(stop), places(stop - 1) + 1)
            is_current = is_here and current is not None and current.number == number
            found.append(Mark(start, end, is_current))
        return found

    # --- looking ---

    def _look_again(self) -> None:
        self._start(keep=True)

    def _start(self, keep: bool = False) -> None:
        self._again.stop()
        self._before, self._after = [], []
        first = self._view.page.index_at(float(self._view.verticalScrollBar().value()))
        self._work = self._look(first, keep) if self._needle else None
        if self._work is None:
            self._timer.stop()
        else:
            self._timer.start()
        self._tell()

    def _look(self, first: int, keep: bool) -> Iterator[None]:
        items = list(self._view.items)
        for hits, numbers in (
            (self._after, range(first, len(items))),
            (self._before, range(first)),
        ):
            for number in numbers:
                yield from self._look_in(items[number], hits)
                if hits and self.current is None and not keep:
                    self._show(hits[0])

    def _look_in(self, item: MessageItem, hits: list[Hit]) -> Iterator[None]:
        if not item.sections and not may_hold(item.text, self._needle):
            yield
            return
        item.sync(self._view.page.column, self._view.page.factory)
        for section in list(item.sections):
            for box, text in enumerate(self._shown(section)):
                hits.extend(
                    Hit(item.index, section.index, box, number)
                    for number, _at in enumerate(occurrences(text, self._needle))
                )
            yield

    def _shown(self, section: Section) -> list[str]:
        """What the blocks of a section show."""
        if section.source is None:
            return [shown_text(box.block) for box in section.boxes]
        known = self._texts.get(section)
        if known is not None:
            return known
        if not section.is_parsed:
            place = section.place_in_text
            if not may_hold(section.source[place.start : place.end], self._needle):
                return []
        texts = [shown_text(block) for block in section.blocks()]
        self._texts[section] = texts
        return texts

    def _on_timer(self) -> None:
        work, ends = self._work, time.perf_counter() + SLICE_S
        while work is not None and time.perf_counter() < ends:
            try:
                next(work)
            except StopIteration:
                self._work = work = None
                self._timer.stop()
                if self.current not in self.hits:
                    self.current = next(iter(self._after + self._before), None)
        self._tell()

    def _tell(self) -> None:
        self._view.viewport().update()
        self.changed.emit()

    # --- showing ---

    def _show(self, hit: Hit) -> None:
        """Brings a hit into sight, unfolded. If its message was cut anew since, looks again."""
        self.current = hit
        view, page = self._view, self._view.page
        item = page.items[hit.message]
        item.sync(page.column, page.factory)
        if hit.section < len(item.sections):
            item.parse(hit.section, page.column, page.factory)
        section = item.sections[hit.section] if hit.section < len(item.sections) else None
        if section is None or hit.box >= len(section.boxes):
            self.content_changed()
            self._tell()
            return
        if section.is_folded:
            item.fold(section.thought, False)
        page.place()
        box = section.boxes[hit.box]
        box.lay_out(item.content_width(page.column), page.factory)
        section.place()
        item.place()
        page.place()
        mark = next((mark for mark in self.marks(item, box) if mark.is_current), None)
        height = view.viewport().height()
        there = Anchor(item, hit.section, hit.box, 0.0, 0.0, mark.start if mark else 0, -height / 3)
        top = page.anchor_y(there) + height / 3
        y = float(view.verticalScrollBar().value())
        if not y + height * 0.12 <= top <= y + height * 0.85:
            view.go_to(there)
        else:
            view.room_changed(item)
        self._tell()
