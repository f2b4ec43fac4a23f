"""Mathematics in Markdown: taken out before anything else looks at it, kept as its source. Qt-free.

``$…$`` and ``\\(…\\)`` inside a line, ``$$…$$``, ``\\[…\\]`` and LaTeX environments set apart. The
transcript draws a formula; copying gives its source.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

PLACEHOLDER = "\ufffc"
"""Stands in text for a formula; Qt's own character for an object in text."""

MATH, OPEN_MATH = "math", "open_math"
LONGEST_DISPLAY = 5_000
"""Characters of a formula over several lines. An opener has so long to find its partner: text that
streams waits for it, and is parsed again meanwhile.
"""
_PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"))
_BLOCK_PAIRS = {"$$": "$$", "\\[": "\\]"}
_MAX_INLINE = 600
_ENVIRONMENT = re.compile(r"\\begin\{(equation|align|gather|multline|eqnarray|aligned)(\*?)\}")
# Where one may begin: after nothing but the marks of quotations and list items.
_DISPLAY = re.compile(
    r"^(?:[ \t>]|[-+*][ \t]|\d{1,9}[.)][ \t])*(?P<opener>\$\$|\\\[|\\begin\{)", re.MULTILINE
)
_BLANK_LINE = re.compile(r"^[ \t]*\n", re.MULTILINE)
_DOLLAR_END = re.compile(r"(?<![\s\\])\$(?![0-9A-Za-z])")
# "$10 (about 8) to 20$": an amount of money, and words.
_PROSE = re.compile(r"\d[^\\^_={}<>]*\s[A-Za-z]{2,}")


@dataclass(frozen=True, slots=True)
class Formula:
    """``source`` with its delimiters; ``is_display``: set apart, in the large style."""

    source: str
    is_display: bool

    @property
    def tex(self) -> str:
        """The formula without its delimiters."""
        source = self.source
        for opener, closer in _PAIRS:
            if source.startswith(opener) and source.endswith(closer) and len(source) >= 4:
                return source[2:-2].strip()
        if source.startswith("$") and source.endswith("$") and len(source) >= 2:
            return source[1:-1].strip()
        return source.strip()


def formula_of(source: str) -> Formula:
    """``source`` with its delimiters, which tell the style."""
    return Formula(source, source.startswith(("$$", "\\[", "\\begin")))


def with_sources(text: str, formulas: Iterable[Formula]) -> str:
    """``text`` with the source of each formula where it stands."""
    for formula in formulas:
        text = text.replace(PLACEHOLDER, formula.source, 1)
    return text


def undecided_line(text: str, starts: Sequence[int]) -> int | None:
    """Number of the first line that may yet begin a formula, whose partner has not come; None if no
    text that may follow makes a formula of what is there.

    ``starts``: offset of each line of ``text``; the last one has no end yet. The line may also be
    one that ends a formula, or stands in code: it is safe to take too much for undecided.
    """
    end = starts[-1]
    begin = max(0, len(text) - LONGEST_DISPLAY)
    for blank in _BLANK_LINE.finditer(text, begin, end):
        begin = blank.end()
    for found in _DISPLAY.finditer(text, begin, end):
        at = found.start("opener")
        closer = _closer(text, at)
        if closer and text.find(closer, at + 2, end) < 0:
            return bisect_right(starts, at) - 1
    return None


def display_end(text: str, at: int) -> int:
    """Where the line after the formula set apart that begins at ``at`` begins, or −1 if there is
    none. The end of ``text`` if it ends before its partner comes.
    """
    closer = _closer(text, at)
    if not closer:
        return -1
    limit = text.rfind("\n", 0, at) + 1 + LONGEST_DISPLAY
    first, newline, _rest = text[at : limit + 1].partition("\n")
    if closer in first[2:]:
        is_whole = first.rstrip().endswith(closer) and first[2 : first.index(closer, 2)].strip()
        return at + len(first + newline) if is_whole else -1
    second = at + len(first + newline)
    found = text.find(closer, second, limit)
    if found < 0 and len(text) > limit:
        return -1
    until = len(text) if found < 0 else found
    if _BLANK_LINE.search(text, second, until):
        return -1
    if found < 0:
        return len(text)
    end = text.find("\n", found, limit + 1)
    end = min(len(text), limit + 1) if end < 0 else end
    last = text[found:end].rstrip().rstrip(".,;")
    return min(end + 1, len(text)) if end <= limit and last.endswith(closer) else -1


