"""Blocks of parsed Markdown: one thing each that can be laid out by itself. Qt-free."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from app.markdown_inline import InlineHtml, escaped
from app.markdown_math import MATH, OPEN_MATH, PLACEHOLDER, Formula, add_math, formula_of
from app.markdown_tables import table_blocks

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SEGMENT_LINES = 40

TEXT, HEADING, CODE, TABLE, RULE = "text", "heading", "code", "table", "rule"
FORMULA, THOUGHT = "formula", "thought"
PLAIN = "plain"

_TASK = re.compile(r"\[([ xX])\] ")


@dataclass(frozen=True, slots=True)
class Block:
    """One thing to lay out.

    ``html``: body of text, heading, table and formula; of PLAIN the text as it was typed.
    ``indent``: depth in lists; ``marker``: of a list item, on its first block. ``quote``: depth of
    block quotes. ``level``: of a heading, or the number of the thought whose header it is. Code
    comes in segments: ``first`` and ``last`` tell the ends of a fence, ``code`` has no final
    newline. So do long tables, with the widths of their ``columns`` in characters. ``mirrored``: a
    table from right to left; its first column is the last one in ``html``, but not in ``columns``.
    ``formulas``: what the placeholders in ``html`` stand for. ``source``: the Markdown of the whole
    unit, on its first block.
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
    formulas: tuple[Formula, ...] = ()
    columns: tuple[int, ...] = ()
    mirrored: bool = False
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unit:
    """``start``: its first line. ``list_mark`` and ``number`` only on list items."""

    start: int
    blocks: tuple[Block, ...]
    list_mark: str = ""
    number: int = 0


@dataclass(slots=True)
class Fence:
    mark: str
    indent: int
    language: str
    lines: list[str] = field(default_factory=list)
    is_first: bool = True


@lru_cache(maxsize=2)
def _parser(has_addresses: bool) -> MarkdownIt:
    """``has_addresses``: the text may have bare addresses, which cost much to look for."""
    # Imported late: the window need not wait for it to paint.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": has_addresses})
    parser.enable(["table", "strikethrough"])
    if has_addresses:
        parser.enable("linkify")
        # "app.py" and "readme.md" are no addresses: only what says how to get there is one.
        assert parser.linkify is not None
        parser.linkify.set({"fuzzy_link": False, "fuzzy_ip": False, "fuzzy_email": False})
    # Reference definitions would change text that was closed long before them.
    parser.disable(["html_block", "html_inline", "reference"])
    add_math(parser)
    return parser


def language_of(info: str) -> str:
    return info.split()[0].strip("{}.,")[:32] if info.split() else ""


def lines_of(text: str) -> list[str]:
    return text.split("\n") if text else []


def segments(fence: Fence, is_last: bool, indent: int = 0, quote: int = 0) -> list[Block]:
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


def parse_units(text: str, list_mark: str, next_number: int) -> list[Unit]:
    """Units of ``text``. A list that goes on from before keeps counting at ``next_number``."""
    tokens = _parser("://" in text).parse(text)
    units: list[Unit] = []
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
                units.append(Unit(start, blocks))
        index = end + 1
    return _with_sources(units, text)


def _with_sources(units: list[Unit], text: str) -> list[Unit]:
    lines = text.split("\n")
    ends = [*(unit.start for unit in units[1:]), len(lines)]
    found = []
    # Without any unit there is one end too many.
    for unit, end in zip(units, ends, strict=False):
        source = "\n".join(lines[unit.start : end]).rstrip()
        first = replace(unit.blocks[0], source=source)
        found.append(replace(unit, blocks=(first, *unit.blocks[1:])))
    return found


def _item_units(tokens: list[Token], index: int, end: int, number: int) -> list[Unit]:
    opener = tokens[index]
    units = []
    at = index + 1
    while at < end:
        close = _matching(tokens, at)
        item_map = tokens[at].map
        marker = f"{number}." if opener.type == "ordered_list_open" else "•"
        blocks = tuple(_item_blocks(tokens[at + 1 : close], 1, 0, marker))
        units.append(Unit(item_map[0] if item_map else 0, blocks, opener.markup, number))
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
        return [_inline_block(inner[0], Block(TEXT, indent=indent, quote=quote))]
    if kind == "heading_open":
        level = int(opener.tag[1:])
        return [_inline_block(inner[0], Block(HEADING, indent=indent, quote=quote, level=level))]
    if kind in ("fence", "code_block"):
        code = opener.content.removesuffix("\n")
        fence = Fence(opener.markup, 0, language_of(opener.info), lines_of(code))
        return segments(fence, is_last=True, indent=indent, quote=quote)
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
        return table_blocks(inner, Block(TABLE, indent=indent, quote=quote))
    if kind == "hr":
        return [Block(RULE, indent=indent, quote=quote)]
    if kind == MATH:
        formulas = (replace(formula_of(opener.content), is_display=True),)
        return [Block(FORMULA, html=PLACEHOLDER, indent=indent, quote=quote, formulas=formulas)]
    html = escaped(opener.content)
    if kind == OPEN_MATH:
        html = f'<span class="math">{html}</span>'.replace("\n", "<br>")
    return [Block(TEXT, html=html, indent=indent, quote=quote)]


def _inline_block(token: Token, block: Block) -> Block:
    made = InlineHtml()
    html = made.render(token)
    return replace(block, html=html, formulas=tuple(made.formulas))
