"""Folded reasoning: which sections of a message are reasoning, and whether they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from app.i18n import tr
from app.markdown_blocks import THOUGHT, Block
from app.markdown_thoughts import TextPart, ThoughtSplitter, split_thoughts
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.sections import Section


class Thoughts:
    """Of one message. ``folds``: what the user chose, by number of the thought; it may be shared
    with the message that takes the place of this one.
    """

    def __init__(self, folds: dict[int, bool] | None = None) -> None:
        self.folds: dict[int, bool] = {} if folds is None else folds
        self._splitter = ThoughtSplitter()
        self._taken = 0
        self._is_open = False
        self._num_begun = 0

    def split(self, text: str, is_open: bool) -> list[TextPart]:
        """The parts of a text that is shown anew; ``fresh`` gives what comes after it."""
        self._is_open = is_open
        self._num_begun = 0
        self._taken = len(text)
        parts, self._splitter = split_thoughts(text, is_complete=not is_open)
        return [part for part in parts if text[part.start : part.end].strip()] or parts[-1:]

    def fresh(self, text: str, is_open: bool) -> list[TextPart] | None:
        """The parts that have come since; None if what was split before was split wrongly."""
        self._is_open = is_open
        parts = self._splitter.take(text[self._taken :])
        self._taken = len(text)
        if self._splitter.began_inside:
            return None
        return parts if is_open else parts + self._splitter.finish()

    def begins(self, thought: int) -> bool:
        """True the first time that it is asked for a thought."""
        is_new = thought > self._num_begun
        self._num_begun = max(self._num_begun, thought)
        return is_new

    @property
    def unfinished(self) -> int:
        """Number of the thought that has no end yet; 0 if there is none."""
        return self._splitter.thought

    def is_folded(self, thought: int) -> bool:
        """Reasoning is shown while it comes, and where nothing follows it."""
        return self.folds.get(thought, thought != self.unfinished)

    @property
    def any_unfolded(self) -> bool:
        """True if some reasoning is shown."""
        return any(not self.is_folded(number) for number in range(1, self._num_begun + 1))

    def apply(self, sections: Iterable[Section]) -> list[Section]:
        """Folds what is to be folded. Returns the sections that changed."""
        changed = []
        for section in sections:
            is_folded = section.thought > 0 and self.is_folded(section.thought)
            if is_folded != section.is_folded:
                section.fold(is_folded)
                changed.append(section)
        return changed

    def words(self, thought: int, seconds: float) -> str:
        """What the line above a thought says. ``seconds`` 0 if unknown."""
        if thought == self.unfinished:
            return tr("Thinking…") if self._is_open else tr("Thought without coming to an end")
        if seconds <= 0 or thought > 1:
            return tr("Thoughts")
        if seconds < 60:
            return tr("Thought for {n} s", n=max(1, round(seconds)))
        minutes, rest = divmod(round(seconds), 60)
        return tr("Thought for {m} min {s} s", m=minutes, s=rest)


def header_section(index: int, thought: int) -> Section:
    """The line that folds and unfolds a thought."""
    section = Section(index)
    section.add(Block(THOUGHT, level=thought), None)
    return section


def headers(boxes: Iterable[BlockBox]) -> list[BlockBox]:
    """Those of ``boxes`` that fold and unfold thoughts."""
    return [box for box in boxes if box.block.kind == THOUGHT]
