"""The bytes that a token stands for, in both ways in which vocabularies spell them."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import models

from engine.api.errors import UnsupportedModelError
from engine.token_bytes import TokenBytes

BYTE_LEVEL = {"type": "ByteLevel"}
REPLACE = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
FALLBACK = {"type": "ByteFallback"}
METASPACE = {"type": "Metaspace", "replacement": "\u2581"}
TOKENS = ["Ġhi", "Ã©", "\u2581hi", "<0xE9>", "<0xE9", "日"]


def token_bytes(decoder: dict[str, Any] | None) -> TokenBytes:
    vocab = {token: index for index, token in enumerate(TOKENS)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_special_tokens(["Ġadded"])
    return TokenBytes(tokenizer, decoder)


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": list(parts)}


@pytest.mark.parametrize("decoder", [BYTE_LEVEL, sequence(BYTE_LEVEL)])
def test_byte_level(decoder: dict[str, Any]) -> None:
    known = token_bytes(decoder)
    assert known.of(0) == b" hi"
    assert known.of(1) == "é".encode()
    # A character that stands for no byte is itself.
    assert known.of(5) == "日".encode()


@pytest.mark.parametrize("decoder", [sequence(REPLACE, FALLBACK), sequence(FALLBACK, METASPACE)])
def test_sentence_pieces(decoder: dict[str, Any]) -> None:
    known = token_bytes(decoder)
    assert known.of(2) == b" hi"
    assert known.of(3) == b"\xe9"
    assert known.of(4) == b"<0xE9"


def test_what_was_added_is_spelt_as_it_is_and_unknown_ids_are_empty() -> None:
    known = token_bytes(BYTE_LEVEL)
    assert known.of(len(TOKENS)) == "Ġadded".encode()
    assert known.of(10**6) == b""
    assert known.of(10**6) == b""


@pytest.mark.parametrize(
    ("decoder", "kinds"),
    [
        (None, "none"),
        ({"type": "WordPiece"}, "WordPiece"),
        (sequence(FALLBACK), "ByteFallback"),
        (sequence(FALLBACK, {**METASPACE, "replacement": "_"}), r"ByteFallback \+ Metaspace"),
        (sequence(FALLBACK, {**REPLACE, "content": "_"}), r"ByteFallback \+ Replace"),
        (sequence(REPLACE), "Replace"),
    ],
)
def test_other_decoders_are_refused_by_name(decoder: dict[str, Any] | None, kinds: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"decoder is {kinds};"):
        token_bytes(decoder)
