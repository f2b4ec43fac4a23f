"""Finds control tokens in text, however many there are: some vocabularies have thousands."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


class TextSet:
    """Finds any of ``texts`` in a text, of several that begin at one place the longest.

    A regular expression that lists them tries one after the other wherever the first character
    fits: minutes for a page of HTML and 6,000 tokens ``<…>``. Here the few lengths that they have
    are looked up.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = {text for text in texts if text}
        groups: dict[str, list[str]] = {}
        for text in self._texts:
            groups.setdefault(text[0], []).append(text)
        # Those that begin alike are looked for by all that they have in common, such as "<|".
        self._lengths = {
            _common_beginning(group): sorted({len(text) for text in group}, reverse=True)
            for group in groups.values()
        }
        self._begin = re.compile("|".join(map(re.escape, self._lengths)) or r"(?!)")

    def next(self, text: str, position: int) -> tuple[int, str] | None:
        """The first at or after ``position``: where it begins, and which; None if there is none."""
        while (match := self._begin.search(text, position)) is not None:
            at = match.start()
            for length in self._lengths[match[0]]:
                found = text[at : at + length]
                if found in self._texts:
                    return at, found
            position = at + 1
        return None

    def replace(self, text: str, change: Callable[[str], str]) -> str:
        """``text`` with ``change`` of each of those that stand in it."""
        pieces: list[str] = []
        done = 0
        while (found := self.next(text, done)) is not None:
            at, one = found
            pieces += (text[done:at], change(one))
            done = at + len(one)
        return "".join((*pieces, text[done:])) if pieces else text


def _common_beginning(texts: Collection[str]) -> str:
    # What the first and the last in order have in common, all between have.
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))]


class AddedToken(Protocol):
    """What is needed of a token; ``lstrip``, ``rstrip``: it takes the white space beside it."""

    @property
    def content(self) -> str: ...
    @property
    def lstrip(self) -> bool: ...
    @property
    def rstrip(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Found:
    """``token`` stands in the text from ``start`` to ``end``, the space that it takes included."""

    token: str
    start: int
    end: int


class SpecialTokens:
    """Finds control tokens, with the spaces that they are said to take."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens = {token.content: token for token in tokens}
        self._texts = TextSet(self._tokens)

    def find(self, text: str) -> Iterator[Found]:
        """All of them in order, without overlaps."""
        done = 0
        while (found := self._texts.next(text, done)) is not None:
            start, content = found
            end = start + len(content)
            token = self._tokens[content]
            while token.lstrip and start > done and text[start - 1].isspace():
                start -= 1
            while token.rstrip and end < len(text) and text[end].isspace():
                end += 1
            yield Found(content, start, end)
            done = end
