"""Ids of runs of text that were encoded before.

A conversation's prompt begins with the same texts at every turn, and those of several tabs with the
same system prompt: 4,000 tokens take 10 ms to encode, longer than a GPU needs for what is new.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

from engine.text_prefix import Before

MOST_CHARS = 1_000_000
"""Of all texts that are kept; with their ids 20 MB at most."""

_LEAST_CHARS = 64
"""Shorter ones are encoded faster than they are kept."""


class EncodedRuns:
    """Encodes through ``encode`` and keeps what was used last. Not for several threads at once.

    Args:
        encode: text and what stands before it to ids, always the same.
        most_chars: of all texts that are kept.
    """

    def __init__(
        self, encode: Callable[[str, Before], list[int]], most_chars: int = MOST_CHARS
    ) -> None:
        self._encode = encode
        self._most_chars = most_chars
        self._kept: OrderedDict[tuple[str, Before], array[int]] = OrderedDict()
        self.num_chars = 0
        """Of the texts that are kept."""

    def ids(self, text: str, before: Before) -> Sequence[int]:
        """Ids of ``text``, not to be changed.

        Raises:
            InvalidValueError: as ``Tokenizer.encode_text``.
        """
        if not _LEAST_CHARS <= len(text) <= self._most_chars:
            return self._encode(text, before)
        key = (text, before)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        # A list of Python's numbers would take eight times as much.
        ids = self._kept[key] = array("I", self._encode(text, before))
        self.num_chars += len(text)
        while self.num_chars > self._most_chars:
            (old, _), _ = self._kept.popitem(last=False)
            self.num_chars -= len(old)
        return ids
