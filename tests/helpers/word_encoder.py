"""Conversations to ids for the scripted engine: a word is a token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace

from engine.api.params import ChatMessage

SYSTEM, USER, ASSISTANT, END = 1, 2, 3, 4
_ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}


class WordEncoder:
    """Gives ids to words as they come."""

    def __init__(self) -> None:
        self._vocabulary: dict[str, int] = {}
        self._texts: dict[str, list[int]] = {}

    def token(self, word: str) -> int:
        return self._vocabulary.setdefault(word.strip(), len(self._vocabulary) + 10)

    def encode(self, messages: Sequence[ChatMessage], **_options: bool) -> SimpleNamespace:
        """What the real encoder gives, as far as it is used here."""
        ids: list[int] = []
        history_end = 0
        for message in messages:
            ids.append(_ROLES[message.role])
            ids += self._ids_of(message.content)
            if message.role == "assistant":
                history_end = len(ids)
            ids.append(END)
        # As with the real engine, an answer's header belongs to the prompt of its turn.
        return SimpleNamespace(token_ids=[*ids, ASSISTANT], history_end=history_end)

    def _ids_of(self, text: str) -> list[int]:
        if text not in self._texts:
            self._texts[text] = [self.token(word) for word in words_of(text)]
        return self._texts[text]


def words_of(text: str) -> list[str]:
    """The words, each with the spaces before it."""
    return re.findall(r"\s*\S+", text)
