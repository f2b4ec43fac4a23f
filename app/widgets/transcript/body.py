"""The text of one message as sections: cut once, parsed where it is looked at, grown at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from app.markdown_slices import NOTHING_OPEN, slice_markdown
from app.markdown_thoughts import TextPart
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.growing import GrowingEnd
from app.widgets.transcript.sections import Section, slice_plain
from app.widgets.transcript.thoughts import Thoughts, header_section

USER_PAD_X = 14.0
USER_SHARE = 0.82


@dataclass(frozen=True, slots=True)
class MessageView:
    """What the transcript shows of a message.

    ``footer``: figures or what the answer waits for; ``tone`` its colour token (``muted``,
    ``error``, ``warning``). ``version`` of ``num_versions``, from 1. ``is_open``: more text comes.
    ``divider``: words of a line above the message, if any. ``offers``: ids of the registry's
    actions that can be done with it. ``thought_s``: how long its reasoning took, 0 if unknown.
    """

    message_id: str
    is_user: bool
    text: str
    footer: str = ""
    tone: str = "muted"
    version: int = 1
    num_versions: int = 1
    is_open: bool = False
    divider: str = ""
    offers: tuple[str, ...] = ()
    thought_s: float = 0.0


class MessageBody:
    """``sections`` is empty until the message comes near the viewport for the first time."""

    def __init__(self, view: MessageView) -> None:
        self.view = view
        self.sections: list[Section] = []
        self.thoughts = Thoughts()
        self._live: set[Section] = set()
        self._text = view.text
        self._end: GrowingEnd | None = None
        self._blank = ""
        self._unparsed = True

    @property
    def text(self) -> str:
        """The whole text so far, as Markdown for answers."""
        return self._text

    @property
    def boxes(self) -> list[BlockBox]:
        """All boxes of the sections that are parsed. For a long message that is a long list."""
        return [box for section in self.sections for box in section.boxes]

    def live_boxes(self) -> list[BlockBox]:
        """Boxes that have a document."""
        boxes = (box for section in self._live for box in section.boxes)
        return [box for box in boxes if box.document is not None]

    def boxes_from(
        self, box: BlockBox, width: float, factory: DocumentFactory
    ) -> Iterator[BlockBox]:
        """``box`` and those below it, which are parsed as they are asked for."""
        yield from box.section.boxes[box.index :]
        for section in self.sections[box.section.index + 1 :]:
            self._parse(section, width, factory)
            yield from section.boxes

    def content_width(self, width: float) -> float:
        """Width for the blocks on a column of ``width``."""
        return width * USER_SHARE - 2 * USER_PAD_X if self.view.is_user else width

    def append(self, text: str) -> None:
        """Adds streamed text; ``sync`` makes it visible."""
        self._text += text
        if self._end is None and self.sections:
            self._begin_anew()
        self._unparsed = True

    def _begin_anew(self) -> None:
        self._end, self._blank = None, ""
        self._unparsed = True
        self.sections = []
        self._live.clear()

    @property
    def is_behind(self) -> bool:
        """True while there is text that no section shows."""
        return self._unparsed

    def sync(self, width: float, factory: DocumentFactory, limit: int | None = None) -> None:
        """Brings the sections in line with the text. Only what streams is parsed here, and at most
        ``limit`` characters of it; a hidden tab may have gathered more than is parsed at once.
        """
        if not self._unparsed:
            return
        self._unparsed = False
        if not self.sections:
            self._cut(width, factory)
        if self._end is not None:
            self._unparsed = self._grow(width, factory, limit)
        self._fold()

    def parse_all(self, width: float, factory: DocumentFactory) -> None:
        """Parses every section; a second for 1.2 MB."""
        self.sync(width, factory)
        for section in self.sections:
            self._parse(section, width, factory)

    def _cut(self, width: float, factory: DocumentFactory) -> None:
        text, is_plain = self._text, self.view.is_user
        inner = self.content_width(width)
        if is_plain:
            for place in slice_plain(text):
                self._add(Section(len(self.sections), text, place, is_plain), inner, factory)
            return
        parts = self.thoughts.split(text, self.view.is_open) or [TextPart(0, 0)]
        for part in parts:
            self._add_header(part.thought, text[part.start : part.end], inner, factory)
            slices = slice_markdown(text[part.start : part.end])
            last = slices.pop() if self.view.is_open and part is parts[-1] else None
            for place in slices:
                there = replace(place, start=place.start + part.start, end=place.end + part.start)
                section = Section(len(self.sections), text, there, False, part.thought)
                self._add(section, inner, factory)
            if last is not None:
                rest = text[part.start + last.start : part.end]
                self._end = GrowingEnd(rest, last.state, self.sections, part.thought)
        self._fold()

    def _add(self, section: Section, width: float, factory: DocumentFactory) -> None:
        section.estimate(width, factory)
        self.sections.append(section)

    def _grow(self, width: float, factory: DocumentFactory, limit: int | None) -> bool:
        """Takes what has come into the last section, or into a new one after a tag. True if
        something is left.
        """
        parts = self.thoughts.fresh(self._text, self.view.is_open)
        if parts is None:
            self._begin_anew()
            self._unparsed = False
            self._cut(width, factory)
            parts = []
        inner = self.content_width(width)
        for part in parts:
            text = self._text[part.start : part.end]
            assert self._end is not None
            if part.thought != self._end.thought:
                if not text.strip():
                    # It may be the indent of what comes.
                    self._blank += text
                    continue
                # From the answer to reasoning, or back.
                self._end.take(False, inner, factory)
                self._end = GrowingEnd(self._blank, NOTHING_OPEN, self.sections, part.thought)
            self._blank = ""
            self._add_header(part.thought, text, inner, factory)
            self._end.append(text)
        if self._end is None:
            return False
        return self._end.take(self.view.is_open, inner, factory, limit)

    def _add_header(self, thought: int, text: str, width: float, factory: DocumentFactory) -> None:
        """The line above a thought, once there is something to fold."""
        if thought and text.strip() and self.thoughts.begins(thought):
            self._add(header_section(len(self.sections), thought), width, factory)

    def fold(self, thought: int, is_folded: bool) -> None:
        """Folds or unfolds reasoning, for the user."""
        self.thoughts.folds[thought] = is_folded
        self._fold()

    def _fold(self) -> None:
        for section in self.thoughts.apply(self.sections):
            self._live.discard(section)

    def _parse(self, section: Section, width: float, factory: DocumentFactory) -> None:
        if section.is_parsed:
            return
        section.parse(self.content_width(width), factory)
        self._join(section.index)
        self._join(section.index + 1)

    def _join(self, index: int) -> None:
        """Tells the first box of a section what is above it."""
        if not 0 < index < len(self.sections):
            return
        above, below = self.sections[index - 1].boxes, self.sections[index].boxes
        if above and below and below[0].before is None:
            below[0].before = above[-1]
            self.sections[index].place()
