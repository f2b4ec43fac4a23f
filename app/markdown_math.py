"""Mathematics in Markdown: taken out before anything else looks at it, kept as its source. Qt-free.

``$…$`` and ``\\(…\\)`` inside a line, ``$$…$$``, ``\\[…\\]`` and LaTeX environments set apart. The
transcript draws a formula; copying gives its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

PLACEHOLDER = "\ufffc"
"""Stands in text for a formula; Qt's own character for an object in text."""

MATH, OPEN_MATH = "math", "open_math"
_PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"))
_BLOCK_PAIRS = {"$$": "$$", "\\[": "\\]"}
_MAX_INLINE = 600
_ENVIRONMENT = re.compile(r"\\begin\{(equation|align|gather|multline|eqnarray|aligned)(\*?)\}")
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

    No blank line inside. Without a partner what there is of it is one block too, shown as it is:
    its lines would else be lists and titles until the partner comes.
    """
    first = _line(state, start_line).strip()
    closer = _closer(first)
    if not closer or state.is_code_block(start_line):
        return False
    line, kind = start_line, MATH
    if closer not in first[2:]:
        line += 1
        while line < end_line and closer not in _line(state, line):
            if state.isEmpty(line):
                return False
            line += 1
        if line >= end_line:
            if state.level or end_line < state.lineMax:
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


def _closer(first: str) -> str:
    environment = _ENVIRONMENT.match(first)
    if environment is not None:
        return f"\\end{{{environment.group(1)}{environment.group(2)}}}"
    return _BLOCK_PAIRS.get(first[:2], "")


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
