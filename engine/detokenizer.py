"""Token ids to text while they are sampled: whole characters only, and never the text of a stop."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that is final. ``stopped``: ``stop`` ended the answer, text after it is dropped.

    ``consumed``: how many of the ids fed were taken in; all of them unless ``stopped``.
    """

    text: str
    stopped: bool = False
    stop: str = ""
    consumed: int = 0


class Detokenizer:
    """The text side of one answer. The cost of a token does not grow with the answer.

    Bytes that do not yet make a character wait for the next token; text that may be the beginning
    of a stop string waits until it is one or is not. Control tokens give no text.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._longest_stop = max(map(len, self._stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        # Of those held back, characters at the beginning that another stream has shown.
        self._num_said = 0
        self._num_shown = 0
        self._num_decoded = 0
        self._num_ids = 0
        self._stopped_by = ""
        # Where a token ends together with a character: ids so far and characters so far.
        self._id_ends: list[int] = []
        self._char_ends: list[int] = []

    def follow(self, token_ids: Sequence[int]) -> None:
        """To be called first where an answer goes on: its ids so far, whose text has been shown.

        It is not shown again, but a stop string may begin in it, and its last character may be one
        that was left unfinished.

        Raises:
            InvalidValueError: an id that the model does not have.
        """
        # A character has four bytes at most, a token one at least.
        end = token_ids[-4 * max(self._longest_stop, 1) :]
        text = self._decoder.decode(b"".join(self._spelt(end)))
        self._held = text[len(text) - self._alive(text) :]
        self._num_said = len(self._held)

    def feed(self, token_ids: Sequence[int]) -> TextDelta:
        """Takes sampled ids and returns the text that became final.

        Raises:
            InvalidValueError: an id that the model does not have; nothing was taken in.
        """
        spelt = self._spelt(token_ids)
        shown = ""
        for consumed, token_bytes in enumerate(spelt):
            if self._stopped_by:
                return TextDelta(shown, True, self._stopped_by, consumed)
            shown += self._take(token_bytes)
        return TextDelta(shown, bool(self._stopped_by), self._stopped_by, len(spelt))

    def flush(self) -> str:
        """The end of the answer: what was held back.

        A character left unfinished is no text: an answer that was cut off in it may go on, and what
        has been shown cannot be taken back.
        """
        if self._stopped_by:
            return ""
        rest = self._held[self._num_said :]
        self._held, self._num_said = "", 0
        self._num_shown += len(rest)
        return rest

    def kept_tokens(self) -> tuple[int, int]:
        """How many leading ids stand for visible text alone, and how many characters they cover.

        Without a stop string these are all of them. A stop string may begin inside a token: the ids
        before that token are kept, and the visible rest has to be encoded again.
        """
        if not self._stopped_by:
            return self._num_ids, self._num_shown
        at = bisect_right(self._char_ends, self._num_shown)
        return (self._id_ends[at - 1], self._char_ends[at - 1]) if at else (0, 0)

    def _spelt(self, token_ids: Sequence[int]) -> list[bytes]:
        return [
            b"" if self._tokenizer.is_special(token_id) else self._tokenizer.token_bytes(token_id)
            for token_id in token_ids
        ]

    def _take(self, token_bytes: bytes) -> str:
        text = self._decoder.decode(token_bytes)
        self._num_ids += 1
        self._num_decoded += len(text)
        if not self._decoder.getstate()[0]:
            self._id_ends.append(self._num_ids)
            self._char_ends.append(self._num_decoded)
        shown = self._release(self._held + text)
        self._num_shown += len(shown)
        return shown

    def _release(self, text: str) -> str:
        """Splits ``text`` into what may be shown and what is held back (``_held``)."""
        if not self._stop:
            return text
        match = self._first_stop(text)
        if match is not None:
            end, self._stopped_by = match
            self._held = ""
        else:
            length = self._alive(text)
            end = len(text) - length
            self._held = text[end:]
        said, self._num_said = self._num_said, max(self._num_said - end, 0)
        return text[said:end]

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        """The stop that is complete first; of several at once the longest.

        By where it ends, not where it begins: the outcome must not depend on how the text was cut
        into tokens. One that is all in what was shown before is none: it was not one then.
        """
        found = [
            (at + len(stop), at, stop)
            for stop in self._stop
            if (at := text.find(stop, max(self._num_said - len(stop) + 1, 0))) >= 0
        ]
        return min(found)[1:] if found else None

    def _alive(self, text: str) -> int:
        """Length of the longest end of ``text`` that a stop string begins with."""
        for length in range(min(len(text), self._longest_stop - 1), 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0
