"""Finding words in what a message shows, without a window. Qt-free.

Upper and lower case are the same, and so are a space, a line break and a no-break space. Markdown's
own signs are not part of what is shown.
"""

from __future__ import annotations

import re
from html import unescape

from app.markdown_blocks import CODE, PLAIN, TABLE, THOUGHT, Block
from app.markdown_math import with_sources

_TAG = re.compile(r"<[^>]*>")
_CELL_END = re.compile(r"</t[dh]>")
_BLANKS = str.maketrans({"\n": " ", "\u00a0": " ", "\u2028": " ", "\u2029": " ", "\t": " "})
_SIGNS = str.maketrans("", "", "*_~`\\#>|-+[]()!$ \r\n\t\u00a0")
_HIDING = ("](", "&", "<", "://")


def folded(text: str) -> str:
    """``text`` as it is compared; as long as it was, so that places stay the same."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = "".join(low if len(low := sign.lower()) == 1 else sign for sign in text)
    return lowered.translate(_BLANKS)


def occurrences(text: str, needle: str) -> list[int]:
    """Where ``needle`` begins in ``text``, both folded; they do not overlap."""
    found = []
    at = text.find(needle) if needle else -1
    while at >= 0:
        found.append(at)
        at = text.find(needle, at + len(needle))
    return found


def plain_text(block: Block) -> str:
    """What a block shows. Formulas are their source."""
    if block.kind == CODE:
        return block.code
    if block.kind == PLAIN:
        return block.html
    if block.kind == THOUGHT:
        return ""
    html = block.html.replace("<br>", "\n")
    if block.kind == TABLE:
        html = _CELL_END.sub("\n", html)
    return with_sources(unescape(_TAG.sub("", html)), block.formulas)


def read_text(block: Block) -> str:
    """What a block shows, as it is read: the cells of a mirrored table from its first column on."""
    text = plain_text(block)
    if not block.mirrored:
        return text
    cells = text.split("\n")
    width = len(_CELL_END.findall(block.html.partition("</tr>")[0]))
    rows = (cells[at : at + width] for at in range(0, len(cells) - 1, width))
    return "".join(f"{cell}\n" for row in rows for cell in reversed(row))


def shown_text(block: Block) -> str:
    """The same, folded."""
    return folded(plain_text(block))


def may_hold(source: str, needle: str) -> bool:
    """False if what the Markdown ``source`` shows certainly does not hold ``needle``. Quick."""
    bare = folded(needle).translate(_SIGNS)
    if not bare or bare in source.lower().translate(_SIGNS):
        return True
    return any(sign in source for sign in _HIDING)
