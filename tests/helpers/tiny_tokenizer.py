"""A tiny byte-level tokenizer without a model: 3 control tokens, the 256 bytes, some merges."""

from __future__ import annotations

from engine.loading.gguf_tokenizer import build_tokenizer
from engine.tokenizer import Tokenizer
from tests.helpers.tiny_gguf import TinyGguf

END_ID = 2


def tiny_tokenizer(fingerprint: str = "tiny") -> Tokenizer:
    """Ids 0–2 are <|endoftext|>, <|im_start|>, <|im_end|>; 3 and on the bytes in their order."""
    tiny = TinyGguf()
    kinds = [3, 3, 3] + [1] * (len(tiny.tokens()) - 3)
    text = build_tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tiny.tokens(),
            "tokenizer.ggml.merges": list(tiny.merges),
            "tokenizer.ggml.token_type": kinds,
        }
    ).to_str()
    return Tokenizer(text, [END_ID], fingerprint)


def byte_ids(data: bytes) -> list[int]:
    """One id a byte."""
    return [3 + byte for byte in data]
