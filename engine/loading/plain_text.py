"""Words out of a model's files, made safe to show: one line, nothing invisible, not too long."""

from __future__ import annotations

import unicodedata

MAX_CHARS = 200

_SPACES = ("Zs", "Zl", "Zp", "Cc")


def plain_text(text: str, max_chars: int = MAX_CHARS) -> str:
    """``text`` without control characters, line ends, and characters that are not seen or turn the
    direction of what is around them; at most ``max_chars`` characters, with … where it was cut.
    """
    # What is dropped may be much: a little more than is kept is looked at, not all.
    kept = "".join(_shown(char) for char in text[: 4 * max_chars])
    words = " ".join(kept.split())
    if len(words) > max_chars or len(text) > 4 * max_chars:
        return words[: max_chars - 1].rstrip() + "…"
    return words


def _shown(char: str) -> str:
    category = unicodedata.category(char)
    if category in _SPACES:
        return " "
    # Formats (bidirectional overrides among them), surrogates, private use, unassigned.
    return "" if category.startswith("C") else char
