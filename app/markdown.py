"""Model text to blocks that can be laid out one by one. Qt-free.

Markdown is cut into *units*: a top-level block, or one item of a top-level list. Nested lists and
code inside items become blocks of their own, with an indent. While an answer streams, every unit
but the last is closed: it will not change any more, whatever comes. Only the tail is parsed again.
An open fence is not parsed at all: it gains lines, in segments of ``SEGMENT_LINES``.

All text is escaped; there is no raw HTML, no image and no link other than http, https and mailto.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from app.markdown_inline import add_math, render_inline

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SEGMENT_LINES = 40
OPEN_TEXT_LIMIT = 6000

TEXT, HEADING, CODE, TABLE, RULE = "text", "heading", "code", "table", "rule"

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\n]*)$")
_TASK = re.compile(r"\[([ xX])\] ")


@dataclass(frozen=True, slots=True)
class Block:
    """One thing to lay out.

    ``html``: body of text, heading and table. ``indent``: depth in lists; ``marker``: of a list
    item, on its first block. ``quote``: depth of block quotes. ``level``: of a heading. Code comes
    in segments: ``first`` and ``last`` tell the ends of a fence, ``code`` has no final newline.
    """

    kind: str
    html: str = ""
    indent: int = 0
    marker: str = ""
    quote: int = 0
    level: int = 0
    code: str = ""
    language: str = ""
    first: bool = True
    last: bool = True


@dataclass(frozen=True, slots=True)
class _Unit:
    """``start``: its first line. ``list_mark`` and ``number`` only on list items."""

    start: int
    blocks: tuple[Block, ...]
    list_mark: str = ""
    number: int = 0


@dataclass(slots=True)
class _OpenFence:
    mark: str
    indent: int
    language: str
    lines: list[str] = field(default_factory=list)
    is_first: bool = True


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    # Imported late: the window need not wait for it to paint.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    # Reference definitions would change text that was closed long before them.
    parser.disable(["html_block", "html_inline", "reference"])
    add_math(parser)
    return parser


class MarkdownStream:
    """Blocks of a growing text. ``closed`` only grows; ``open`` is replaced by each ``refresh``."""

    def __init__(self, text: str = "") -> None:
        self.closed: list[Block] = []
        self.open: list[Block] = []
        self._tail = text
        self._fence: _OpenFence | None = None
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
                fence.lines.extend(_outdent(line, fence.indent) for line in _lines(self._tail))
            self.closed.extend(_segments(fence, is_last=True))
        else:
            self.closed.extend(self.open)
        self._tail = ""
        self.open = []

    def _advance(self) -> bool:
        """One pass over the tail. True if another pass may close more."""
        if self._fence is not None:
            return self._advance_fence(self._fence)
        units = _parse(self._tail, self._list_mark, self._next_number)
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

    def _close(self, unit: _Unit) -> None:
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
        self._fence = _OpenFence(mark, indent, _language(info))
        self._list_mark = ""
        self._tail = rest
        return True

    def _advance_fence(self, fence: _OpenFence) -> bool:
        *complete, partial = self._tail.split("\n")
        for index, line in enumerate(complete):
            if _closes(line, fence.mark):
                self._tail = "\n".join([*complete[index + 1 :], partial])
                self.closed.extend(_segments(fence, is_last=True))
                self._fence, self.open = None, []
                return True
            fence.lines.append(_outdent(line, fence.indent))
        self._tail = partial
        # One line stays behind, since the fence may end after it and needs a last segment.
        while len(fence.lines) > SEGMENT_LINES:
            segment = replace(fence, lines=fence.lines[:SEGMENT_LINES])
            self.closed.extend(_segments(segment, is_last=False))
            fence.is_first = False
            del fence.lines[:SEGMENT_LINES]
        shown = [*fence.lines, _outdent(partial, fence.indent)] if partial else fence.lines
        if partial and _closes(partial, fence.mark):
            shown = fence.lines
        self.open = _segments(replace(fence, lines=list(shown)), is_last=True)
        return False

    def _split_long_text(self) -> bool:
        """Closes the front of a paragraph that grew so long that parsing it again would stall."""
        if len(self._tail) <= OPEN_TEXT_LIMIT or len(self.open) != 1 or self.open[0].kind != TEXT:
            return False
        cut = self._tail.rfind(" ", OPEN_TEXT_LIMIT // 2, OPEN_TEXT_LIMIT)
        cut = cut + 1 if cut > 0 else OPEN_TEXT_LIMIT
        front, self._tail = self._tail[:cut], self._tail[cut:].lstrip(" ")
        for unit in _parse(front, self._list_mark, self._next_number):
            self._close(unit)
        self.open = []
        return bool(self._tail)


def split_blocks(text: str) -> list[Block]:
    """All blocks of a complete text."""
    stream = MarkdownStream(text)
    stream.finish()
    return stream.closed


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


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


def _language(info: str) -> str:
    return info.split()[0].strip("{}.,")[:32] if info.split() else ""


def _segments(fence: _OpenFence, is_last: bool, indent: int = 0, quote: int = 0) -> list[Block]:
    lines = fence.lines
    groups = [lines[i : i + SEGMENT_LINES] for i in range(0, len(lines), SEGMENT_LINES)] or [[]]
    return [
        Block(
            CODE,
            code="\n".join(group),
            language=fence.language,
            first=fence.is_first and index == 0,
            last=is_last and index == len(groups) - 1,
            indent=indent,
            quote=quote,
        )
        for index, group in enumerate(groups)
    ]


# --- tokens to units ------------------------------------------------------------------------------


def _parse(text: str, list_mark: str, next_number: int) -> list[_Unit]:
    """Units of ``text``. A list that goes on from before keeps counting at ``next_number``."""
    tokens = _parser().parse(text)
    units: list[_Unit] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        end = _matching(tokens, index)
        if token.type in ("bullet_list_open", "ordered_list_open"):
            goes_on = not units and token.markup == list_mark
            number = next_number if goes_on else int(token.attrGet("start") or 1)
            units.extend(_item_units(tokens, index, end, number))
        else:
            blocks = tuple(_flatten(tokens[index : end + 1], 0, 0))
            start = token.map[0] if token.map else 0
            if blocks:
                units.append(_Unit(start, blocks))
        index = end + 1
    return units


def _item_units(tokens: list[Token], index: int, end: int, number: int) -> list[_Unit]:
    opener = tokens[index]
    units = []
    at = index + 1
    while at < end:
        close = _matching(tokens, at)
        item_map = tokens[at].map
        marker = f"{number}." if opener.type == "ordered_list_open" else "•"
        blocks = tuple(_item_blocks(tokens[at + 1 : close], 1, 0, marker))
        units.append(_Unit(item_map[0] if item_map else 0, blocks, opener.markup, number))
        number += 1
        at = close + 1
    return units


def _item_blocks(tokens: list[Token], indent: int, quote: int, marker: str) -> list[Block]:
    blocks = _flatten(tokens, indent, quote)
    if not blocks or blocks[0].marker:
        blocks.insert(0, Block(TEXT, indent=indent, quote=quote))
    first = blocks[0]
    task = _TASK.match(first.html) if first.kind == TEXT else None
    if task is not None:
        box = "☐" if task.group(1) == " " else "☑"
        blocks[0] = replace(first, marker=box, html=first.html[task.end() :])
    else:
        blocks[0] = replace(first, marker=marker)
    return blocks


def _matching(tokens: list[Token], index: int) -> int:
    """Index of the token that closes the one at ``index``; itself for a token without a partner."""
    if tokens[index].nesting != 1:
        return index
    depth = 0
    for at in range(index, len(tokens)):
        depth += tokens[at].nesting
        if depth == 0:
            return at
    return len(tokens) - 1


def _flatten(tokens: list[Token], indent: int, quote: int) -> list[Block]:
    blocks: list[Block] = []
    index = 0
    while index < len(tokens):
        end = _matching(tokens, index)
        blocks.extend(_convert(tokens[index : end + 1], indent, quote))
        index = end + 1
    return blocks


def _convert(tokens: list[Token], indent: int, quote: int) -> list[Block]:
    """Blocks of one block-level token with all that it encloses."""
    opener, inner = tokens[0], tokens[1:-1]
    kind = opener.type
    if kind == "paragraph_open":
        return [Block(TEXT, html=render_inline(inner[0]), indent=indent, quote=quote)]
    if kind == "heading_open":
        level = int(opener.tag[1:])
        html = render_inline(inner[0])
        return [Block(HEADING, html=html, indent=indent, quote=quote, level=level)]
    if kind in ("fence", "code_block"):
        code = opener.content.removesuffix("\n")
        fence = _OpenFence(opener.markup, 0, _language(opener.info), _lines(code))
        return _segments(fence, is_last=True, indent=indent, quote=quote)
    if kind == "blockquote_open":
        return _flatten(inner, indent, quote + 1)
    if kind in ("bullet_list_open", "ordered_list_open"):
        units = _item_units(tokens, 0, len(tokens) - 1, int(opener.attrGet("start") or 1))
        return [
            replace(b, indent=b.indent + indent, quote=b.quote + quote)
            for unit in units
            for b in unit.blocks
        ]
    if kind == "table_open":
        return [Block(TABLE, html=_table_html(inner), indent=indent, quote=quote)]
    if kind == "hr":
        return [Block(RULE, indent=indent, quote=quote)]
    # A block rule of our own (mathematics), or plain inline content.
    return [Block(TEXT, html=render_inline(opener), indent=indent, quote=quote)]


def _table_html(tokens: list[Token]) -> str:
    parts: list[str] = []
    for token in tokens:
        if token.type == "inline":
            parts.append(render_inline(token))
        elif token.type in ("th_open", "td_open"):
            style = str(token.attrGet("style") or "")
            align = style.removeprefix("text-align:") if style else "left"
            parts.append(f'<{token.tag} align="{align}">')
        elif token.tag in ("tr", "th", "td"):
            parts.append(f"</{token.tag}>" if token.nesting < 0 else f"<{token.tag}>")
    return "".join(parts)
