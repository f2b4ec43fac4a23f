"""Words in messages that something elsewhere points at: those of a block of the cache."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF

from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.message import MessageItem

if TYPE_CHECKING:
    from app.widgets.transcript.page import Page

ENOUGH = 12
"""So many characters in a row that are alike are no accident."""

BAR_WIDTH, BAR_GAP = 3.0, 10.0
_MOST_CHARS = 4000


class Lit:
    """By message id the words that are lit; no words for a message that is lit as a whole."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._found: dict[tuple[str, str], tuple[int, int] | None] = {}

    @property
    def message_ids(self) -> set[str]:
        """The messages that are lit."""
        return set(self._words)

    def set(self, words: Mapping[str, str]) -> bool:
        """Lights these and no others. True if that is a change."""
        if words == self._words:
            return False
        self._words = dict(words)
        self._found.clear()
        return True

    def bar(self, page: Page, item: MessageItem) -> QRectF | None:
        """The bar beside a lit message, in page coordinates; None for another."""
        if item.view.message_id not in self._words:
            return None
        top = item.top + item.head_height
        height = item.height - item.head_height - item.footer_height
        return QRectF(page.left - BAR_GAP - BAR_WIDTH, top, BAR_WIDTH, height)

    def range_in(self, item: MessageItem, box: BlockBox) -> tuple[int, int] | None:
        """(start, end) of the lit words in a box's document, if some of them stand there."""
        words = self._words.get(item.view.message_id)
        if not words or box.document is None:
            return None
        text = box.document.toPlainText()
        key = words, text
        if key not in self._found:
            self._found[key] = find_words(words, text)
        return self._found[key]


def find_words(words: str, text: str) -> tuple[int, int] | None:
    """Where the longest part of ``words`` stands in ``text``; None if it may be an accident.

    Markdown's marks are in ``words`` and not in ``text``, and a block may end anywhere.
    """
    words, text = words.strip(), text[:_MOST_CHARS]
    if not words:
        return None
    at = text.find(words)
    if at >= 0:
        return at, at + len(words)
    matcher = SequenceMatcher(None, text, words, autojunk=False)
    found = matcher.find_longest_match()
    end = found.a + found.size
    ends_with_text = end == len(text) and found.b == 0
    begins_with_text = found.a == 0 and found.b + found.size == len(words)
    # A block over the end of a message has the end of its text, and then the template's words.
    at_an_end = ends_with_text or begins_with_text
    needed = 3 if at_an_end else min(ENOUGH, max(2, len(words) // 2))
    return (found.a, end) if found.size >= needed else None
