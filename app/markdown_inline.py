"""Inline Markdown tokens to the small HTML that the transcript lays out. Qt-free."""

from __future__ import annotations

import unicodedata
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.markdown_math import MATH, PLACEHOLDER, Formula, formula_of

if TYPE_CHECKING:
    from markdown_it.token import Token

LINK_SCHEMES = ("http", "https", "mailto")
_LONGEST_ADDRESS = 80
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


def begins_right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction is one of Arabic, Hebrew and the like."""
    for sign in text:
        direction = unicodedata.bidirectional(sign)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return False


class InlineHtml:
    """Turns inline tokens into HTML, everything escaped. ``formulas``: what the placeholders in it
    stand for, in their order.
    """

    def __init__(self) -> None:
        self.formulas: list[Formula] = []
        self._open_links: list[bool] = []

    def render(self, token: Token) -> str:
        """HTML of an ``inline`` token, or of one that only has content."""
        if token.children is None:
            return self._formula(token) if token.type == MATH else escaped(token.content)
        return "".join([self._render(child) for child in token.children])

    def _render(self, token: Token) -> str:
        kind = token.type
        if kind == "text":
            in_link = bool(self._open_links)
            return escaped(visible_text(token.content) if in_link else token.content)
        if kind == "code_inline":
            return f"<code>{_keep_spaces(escaped(token.content))}</code>"
        if kind in ("softbreak", "hardbreak"):
            # Answers are written for a window that keeps their lines: addresses, verses, Chinese.
            return "<br>"
        if kind == MATH:
            return self._formula(token)
        if kind == "link_open":
            url = str(token.attrGet("href") or "")
            self._open_links.append(is_safe_link(url))
            return f'<a href="{escape(url)}">' if self._open_links[-1] else ""
        if kind == "link_close":
            return "</a>" if self._open_links and self._open_links.pop() else ""
        if kind == "image":
            return _image_html(token)
        if token.tag in _TAGS:
            return f"<{'/' if token.nesting < 0 else ''}{_TAGS[token.tag]}>"
        return escaped(token.content)

    def _formula(self, token: Token) -> str:
        self.formulas.append(formula_of(token.content))
        return PLACEHOLDER


def escaped(text: str) -> str:
    """``text`` as HTML. What stands for formulas in ours means nothing in anybody else's."""
    return escape(text.replace(PLACEHOLDER, "\ufffd"))


def _image_html(token: Token) -> str:
    """Images are never loaded: their description and address, linked if it is a safe one."""
    url = visible_text(str(token.attrGet("src") or ""))
    shown = url if len(url) <= _LONGEST_ADDRESS else f"{url[:_LONGEST_ADDRESS]}…"
    label = " · ".join(part for part in (visible_text(token.content).strip(), shown) if part)
    html = f"[{escaped(label)}]"
    return f'<a href="{escape(url)}">{html}</a>' if is_safe_link(url) else html


def _keep_spaces(html: str) -> str:
    return html.replace("  ", "&nbsp; ")
