"""Inline Markdown tokens to the small HTML that the transcript lays out; mathematics. Qt-free."""

from __future__ import annotations

import unicodedata
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

LINK_SCHEMES = ("http", "https", "mailto")
_MATH_PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"))
_TAGS = {"strong": "b", "em": "i", "s": "s"}


def is_safe_link(url: str) -> bool:
    """True for http, https and mailto addresses that name where they go."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme.lower() not in LINK_SCHEMES:
        return False
    return bool(parts.path) if parts.scheme.lower() == "mailto" else bool(parts.hostname)


def visible_text(text: str) -> str:
    """``text`` without control and format characters, which could reorder or hide what is read."""
    return "".join(
        c for c in text if unicodedata.category(c) not in ("Cc", "Cf") or c in "\t\n\u200d"
    )


def render_inline(token: Token) -> str:
    """HTML of an ``inline`` token (or one that only has content), everything escaped."""
    if token.children is None:
        return math_html(token.content) if token.type == "math" else escape(token.content)
    open_links: list[bool] = []
    return "".join([_render(child, open_links) for child in token.children])


def _render(token: Token, open_links: list[bool]) -> str:
    kind = token.type
    if kind == "text":
        return escape(visible_text(token.content) if open_links else token.content)
    if kind == "code_inline":
        return f"<code>{_keep_spaces(escape(token.content))}</code>"
    if kind == "softbreak":
        return " "
    if kind == "hardbreak":
        return "<br>"
    if kind == "math":
        return math_html(token.content)
    if kind == "link_open":
        url = str(token.attrGet("href") or "")
        open_links.append(is_safe_link(url))
        return f'<a href="{escape(url)}">' if open_links[-1] else ""
    if kind == "link_close":
        return "</a>" if open_links and open_links.pop() else ""
    if kind == "image":
        return _image_html(token)
    if token.tag in _TAGS:
        return f"<{'/' if token.nesting < 0 else ''}{_TAGS[token.tag]}>"
    return escape(token.content)


def _image_html(token: Token) -> str:
    """Images are never loaded: their description, linked if the address is a safe one."""
    url = str(token.attrGet("src") or "")
    label = escape(visible_text(token.content)) or "image"
    return f'<a href="{escape(url)}">[{label}]</a>' if is_safe_link(url) else f"[{label}]"


def _keep_spaces(html: str) -> str:
    return html.replace("  ", "&nbsp; ")


def math_html(source: str) -> str:
    """Mathematics as its source, which is what copying it should give too."""
    return f'<span class="math">{escape(source)}</span>'


def add_math(parser: MarkdownIt) -> None:
    """Takes mathematics out of the parser's reach, so that emphasis and escapes leave it alone."""
    parser.inline.ruler.before("escape", "math", _math_inline)
    parser.block.ruler.before("fence", "math", _math_block)


def _math_inline(state: StateInline, silent: bool) -> bool:
    for opener, closer in _MATH_PAIRS:
        if state.src.startswith(opener, state.pos):
            end = state.src.find(closer, state.pos + 2)
            if end < 0 or end > state.posMax or not state.src[state.pos + 2 : end].strip():
                return False
            if not silent:
                token = state.push("math", "", 0)
                token.content = state.src[state.pos : end + 2]
            state.pos = end + 2
            return True
    return False


def _math_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """``$$`` or ``\\[`` alone at the start of a line, up to its partner. No blank line inside."""
    first = _line(state, start_line).strip()
    closer = {"$$": "$$", "\\[": "\\]"}.get(first[:2])
    if closer is None or state.is_code_block(start_line):
        return False
    line = start_line
    if closer not in first[2:]:
        line += 1
        while line < end_line and closer not in _line(state, line):
            if state.isEmpty(line):
                return False
            line += 1
    elif not first.endswith(closer):
        return False
    if silent:
        return True
    last = min(line + 1, end_line)
    token = state.push("math", "", 0)
    token.content = state.getLines(start_line, last, state.blkIndent, False).strip()
    token.map = [start_line, last]
    state.line = last
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
