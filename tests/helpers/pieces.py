"""A vocabulary whose tokens do not end where characters do, for any model of numbers."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_PARTS = (b"a", b"b", b"ab", b" ", b"c\n", "é".encode()[:1], "é".encode()[1:], "漢".encode()[:2])


class PieceTokenizer:
    """What a detokenizer needs of a tokenizer; any id below ``num_ids`` has bytes."""

    def __init__(self, num_ids: int) -> None:
        self._num_ids = num_ids

    def is_special(self, token_id: int) -> bool:
        return False

    def token_bytes(self, token_id: int) -> bytes:
        assert 0 <= token_id < self._num_ids
        return _PARTS[token_id % len(_PARTS)]


def visible_text(
    token_ids: Sequence[int], stop: Sequence[str], given_ids: Sequence[int] = ()
) -> tuple[str, bool]:
    """The text of a whole answer decoded at once and whether one of ``stop`` ends it.

    The stop that is complete first counts, of several at once the longest; its text is not shown.
    It may begin in the text of ``given_ids``, which was shown before. A character that the last
    bytes begin is no text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    given = decoder.decode(_bytes_of(given_ids))
    text = given + decoder.decode(_bytes_of(token_ids))
    found = [(text.find(part, max(len(given) - len(part) + 1, 0)), part) for part in stop]
    ends = [(at + len(part), at) for at, part in found if at >= 0]
    if ends:
        return text[len(given) : min(ends)[1]], True
    return text[len(given) :], False


def _bytes_of(token_ids: Sequence[int]) -> bytes:
    return b"".join(_PARTS[token_id % len(_PARTS)] for token_id in token_ids)
