"""Model text to blocks that can be laid out one by one. Qt-free.

Markdown is cut into *units*: a top-level block, or one item of a top-level list. Nested lists and
code inside items become blocks of their own, with an indent. While an answer streams, every unit
but the last is closed: it will not change any more, whatever comes. Only the tail is parsed again.
An open fence is not parsed at all: it gains lines, in segments of ``SEGMENT_LINES``.

All text is escaped; there is no raw HTML, no image and no link other than http, https and mailto.
"""

from __future__ import annotations

import re
from dataclasses import replace

from app.markdown_blocks import (
    SEGMENT_LINES,
    TEXT,
    Block,
    Fence,
    Unit,
    language_of,
    lines_of,
    parse_units,
    segments,
)

OPEN_TEXT_LIMIT = 6000

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\n]*)$")


class MarkdownStream:
    """Blocks of a growing text. ``closed`` only grows; ``open`` is replaced by each ``refresh``."""

    def __init__(self, text: str = "") -> None:
        self.closed: list[Block] = []
        self.open: list[Block] = []
        self._tail = text
        self._fence: Fence | None = None
        self._list_mark = ""
        self._next_number = 0

    @property
    def blocks(self) -> list[Block]:
        return self.closed + self.open

    def append(self, text: str) -> None:
        """Adds text. Cheap; nothing is parsed before ``refresh``."""
        self._tail += text

    def refresh(self) -> None:
        """Parses the tail and closes what cannot change any more."""
        while self._advance():
            pass

    def finish(self) -> None:
        """The text is complete: everything is closed."""
        self.refresh()
        if self._fence is not None:
            fence, self._fence = self._fence, None
            if not _closes(self._tail, fence.mark):
                fence.lines.extend(_outdent(line, fence.indent) for line in lines_of(self._tail))
            self.closed.extend(segments(fence, is_last=True))
        else:
            self.closed.extend(self.open)
        self._tail = ""
        self.open = []

    def _advance(self) -> bool:
        """One pass over the tail. True if another pass may close more."""
        if self._fence is not None:
            return self._advance_fence(self._fence)
        units = parse_units(self._tail, self._list_mark, self._next_number)
        starts = _line_starts(self._tail)
        num_complete = len(starts) - 1
        num_closed = 0
        while num_closed + 1 < len(units) and units[num_closed + 1].start < num_complete:
            self._close(units[num_closed])
            num_closed += 1
        rest = units[num_closed:]
        if num_closed:
            self._tail = self._tail[starts[rest[0].start] :]
        self.open = [block for unit in rest for block in unit.blocks]
        return self._open_fence() or self._split_long_text()

    def _close(self, unit: Unit) -> None:
        self.closed.extend(unit.blocks)
        self._list_mark = unit.list_mark
        self._next_number = unit.number + 1

    def _open_fence(self) -> bool:
        """If the tail is one fence that has no end yet, goes over to counting its lines."""
        line, newline, rest = self._tail.lstrip("\n").partition("\n")
        match = _FENCE.match(line)
        if not newline or match is None:
            return False
        mark, info = match.group(1), match.group(2)
        if mark[0] == "`" and "`" in info:
            return False
        indent = len(line) - len(line.lstrip(" "))
        self._fence = Fence(mark, indent, language_of(info))
        self._list_mark = ""
        self._tail = rest
        return True

    def _advance_fence(self, fence: Fence) -> bool:
        *complete, partial = self._tail.split("\n")
        for index, line in enumerate(complete):
            if _closes(line, fence.mark):
                self._tail = "\n".join([*complete[index + 1 :], partial])
                self.closed.extend(segments(fence, is_last=True))
                self._fence, self.open = None, []
                return True
            fence.lines.append(_outdent(line, fence.indent))
        self._tail = partial
        # One line stays behind, since the fence may end after it and needs a last segment.
        while len(fence.lines) > SEGMENT_LINES:
            segment = replace(fence, lines=fence.lines[:SEGMENT_LINES])
            self.closed.extend(segments(segment, is_last=False))
            fence.is_first = False
            del fence.lines[:SEGMENT_LINES]
        shown = [*fence.lines, _outdent(partial, fence.indent)] if partial else fence.lines
        if partial and _closes(partial, fence.mark):
            shown = fence.lines
        self.open = segments(replace(fence, lines=list(shown)), is_last=True)
        return False

    def _split_long_text(self) -> bool:
        """Closes the front of a paragraph that grew so long that parsing it again would stall."""
        if len(self._tail) <= OPEN_TEXT_LIMIT or len(self.open) != 1 or self.open[0].kind != TEXT:
            return False
        cut = self._tail.rfind(" ", OPEN_TEXT_LIMIT // 2, OPEN_TEXT_LIMIT)
        cut = cut + 1 if cut > 0 else OPEN_TEXT_LIMIT
        front, self._tail = self._tail[:cut], self._tail[cut:].lstrip(" ")
        for unit in parse_units(front, self._list_mark, self._next_number):
            self._close(unit)
        self.open = []
        return bool(self._tail)


def split_blocks(text: str) -> list[Block]:
    """All blocks of a complete text."""
    stream = MarkdownStream(text)
    stream.finish()
    return stream.closed


def _line_starts(text: str) -> list[int]:
    """Offset of each line; the last entry is the line that has no end yet."""
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def _closes(line: str, mark: str) -> bool:
    stripped = line.strip(" \t\r")
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(stripped) >= len(mark) and set(stripped) == {mark[0]}


def _outdent(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(indent, spaces) :].rstrip("\r")
