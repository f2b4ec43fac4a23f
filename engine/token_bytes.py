"""What bytes a token stands for, for the two ways in which vocabularies spell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import tokenizers

from engine.api.errors import UnsupportedModelError

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """The bytes of each token of a vocabulary, looked up once each.

    A byte-level vocabulary spells every byte as one printable character (GPT-2's table). One of
    SentencePiece's kind spells text, with U+2581 for a space, and single bytes as ``<0x0A>``. What
    was added to a vocabulary is spelt as it is, but for the latter's spaces.

    Raises:
        UnsupportedModelError: ``decoder``, that of tokenizer.json, is of another kind.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, decoder: Mapping[str, Any] | None) -> None:
        self._tokenizer = tokenizer
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        self._spell = _speller(decoder or {})
        self._known: dict[int, bytes] = {}

    def of(self, token_id: int) -> bytes:
        """Empty for an id that the tokenizer does not have."""
        known = self._known.get(token_id)
        if known is None:
            token = self._tokenizer.id_to_token(token_id)
            known = b"" if token is None else self._spell(token, token_id in self._added)
            self._known[token_id] = known
        return known


def _speller(decoder: Mapping[str, Any]) -> Callable[[str, bool], bytes]:
    parts = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
    kinds = [str(part.get("type", "none")) for part in parts]
    if "ByteLevel" in kinds:
        byte_of = {character: byte for byte, character in _byte_characters().items()}

        def spell_bytes(token: str, added: bool) -> bytes:
            if added:
                return token.encode()
            try:
                return bytes(byte_of[character] for character in token)
            except KeyError:
                return token.encode()

        return spell_bytes
    if "ByteFallback" in kinds and any(_restores_spaces(part) for part in parts):
        return _spell_piece
    raise UnsupportedModelError(
        f"The tokenizer's decoder is {' + '.join(kinds)}; byte-level ones and SentencePiece's "
        "with byte fallback can be read.",
        action="Choose a model with another tokenizer (Llama, Qwen, SmolLM, Mistral …).",
        decoder=" + ".join(kinds),
    )


def _restores_spaces(part: Mapping[str, Any]) -> bool:
    if part.get("type") == "Metaspace":
        return part.get("replacement") == _SPACE
    pattern = part.get("pattern") or {}
    return (
        part.get("type") == "Replace"
        and pattern.get("String") == _SPACE
        and part.get("content") == " "
    )


def _spell_piece(token: str, added: bool) -> bytes:
    match = None if added else _BYTE.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(_SPACE, " ").encode()


def _byte_characters() -> dict[int, str]:
    """GPT-2's table: printable Latin-1 bytes are themselves, the others U+0100 and onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in table]
    table.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return table
