"""Keeps control tokens that are spelt out in a message from becoming real ones.

A template joins its own control tokens with message content, and may trim or cut the content on
the way. So each control token's text in content is replaced by private-use characters before
rendering, the rendered text is cut at the template's control tokens, and the runs in between get
their text back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.special_tokens import TextSet

_MARK = "\U000f5a5a"
_FIRST_CODE = 0x10_0000


class ContentGuard:
    """``escape`` and ``restore`` for one set of control tokens; any text comes back as it was."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        # The mark is in the list itself, so that text that holds one comes back as it was.
        texts = [_MARK, *sorted(control_tokens, key=lambda token: (-len(token), token))]
        self._code_of = {text: _MARK + chr(_FIRST_CODE + i) for i, text in enumerate(texts)}
        self._text_of = {code: text for text, code in self._code_of.items()}
        self._texts = TextSet(texts)
        self._codes = re.compile(f"{_MARK}.", re.DOTALL)

    def escape(self, content: str) -> str:
        """``content`` without any control token's text in it."""
        return self._texts.replace(content, self._code_of.__getitem__)

    def restore(self, text: str) -> str:
        """Undoes ``escape`` in a part of a rendered text."""
        if _MARK not in text:
            return text
        return self._codes.sub(lambda match: self._text_of.get(match[0], match[0]), text)
