"""Model text to blocks that can be laid out one by one. Qt-free.

Markdown is cut into *units*: a top-level block, or one item of a top-level list. Nested lists and
code inside items become blocks of their own, with an indent. While an answer streams, every unit
but the last is closed: it will not change any more, whatever comes. A formula without its end keeps
open what it may yet be cut out of. Only the tail is parsed again. An open fence is not parsed at
all: it gains lines, in segments of ``SEGMENT_LINES``.

All text is escaped; there is no raw HTML, no image and no link other than http, https and mailto.
"""

from __future__ import annotations

import re
from dataclasses import replace

from app.markdown_blocks import (
    SEGMENT_LINES,
    TABLE,
    TEXT,
    Block,
    Fence,
    Unit,
    language_of,
    lines_of,
    parse_units,
    segments,
)
from app.markdown_math import undecided_line
from app.markdown_slices import NOTHING_OPEN, SliceStart
from app.markdown_tables import LONGEST_TABLE, SEGMENT_ROWS, continued

OPEN_TEXT_LIMIT = 6000

_QUOTE_GAP = re.compile(r"^ {0,3}>[> \t]*\n(?= {0,3}>)", re.MULTILINE)
_QUOTE_FENCE = re.compile(r"^ {0,3}>[> ]*(?:```|~~~)", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\n]*)$")


class MarkdownStream:
    """Blocks of a growing text. ``closed`` only grows; ``open`` is replaced by each ``refresh``."""

    def __init__(self, text: str = "", start: SliceStart = NOTHING_OPEN) -> None:
        """``start``: what was open before ``text``, if it is a slice of another one."""
        self.closed: list[Block] = []
        self.open: list[Block] = []
        self._tail = start.head
        self._has_return = False
        self._fence: Fence | None = None
        if start.fence:
            language = language_of(start.info)
            self._fence = Fence(start.fence, start.fence_indent, language, is_first=False)
        self._list_mark = start.list_mark
        self._next_number = start.next_number
        self._columns = start.columns
        self.append(text)

    @property
    def blocks(self) -> list[Block]:
        return self.closed + self.open

    def append(self, text: str) -> None:
        """Adds text. Cheap; nothing is parsed before ``refresh``."""
        if self._has_return:
            text = f"\r{text}"
        # The parser ends a line at each of \r\n, \r and \n; here all lines end with \n. A \r at the
        # end stays behind: it and a \n that may come are one line end.
        self._has_return = text.endswith("\r")
        if "\r" in text:
            text = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n")
        self._tail += text

    def refresh(self) -> None:
        """Parses the tail and closes what cannot change any more."""
        while self._advance():
            pass

    def finish(self, fence_goes_on: bool = False, columns: tuple[int, ...] = ()) -> None:
        """The text is complete: everything is closed. ``fence_goes_on``: in the next slice, or so
        does a table with these ``columns``.
        """
        if self._has_return:
            self._tail, self._has_return = f"{self._tail}\n", False
        self.refresh()
        if self._fence is not None:
            fence, self._fence = self._fence, None
            if not _closes(self._tail, fence.mark):
                fence.lines.extend(_outdent(line, fence.indent) for line in lines_of(self._tail))
            self.closed.extend(segments(fence, is_last=not fence_goes_on))
        else:
            if columns and self.open:
                self.open[-1] = replace(self.open[-1], columns=columns)
            self.closed.extend(self.open)
        self._tail = ""
        self.open = []

    def _advance(self) -> bool:
        """One pass over the tail. True if another pass may close more."""
        if self._fence is not None:
            return self._advance_fence(self._fence)
        units = parse_units(self._tail, self._list_mark, self._next_number)
        if self._columns and units:
            units[0] = replace(units[0], blocks=continued(units[0].blocks, self._columns))
        starts = _line_starts(self._tail)
        # What is left open, from its first line on: the line that has no end, and a formula that
        # has no end, which may yet be cut out of a list or a table.
        undecided = undecided_line(self._tail, starts)
        first_open = len(starts) - 1 if undecided is None else undecided
        num_closed = 0
        while num_closed + 1 < len(units) and units[num_closed + 1].start < first_open:
            self._close(units[num_closed])
            num_closed += 1
        rest = units[num_closed:]
        first_left = rest[0].start if num_closed else 0
        if num_closed:
            self._tail = self._tail[starts[first_left] :]
            self._columns = ()
        self.open = [block for unit in rest for block in unit.blocks]
        if self._open_fence():
            return True
        if not rest:
            return False
        if len(rest) == 1:
            self._split_long_table(first_open - first_left)
        # Characters of the first unit that are its own, whatever comes.
        ends = [rest[1].start] if rest[1:] else []
        ends += [] if undecided is None else [undecided]
        settled = starts[min(ends)] - starts[first_left] if ends else len(self._tail)
        return self._split_long_quote(settled) or self._split_long_text(settled, rest[0])

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

    def _split_long_table(self, num_settled: int) -> None:
        """Closes the segments that a long table has for sure, by the first lines of the tail."""
        segments_, kinds = self.open, {block.kind for block in self.open}
        if len(segments_) < 2 or kinds != {TABLE} or segments_[0].quote or segments_[0].indent:
            return
        head, rows = (lines := self._tail.lstrip("\n").split("\n"))[:2], lines[2:]
        num_settled -= self._tail.count("\n") + 1 - len(rows)
        num_sure = max(0, -(-(num_settled - LONGEST_TABLE) // SEGMENT_ROWS))
        num_closed = min(num_sure, len(segments_) - 1)
        for segment in segments_[:num_closed]:
            source = ([] if self._columns else head) + rows[:SEGMENT_ROWS]
            self.closed.append(replace(segment, source="\n".join(source)))
            self._columns = segment.columns
            del rows[:SEGMENT_ROWS]
        self.open = segments_[num_closed:]
        self._tail = "\n".join(head + rows)

    def _split_long_quote(self, settled: int) -> bool:
        """Closes the front of a long quotation, at an empty line within ``settled`` characters."""
        if len(self._tail) <= OPEN_TEXT_LIMIT or not self.open or not self.open[0].quote:
            return False
        gaps = _QUOTE_GAP.finditer(self._tail, 0, len(self._tail) - 1)
        *_, last = (None, *(gap for gap in gaps if gap.end() <= settled))
        if last is None or len(_QUOTE_FENCE.findall(self._tail, 0, last.start())) % 2:
            return False
        front, self._tail = self._tail[: last.end()], self._tail[last.end() :]
        for unit in parse_units(front, self._list_mark, self._next_number):
            self._close(unit)
        self.open = []
        return True

    def _split_long_text(self, settled: int, unit: Unit) -> bool:
        """Closes the front of a paragraph that grew so long that parsing it again would stall."""
        if settled <= OPEN_TEXT_LIMIT or [block.kind for block in unit.blocks] != [TEXT]:
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
    stripped = line.strip(" \t")
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(stripped) >= len(mark) and set(stripped) == {mark[0]}


def _outdent(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(indent, spaces) :]
