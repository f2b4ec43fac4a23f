"""One message on the page: its sections, a bubble for the user's, a line of figures below."""

from __future__ import annotations

import math
from bisect import bisect_right

from app.widgets.transcript.body import USER_PAD_X, MessageBody
from app.widgets.transcript.body import MessageView as MessageView
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.sections import Section, guess_height

USER_PAD_Y = 9.0
FOOTER_HEIGHT = 30.0
USER_FOOTER_HEIGHT = 28.0
DIVIDER_HEIGHT = 36.0
AT_ONCE = 16_000
"""Characters that are parsed between two paints: some ten milliseconds."""


class MessageItem(MessageBody):
    """Geometry in pixels: ``top`` from the top of the page; ``height`` with footer.

    ``room``: height that its body must have, for what lies over it. ``index``: its place among the
    messages.
    """

    def __init__(self, view: MessageView) -> None:
        super().__init__(view)
        self.index = 0
        self.top = 0.0
        self.height = 0.0
        self.room = 0.0
        self.bubble_width = 0.0
        self._tops: list[float] = []

    @property
    def head_height(self) -> float:
        """Height of the line above the message."""
        return DIVIDER_HEIGHT if self.view.divider else 0.0

    @property
    def body_top(self) -> float:
        return self.head_height + self._pad_y

    @property
    def _pad_y(self) -> float:
        return USER_PAD_Y if self.view.is_user else 0.0

    @property
    def footer_height(self) -> float:
        """Height of the line of figures and buttons below the message."""
        return USER_FOOTER_HEIGHT if self.view.is_user else FOOTER_HEIGHT

    # --- content ---

    def update(self, view: MessageView) -> None:
        """Takes new figures, and the text if it is not the one that was streamed."""
        was_open, old_head = self.view.is_open, self.head_height
        self.view = view
        self.height += self.head_height - old_head
        if self.sections:
            self.place()
        # While it streams, text comes through ``append`` alone: a state may arrive before its text.
        if not view.is_open and view.text != self._text:
            self._text = view.text
            self._begin_anew()
        elif view.is_open and not was_open:
            # It is continued: its last block may go on, and a finished stream cannot.
            self._begin_anew()
        elif was_open != view.is_open:
            self._unparsed = True

    def sync(self, width: float, factory: DocumentFactory, limit: int | None = None) -> None:
        before, was_cut = self.sections, bool(self.sections)
        super().sync(width, factory, limit)
        if not was_cut or self.sections is not before:
            self.place()

    def parse_all(self, width: float, factory: DocumentFactory) -> None:
        """Parses every section, a second for 1.2 MB. Nothing moves before it is laid out again."""
        height = self.height
        super().parse_all(width, factory)
        self.height = height

    def parse(self, index: int, width: float, factory: DocumentFactory) -> None:
        """Parses one section, if it is not parsed yet."""
        self._parse(self.sections[index], width, factory)
        self.place()

    def fold(self, thought: int, is_folded: bool) -> None:
        super().fold(thought, is_folded)
        self.place()

    # --- geometry ---

    def estimate(self, width: float, factory: DocumentFactory) -> None:
        """Heights for a new column width, without laying anything out."""
        inner = self.content_width(width)
        if not self.sections:
            # Not even cut: one guess for the whole text.
            guess = guess_height(self._text, 0, len(self._text), inner, factory)
            self.height = self.body_top + guess + self._pad_y + self.footer_height
            return
        for section in self.sections:
            section.estimate(inner, factory)
        self.place()

    def place(self) -> None:
        """Stacks the sections and sums up the height."""
        y = self.body_top
        tops = []
        for section in self.sections:
            section.top = y
            tops.append(y)
            y += section.height
        self._tops = tops
        self.height = max(y + self._pad_y, self.head_height + self.room) + self.footer_height

    def section_at(self, y: float) -> Section | None:
        """The section at or nearest above ``y``, from the message's top."""
        if not self.sections:
            return None
        at = max(0, bisect_right(self._tops, y) - 1)
        # Above a folded section is the line that unfolds it.
        while at > 0 and self.sections[at].is_folded:
            at -= 1
        return self.sections[at]

    def sections_between(self, top: float, bottom: float) -> list[Section]:
        """Those that touch ``top`` … ``bottom``, from the message's top."""
        first = max(0, bisect_right(self._tops, top) - 1)
        found = []
        for section in self.sections[first:]:
            if section.top > bottom:
                break
            if not section.is_folded:
                found.append(section)
        return found

    def boxes_between(self, top: float, bottom: float) -> list[BlockBox]:
        """Boxes that touch ``top`` … ``bottom``, from the message's top."""
        return [
            box
            for section in self.sections_between(top, bottom)
            for box in section.boxes_between(top - section.top, bottom - section.top)
        ]

    def lay_out(self, width: float, top: float, bottom: float, factory: DocumentFactory) -> bool:
        """Parses and lays out what is between ``top`` and ``bottom`` (from the message's top).

        True if a height changed.
        """
        old = self.height
        if not self.sections:
            self.sync(width, factory, AT_ONCE)
        inner = self.content_width(width)
        changed = False
        for section in self.sections_between(top, bottom):
            if not section.is_parsed:
                # Its true height shows what is in sight; the page comes again for the rest.
                self._parse(section, width, factory)
                changed = True
                continue
            self._live.add(section)
            changed |= section.lay_out(inner, top - section.top, bottom - section.top, factory)
        if self.view.is_user:
            self._fit_bubble(inner)
        self.place()
        return changed or abs(self.height - old) > 0.01

    def release(self, top: float, bottom: float) -> bool:
        """Drops the documents outside ``top`` … ``bottom``. True if some are left."""
        for section in list(self._live):
            if not section.release(top - section.top, bottom - section.top):
                self._live.discard(section)
        return bool(self._live)

    def drop_documents(self, is_exact: bool = False) -> None:
        """Drops all documents. ``is_exact`` False: fonts or colours changed, heights may too."""
        for section in self.sections:
            for box in section.boxes:
                box.release()
                box.is_exact = is_exact
        self._live.clear()

    def _fit_bubble(self, inner: float) -> None:
        widest = 0.0
        for section in self.sections:
            if not section.is_parsed or len(self.sections) > 1:
                widest = inner
                break
            for box in section.boxes:
                widest = max(widest, inner if box.document is None else box.document.idealWidth())
        width = math.ceil(min(inner, widest + 1.0))
        self.bubble_width = width + 2 * USER_PAD_X
        for section in self._live:
            for box in section.boxes:
                box.narrow(width)
