"""The kinds of tokens in a GGUF file's vocabulary (``tokenizer.ggml.token_type``)."""

from __future__ import annotations

from enum import IntEnum


class TokenType(IntEnum):
    """SentencePiece's kinds, as llama.cpp numbers them."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6
