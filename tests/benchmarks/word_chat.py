"""A tokenizer and a chat format for models without any: a word is a token.

What the model says is not text, so its tokens are spelt as numbers; the next turn gets the exact
ids, as with a real tokenizer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.params import ChatMessage
from engine.chat_encoder import EncodedPrompt

FINGERPRINT = "words"
_ROLES = ("system", "user", "assistant")
_END = len(_ROLES)
_NUM_CONTROL = len(_ROLES) + 1


class WordTokenizer:
    """Ids of words by their checksum, above the ids of the chat format."""

    def __init__(self, vocab_size: int) -> None:
        self._num_words = vocab_size - _NUM_CONTROL

    def encode_text(self, text: str) -> list[int]:
        return [_NUM_CONTROL + zlib.crc32(word.encode()) % self._num_words for word in text.split()]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return "".join(f" {token_id}" for token_id in ids)


class WordEncoder:
    """Role, words, end; answered turns by their ids. The last message is the user's."""

    def __init__(self, tokenizer: WordTokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(
        self, messages: Sequence[ChatMessage], *, continue_answer: bool = False
    ) -> EncodedPrompt:
        if continue_answer:
            raise NotImplementedError("no benchmark continues an answer")
        ids: list[int] = []
        turn_start = 0
        for message in messages:
            if message.turn is not None:
                ids = [*ids[:turn_start], *message.turn.prompt_ids, *message.turn.output_ids]
                turn_start = len(ids)
                continue
            if turn_start and turn_start == len(ids):
                ids.append(_END)
            ids.append(_ROLES.index(message.role))
            ids += self._tokenizer.encode_text(message.content)
            ids.append(_END)
        ids.append(_ROLES.index("assistant"))
        return EncodedPrompt(ids, turn_start, 0, len(ids))


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    stopped: bool = False
    stop: str = ""


class WordStream:
    """Each token is text at once; nothing ends an answer."""

    def __init__(self) -> None:
        self._num_tokens = self._num_chars = 0

    def feed(self, token_ids: Sequence[int]) -> _Piece:
        text = "".join(f" {token_id}" for token_id in token_ids)
        self._num_tokens += len(token_ids)
        self._num_chars += len(text)
        return _Piece(text)

    def flush(self) -> str:
        return ""

    def kept_tokens(self) -> tuple[int, int]:
        return self._num_tokens, self._num_chars


_NOTHING = _Piece("")


class NullStream:
    """No text at all, for measuring what is not about text."""

    def feed(self, token_ids: Sequence[int]) -> _Piece:
        return _NOTHING

    def flush(self) -> str:
        return ""

    def kept_tokens(self) -> tuple[int, int]:
        return 0, 0
