"""Long tables in segments, so that a table that streams in is neither parsed nor laid out anew.

All segments of a table have the widths of its first rows; a short table is one block, as wide as
its text. Qt lays no table out from right to left: in the HTML of one, the cells of a row stand in
reverse. Qt-free.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.markdown_inline import InlineHtml, begins_right_to_left
from app.markdown_math import PLACEHOLDER

if TYPE_CHECKING:
    from markdown_it.token import Token

    from app.markdown_blocks import Block

SEGMENT_ROWS = 30
LONGEST_TABLE = 40
"""Rows below the head; a longer one is cut into segments."""
_WIDEST = 60
_ROW_END = "</tr>"


def table_blocks(tokens: Sequence[Token], block: Block) -> list[Block]:
    """The blocks of a table's tokens; ``block`` says what they have in common."""
    rows = _rows(tokens)
    groups = _groups(rows[1:])
    mirrored = _is_right_to_left(_cells(rows[0])) if rows else False
    block = replace(block, mirrored=mirrored)
    columns = _columns([_cells(row) for row in rows[: SEGMENT_ROWS + 1]]) if groups[1:] else ()
    found = []
    for index, group in enumerate(groups):
        made = InlineHtml()
        shown = (rows[:1] if index == 0 else []) + group
        html = "".join(_row_html(row, made, mirrored) for row in shown)
        formulas = tuple(made.formulas)
        segment = replace(block, html=html, formulas=formulas, columns=columns, first=index == 0)
        found.append(segment)
    return found


def continued(blocks: Sequence[Block], columns: tuple[int, ...]) -> tuple[Block, ...]:
    """``blocks`` of a table that was parsed with a head which is shown above them already."""
    first, *others = blocks
    head, _, html = first.html.partition(_ROW_END)
    if html:
        formulas = first.formulas[head.count(PLACEHOLDER) :]
        source = "\n".join(first.source.split("\n")[2:])
        others.insert(0, replace(first, html=html, formulas=formulas, source=source))
    return tuple(replace(block, columns=columns, first=False) for block in others)


def columns_of(lines: Sequence[str]) -> tuple[int, ...]:
    """Widths of columns, in characters, from the lines of a table's head and first rows."""
    return _columns([_parted(line) for line in lines[:1]] + [_parted(ln) for ln in lines[2:]])


def _groups(rows: list[list[Token]]) -> list[list[list[Token]]]:
    groups = []
    start = 0
    while len(rows) - start > LONGEST_TABLE:
        groups.append(rows[start : start + SEGMENT_ROWS])
        start += SEGMENT_ROWS
    return [*groups, rows[start:]]


def _rows(tokens: Sequence[Token]) -> list[list[Token]]:
    rows: list[list[Token]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        if (rows and token.tag in ("tr", "th", "td")) or token.type == "inline":
            rows[-1].append(token)
    return rows


def _row_html(row: Sequence[Token], made: InlineHtml, mirrored: bool) -> str:
    """``row``: its own two tokens, and three of each cell."""
    starts = range(1, len(row) - 1, 3)
    order = reversed(starts) if mirrored else starts
    cells = (_cell_html(row[at], row[at + 1], made, mirrored) for at in order)
    return f"<tr>{''.join(cells)}</tr>"


def _cell_html(opener: Token, content: Token, made: InlineHtml, mirrored: bool) -> str:
    style = str(opener.attrGet("style") or "")
    align = style.removeprefix("text-align:") or ("right" if mirrored else "left")
    return f'<{opener.tag} align="{align}" valign="middle">{made.render(content)}</{opener.tag}>'


def _is_right_to_left(head: Sequence[str]) -> bool:
    """Whether most of the head's cells are, or the first one of as many of each; the head is there
    before any other row has come.
    """
    told = [begins_right_to_left(cell) for cell in head if any(sign.isalpha() for sign in cell)]
    return 2 * sum(told) > len(told) - any(told[:1])


def _cells(row: Sequence[Token]) -> list[str]:
    return [token.content for token in row if token.type == "inline"]


def _parted(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _columns(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    number = len(rows[0]) if rows else 0
    return tuple(
        min(_WIDEST, max((_width(row[at]) for row in rows if at < len(row)), default=0) + 2)
        for at in range(number)
    )


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
