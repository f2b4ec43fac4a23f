"""Where a long Markdown text can be cut, so that each part is parsed by itself. Qt-free.

Parsing 1.2 MB takes most of a second, so an answer of that length is never parsed as a whole: it is
cut here, in some 20 ms, and the slices that come near the viewport are parsed alone, whichever they
are. A cut needs to know what is open at its place: a fence, a list, a table's columns. That is what
``SliceStart`` says; with it the blocks of a slice are those that the whole text would give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from app.markdown_blocks import SEGMENT_LINES
from app.markdown_math import LONGEST_DISPLAY, display_end
from app.markdown_tables import SEGMENT_ROWS, columns_of

SLICE_CHARS = 5_000
"""A slice ends at the first good place after so many characters."""
LONGEST_PIECE = 6_000
"""Running text without a good place is cut at the end of a line, or else between two words."""
_LONGEST_ITEM = 100_000
_NEVER = 1 << 30
_ROWS_CHARS = 8_000

_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^\n]*)$")
_ITEM = re.compile(r"([-+*]|(\d{1,9})([.)]))(?:( +)(?=\S)|[ \t]|$)")
_RULE = re.compile(r"([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r"[-=:| \t]+$")
_DELIMITERS = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


@dataclass(frozen=True, slots=True)
class SliceStart:
    """What is open where a slice begins.

    ``fence``: the mark of a fence, with its ``fence_indent`` and ``info``; empty outside one.
    ``list_mark`` and ``next_number``: of a list that goes on. ``head``: the first two lines of a
    table that goes on, to be parsed before the slice, and the widths of its ``columns``.
    """

    fence: str = ""
    fence_indent: int = 0
    info: str = ""
    list_mark: str = ""
    next_number: int = 0
    head: str = ""
    columns: tuple[int, ...] = ()


NOTHING_OPEN = SliceStart()


@dataclass(frozen=True, slots=True)
class TextSlice:
    """Characters ``start`` to ``end`` of a text. ``fence_goes_on``: it ends within a fence.
    ``columns``: those of the table that it ends within, if any.
    """

    start: int
    end: int
    state: SliceStart = NOTHING_OPEN
    fence_goes_on: bool = False
    columns: tuple[int, ...] = ()


def slice_markdown(text: str) -> list[TextSlice]:
    """Cuts ``text`` into slices that join to it; one slice if it is short."""
    if len(text) <= 2 * SLICE_CHARS:
        return [TextSlice(0, len(text))]
    return _Slicer(text).run()


class _Slicer:
    """Walks over the lines once. Offsets are those of ``text``."""

    def __init__(self, text: str) -> None:
        # Each of \r\n, \r and \n ends a line; as many characters as before, so that offsets hold.
        self._text = text = text.replace("\r\n", " \n").replace("\r", "\n")
        self._slices: list[TextSlice] = []
        self._start = 0
        self._state = NOTHING_OPEN
        self._after_blank = True
        self._in_paragraph = False
        self._fence: SliceStart | None = None
        self._formula_end = -1
        self._whole_until = 0
        self._item_indent = 0
        self._item_is_empty = False
        self._item_fence = ""
        self._list_mark = ""
        self._number = 0
        self._line_before = ""
        self._head = ""
        self._rows_at = self._rows = 0

    def run(self) -> list[TextSlice]:
        text, at = self._text, 0
        while at < len(text):
            if self._fence is not None:
                at = self._skip_fence(at, self._fence)
                continue
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            self._take_line(at, text[at:end])
            at = end + 1
            if self._formula_end >= 0:
                # No cut within it, whatever its lines look like; after it comes a new block.
                at, self._formula_end = self._formula_end, -1
                self._after_blank, self._in_paragraph = True, False
                self._line_before = self._head = ""
        self._slices.append(TextSlice(self._start, len(text), self._state))
        return self._slices

    def _take_line(self, at: int, line: str) -> None:
        bare = line.lstrip(" ")
        indent = len(line) - len(bare)
        if not bare.strip():
            self._after_blank, self._in_paragraph = True, False
            self._line_before = self._head = ""
            self._whole_until = 0
            if self._item_is_empty:
                # An item that begins with a blank line has ended with it.
                self._item_indent, self._item_is_empty = _NEVER, False
            return
        if self._item_indent and self._take_list_line(at, bare, indent):
            self._after_blank = False
            return
        self._take_plain_line(at, line, bare, indent)
        self._line_before = line
        self._after_blank = False

    # --- fences ---

    def _skip_fence(self, at: int, fence: SliceStart) -> int:
        """Goes to the line after a fence whose lines begin at ``at``; cuts between its segments."""
        text = self._text
        closer = _closer(fence.fence).search(text, at)
        end = len(text) if closer is None else closer.start()
        while (after := _after_lines(text, at, end, SEGMENT_LINES)) is not None:
            at = after
            if self._is_long(at):
                self._cut(at, fence, fence_goes_on=True)
        self._fence, self._after_blank = None, False
        newline = -1 if closer is None else text.find("\n", closer.end())
        return len(text) if newline < 0 else newline + 1

    # --- lists ---

    def _take_list_line(self, at: int, bare: str, indent: int) -> bool:
        """A line while a list is open. False: the line ends the list."""
        if indent >= self._item_indent:
            self._item_is_empty = False
            self._take_item_line(at + indent, bare, indent - self._item_indent)
            if self._after_blank and at - self._start > _LONGEST_ITEM:
                self._cut(at, NOTHING_OPEN)
            return True
        self._item_fence = ""
        found = _item(bare) if indent <= 3 and not _is_rule(bare) else None
        if found is not None:
            mark = found.group(3) or found.group(1)
            goes_on = mark == self._list_mark
            self._number = self._number + 1 if goes_on else int(found.group(2) or 1)
            if self._is_long(at):
                state = SliceStart(list_mark=mark, next_number=self._number)
                self._cut(at, state if goes_on else NOTHING_OPEN)
            self._open_item(at, found, mark, indent)
            return True
        starts_other = bare.startswith(("#", ">", "```", "~~~")) or _is_rule(bare)
        starts_other = starts_other or self._display_end(at + indent) >= 0
        if self._after_blank or (starts_other and indent <= 3):
            self._item_indent, self._list_mark = 0, ""
            return False
        return True

    def _take_item_line(self, at: int, bare: str, indent: int) -> None:
        """``bare`` begins at ``at``; ``indent`` within the item."""
        if self._item_fence:
            if _closes(bare, self._item_fence):
                self._item_fence = ""
            return
        found = _opened_fence(bare)
        if found is not None:
            self._item_fence = found.group(1)
        elif indent <= 3:
            self._formula_end = self._display_end(at)

    def _open_item(self, at: int, found: re.Match[str], mark: str, indent: int) -> None:
        spaces = len(found.group(4) or " ")
        self._item_indent = indent + len(found.group(1)) + (spaces if spaces <= 4 else 1)
        self._list_mark = mark
        bare = found.string[found.end() :]
        self._item_is_empty = not bare.strip()
        self._item_fence = ""
        self._take_item_line(at + indent + found.end(), bare, 0 if spaces <= 4 else spaces - 1)

    # --- everything else ---

    def _take_plain_line(self, at: int, line: str, bare: str, indent: int) -> None:
        if indent >= 4 and not self._in_paragraph:
            # Indented code: every line of it says so.
            if self._is_overdue(at):
                self._cut(at, NOTHING_OPEN)
            return
        fence = _opened_fence(bare) if indent <= 3 else None
        if fence is not None:
            if self._is_long(at):
                self._cut(at, NOTHING_OPEN)
            self._fence = SliceStart(fence.group(1), indent, fence.group(2))
            self._in_paragraph, self._head = False, ""
            return
        if indent <= 3 and (end := self._display_end(at + indent)) >= 0:
            if self._is_long(at) and (self._after_blank or end < len(self._text)):
                self._cut(at, NOTHING_OPEN)
            self._formula_end = end
            return
        if self._after_blank and indent == 0 and self._is_long(at):
            self._cut(at, NOTHING_OPEN)
        elif self._head:
            self._take_row(at)
        elif self._is_overdue(at) and indent == 0 and not _UNDERLINE.match(bare):
            self._cut(at, NOTHING_OPEN)
        is_opener = not self._head and bare.startswith(("$$", "\\[", "\\begin{"))
        if is_opener and at >= self._whole_until:
            # At the end of a slice it would look like a formula that has no end yet.
            self._whole_until = at + LONGEST_DISPLAY + 2
        is_rule = _is_rule(bare)
        found = _item(bare) if indent <= 3 and not is_rule else None
        if found is not None and (not self._in_paragraph or _interrupts(found, bare)):
            self._number = int(found.group(2) or 1)
            self._open_item(at, found, found.group(3) or found.group(1), indent)
            self._in_paragraph, self._head = False, ""
            return
        self._in_paragraph = not is_rule and bare[0] != "#"
        if bare[0] in "|:-" and "|" in self._line_before and _DELIMITERS.match(bare):
            self._head = f"{self._line_before}\n{line}\n"
            self._rows_at, self._rows = at + len(line) + 1, 0
        elif self._head and "|" not in bare and bare.startswith(("#", ">")):
            self._head = ""
        if len(line) > LONGEST_PIECE and indent <= 3 and not self._head:
            self._cut_words(at, line)

    def _take_row(self, at: int) -> None:
        """A line of a table, most likely."""
        if self._rows and self._rows % SEGMENT_ROWS == 0 and self._is_long(at):
            first_rows = self._text[self._rows_at : self._rows_at + _ROWS_CHARS].split("\n")
            lines = self._head.split("\n")[:2] + first_rows[:SEGMENT_ROWS]
            self._cut(at, SliceStart(head=self._head, columns=columns_of(lines)))
        self._rows += 1

    def _cut_words(self, at: int, line: str) -> None:
        """Cuts within a very long line."""
        done = 0
        while len(line) - done > LONGEST_PIECE:
            space = line.rfind(" ", done + LONGEST_PIECE // 2, done + LONGEST_PIECE)
            done = space + 1 if space > 0 else between_characters(line, done + LONGEST_PIECE)
            if self._is_long(at + done):
                self._cut(at + done, NOTHING_OPEN)

    def _display_end(self, at: int) -> int:
        return display_end(self._text, at) if self._text[at : at + 1] in ("$", "\\") else -1

    def _is_long(self, at: int) -> bool:
        return at - self._start >= SLICE_CHARS and at >= self._whole_until

    def _is_overdue(self, at: int) -> bool:
        return self._is_long(at) and at - self._start >= SLICE_CHARS + LONGEST_PIECE

    def _cut(self, at: int, state: SliceStart, fence_goes_on: bool = False) -> None:
        ended = TextSlice(self._start, at, self._state, fence_goes_on, state.columns)
        self._slices.append(ended)
        self._start, self._state = at, state


@lru_cache(maxsize=8)
def _closer(mark: str) -> re.Pattern[str]:
    """The line that ends a fence that begins with ``mark``."""
    return re.compile(rf"^ {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE)


def _after_lines(text: str, at: int, end: int, lines: int) -> int | None:
    """Where the line after so many from ``at`` on begins; None if it is not before ``end``."""
    for _ in range(lines):
        at = text.find("\n", at, end) + 1
        if at == 0:
            return None
    return at if at < end else None


def _closes(bare: str, mark: str) -> bool:
    stripped = bare.rstrip(" \t")
    return len(stripped) >= len(mark) and set(stripped) == {mark[0]}


def _opened_fence(bare: str) -> re.Match[str] | None:
    # The first characters are looked at before the expressions: most lines are plain text.
    found = _FENCE.match(bare) if bare[:1] in ("`", "~") else None
    if found is not None and found.group(1)[0] == "`" and "`" in found.group(2):
        return None
    return found


def _is_rule(bare: str) -> bool:
    return bare[0] in "-_*" and _RULE.match(bare) is not None


def _item(bare: str) -> re.Match[str] | None:
    return _ITEM.match(bare) if bare[0] in "-+*0123456789" else None


def _interrupts(found: re.Match[str], bare: str) -> bool:
    """True if an item may begin right after a line of a paragraph."""
    return bool(bare[found.end() :].strip()) and found.group(2) in (None, "1")


def between_characters(text: str, at: int) -> int:
    """The next place from ``at`` on that does not part a mark from the character it belongs to."""
    import unicodedata

    while at < len(text) and (unicodedata.combining(text[at]) or text[at] in "\u200d\ufe0f"):
        at += 1
    return at