def add_math(parser: MarkdownIt) -> None:
    """Takes mathematics out of the parser's reach, so that emphasis and escapes leave it alone."""
    parser.inline.ruler.before("escape", MATH, _inline)
    parser.block.ruler.before("fence", MATH, _block, {"alt": ["paragraph", "blockquote", "list"]})


def _inline(state: StateInline, silent: bool) -> bool:
    end = _inline_end(state.src, state.pos, state.posMax)
    if end < 0:
        return False
    if not silent:
        token = state.push(MATH, "", 0)
        token.content = state.src[state.pos : end]
    state.pos = end
    return True


def _inline_end(text: str, start: int, limit: int) -> int:
    """Where the formula at ``start`` ends, or −1 if there is none."""
    if text[start] not in "$\\":
        return -1
    for opener, closer in _PAIRS:
        if text.startswith(opener, start):
            end = text.find(closer, start + 2, limit)
            return end + 2 if end >= 0 and text[start + 2 : end].strip() else -1
    return _dollar_end(text, start, limit) if text[start] == "$" else -1


def _dollar_end(text: str, start: int, limit: int) -> int:
    """One dollar opens mathematics only if it touches it, and so does the one that closes it."""
    before = text[start - 1] if start else " "
    if start + 1 >= limit or text[start + 1].isspace() or before.isalnum() or before in "$\\":
        return -1
    found = _DOLLAR_END.search(text, start + 2, min(limit, start + _MAX_INLINE))
    if found is None:
        return -1
    inner = text[start + 1 : found.start()]
    if "`" in inner or inner.count("\n") > 1 or _PROSE.match(inner):
        return -1
    return found.end()


def _block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """``$$``, ``\\[`` or an environment at the start of a line, up to its partner.

    No blank line inside, and at most ``LONGEST_DISPLAY`` characters. Without a partner what there
    is of it is one block too, shown as it is: its lines would else be lists and titles until the
    partner comes.
    """
    first = _line(state, start_line).strip()
    closer = _closer(first, 0)
    if not closer or state.is_code_block(start_line):
        return False
    line, kind = start_line, MATH
    if closer not in first[2:]:
        begin = state.src.rfind("\n", 0, state.bMarks[start_line]) + 1
        limit = begin + LONGEST_DISPLAY
        is_inside = state.level > 0 or end_line < state.lineMax
        may_be_open = not is_inside and len(state.src) <= limit
        # Looked for at once first: many lines may begin like this one.
        if not may_be_open and state.src.find(closer, state.eMarks[start_line], limit) < 0:
            return False
        line += 1
        while line < end_line and state.eMarks[line] <= limit and closer not in _line(state, line):
            if state.isEmpty(line):
                return False
            line += 1
        if line < end_line and state.eMarks[line] > limit:
            return False
        if line >= end_line:
            if is_inside:
                return False
            kind = OPEN_MATH
    elif not first.endswith(closer) or not first[2 : first.index(closer, 2)].strip():
        return False
    if kind == MATH and not _line(state, line).rstrip().rstrip(".,;").endswith(closer):
        return False
    if silent:
        return True
    last = min(line + 1, end_line)
    token = state.push(kind, "", 0)
    token.content = state.getLines(start_line, last, state.blkIndent, False).strip()
    token.map = [start_line, last]
    state.line = last
    return True


def _closer(text: str, at: int) -> str:
    """What ends the formula that begins at ``at``; empty if none does."""
    environment = _ENVIRONMENT.match(text, at)
    if environment is not None:
        return f"\\end{{{environment.group(1)}{environment.group(2)}}}"
    return _BLOCK_PAIRS.get(text[at : at + 2], "")


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
