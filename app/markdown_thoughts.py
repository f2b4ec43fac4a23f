"""Which of an answer is reasoning: what stands between ``<think>`` and ``</think>``. Qt-free.

A tag counts at the start of the answer or alone on its line, and never within code. Many models
are made to begin with reasoning by their template: then only the closing tag is in the text, and
all before it was reasoning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN_TAG, CLOSE_TAG = "<think>", "</think>"
THOUGHT_SECONDS = "thought_s"
"""Fact of an answer: how long its first reasoning took."""

_BLANK_LINES = re.compile(r"\A(?:[ \t]*[\r\n])+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\n]*)$")


@dataclass(frozen=True, slots=True)
class TextPart:
    """Characters ``start`` to ``end`` of a text. ``thought``: number of the reasoning that it
    belongs to, from 1; 0 for what is said.
    """

    start: int
    end: int
    thought: int = 0


class ThoughtSplitter:
    """Tells the parts of a growing text. What may yet become a tag is held back.

    ``began_inside``: a closing tag came without an opening one, so that what was told before it is
    reasoning after all; begin again with ``starts_inside``.
    """

    def __init__(self, starts_inside: bool = False) -> None:
        self.thought = 1 if starts_inside else 0
        self.began_inside = False
        self._num_thoughts = self.thought
        self._at = 0
        self._line = ""
        self._line_told = 0
        self._fence = ""
        self._is_blank_so_far = True

    def take(self, text: str) -> list[TextPart]:
        """Parts of the text that goes on with ``text``, in order; none of them is empty."""
        parts: list[TextPart] = []
        # A \r ends a line too. \r\n is a line and an empty one, which changes nothing here.
        *complete, partial = text.replace("\r", "\n").split("\n")
        for line in complete:
            self._line += line
            self._tell_line(parts, is_complete=True)
            self._at += len(self._line) + 1
            self._line, self._line_told = "", 0
        self._line += partial
        self._tell_line(parts, is_complete=False)
        return _joined(parts)

    def finish(self) -> list[TextPart]:
        """What was held back: no more text comes."""
        parts: list[TextPart] = []
        self._tell(parts, len(self._line))
        return parts

    def _tell_line(self, parts: list[TextPart], is_complete: bool) -> None:
        while self._take_tag(parts):
            pass
        line = self._line
        rest = line[self._line_told :]
        if is_complete:
            self._tell(parts, len(line) + 1)
            self._follow_fence(line)
            if line.strip():
                self._is_blank_so_far = False
        elif not self._may_become_tag(rest):
            self._tell(parts, len(line))

    def _take_tag(self, parts: list[TextPart]) -> bool:
        """Goes over a tag on the line, if there is one."""
        line, told = self._line, self._line_told
        if self._fence:
            return False
        if not self.thought:
            if self._opens(line, told):
                at = line.index(OPEN_TAG, told)
                self._tell(parts, at)
                self._num_thoughts += 1
                self.thought = self._num_thoughts
                self._line_told = at + len(OPEN_TAG)
                return True
            # Its beginning may have been told as text already.
            near = max(0, told - len(CLOSE_TAG))
            if not self._num_thoughts and self._close_at(line, near, alone=True) >= 0:
                self.began_inside = True
            return False
        at = self._close_at(line, told)
        if at < 0:
            return False
        self._tell(parts, at)
        self.thought = 0
        self._line_told = at + len(CLOSE_TAG)
        self._is_blank_so_far = False
        return True

    def _opens(self, line: str, told: int) -> bool:
        rest = line[told:]
        if not rest.lstrip().startswith(OPEN_TAG) or line[:told].strip():
            return False
        indent = len(line) - len(line.lstrip(" "))
        is_alone = rest.strip() == OPEN_TAG and indent <= 3
        return self._is_blank_so_far or is_alone

    def _close_at(self, line: str, told: int, alone: bool = False) -> int:
        at = line.find(CLOSE_TAG, told)
        while at >= 0:
            # An odd number of backticks before it: it is written as code.
            in_code = line.count("`", 0, at) % 2 == 1
            ends_line = not line[at + len(CLOSE_TAG) :].strip()
            if not in_code and (ends_line or not alone):
                return at
            at = line.find(CLOSE_TAG, at + 1)
        return -1

    def _may_become_tag(self, rest: str) -> bool:
        """True if more text could make a tag of the end of the line."""
        if self._fence:
            return False
        if self.thought:
            return any(rest.endswith(CLOSE_TAG[:n]) for n in range(1, len(CLOSE_TAG)))
        bare = rest.strip(" ")
        if not bare or self._line[: self._line_told].strip():
            return False
        return OPEN_TAG.startswith(bare) and (self._is_blank_so_far or rest[:4].strip(" ") != "")

    def _follow_fence(self, line: str) -> None:
        found = _FENCE.match(line)
        if self._fence:
            stripped = line.strip(" \t")
            is_mark = len(stripped) >= len(self._fence) and set(stripped) == {self._fence[0]}
            if is_mark and found is not None:
                self._fence = ""
        elif found is not None and not (found.group(1)[0] == "`" and "`" in found.group(2)):
            self._fence = found.group(1)

    def _tell(self, parts: list[TextPart], end: int) -> None:
        """Everything on the line up to ``end`` is known."""
        if end > self._line_told:
            start = self._at + self._line_told
            parts.append(TextPart(start, self._at + end, self.thought))
            self._line_told = end


def split_thoughts(text: str, is_complete: bool = True) -> tuple[list[TextPart], ThoughtSplitter]:
    """The parts of ``text``, with what goes on splitting it if more comes."""
    if "think>" not in text and is_complete:
        return [TextPart(0, len(text))], ThoughtSplitter()
    splitter = ThoughtSplitter()
    parts = splitter.take(text)
    if splitter.began_inside:
        splitter = ThoughtSplitter(starts_inside=True)
        parts = splitter.take(text)
    if is_complete:
        parts = _joined(parts + splitter.finish())
    return parts, splitter


def answer_text(text: str) -> str:
    """``text`` without reasoning."""
    if "think>" not in text:
        return text
    parts, _splitter = split_thoughts(text)
    said = "".join(text[part.start : part.end] for part in parts if not part.thought)
    return _BLANK_LINES.sub("", said).rstrip()


def _joined(parts: list[TextPart]) -> list[TextPart]:
    """Neighbours of one kind as one part."""
    found: list[TextPart] = []
    for part in parts:
        if found and found[-1].thought == part.thought and found[-1].end == part.start:
            found[-1] = TextPart(found[-1].start, part.end, part.thought)
        else:
            found.append(part)
    return found
