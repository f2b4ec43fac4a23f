"""Text to token ids and back, over the tokenizers library."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from engine.api.errors import InvalidValueError, ModelFileError, UnsupportedModelError
from engine.models.hf_config import read_json, token_ids

_FILE = "tokenizer.json"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A model's tokenizer. It adds nothing by itself: start tokens come from the chat template.

    ``eos_token_ids``: every token that ends an answer. ``special_tokens``: text → id of control
    tokens. ``fingerprint``: SHA-256 over tokenizer.json and chat template; token ids kept with a
    conversation are good for the same fingerprint only. ``vocab_size``: ids are below it.
    """

    def __init__(
        self, text: str, eos_token_ids: Iterable[int], fingerprint: str, vocab_size: int = 0
    ) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
            settings: dict[str, Any] = json.loads(text)
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelFileError(f"{_FILE} is damaged: {error}.") from error
        # Control tokens in text are never recognised; encode_template puts them in itself.
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_tokens = {
            token.content: token_id for token_id, token in added.items() if token.special
        }
        self._special_ids = frozenset(self.special_tokens.values())
        self.eos_token_ids = frozenset(eos_token_ids)
        self.fingerprint = fingerprint
        own_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.vocab_size = max(vocab_size, own_size, max(added, default=-1) + 1)
        self._special_pattern = _pattern(token for token in added.values() if token.special)
        self._bytes = _TokenBytes(self._tokenizer, settings.get("decoder"))

    @classmethod
    def from_folder(
        cls, folder: Path, eos_token_ids: Iterable[int] = (), vocab_size: int = 0
    ) -> Tokenizer:
        """The tokenizer of the model in ``folder``; its own end token joins ``eos_token_ids``.

        Raises:
            UnsupportedModelError: no tokenizer.json, or a decoder that we do not know.
            ModelFileError: tokenizer.json or tokenizer_config.json is damaged.
        """
        path = folder / _FILE
        if not path.is_file():
            raise UnsupportedModelError(
                f"There is no {_FILE} in {folder}.",
                action=f"Add the model's {_FILE} to the folder, or choose another model.",
            )
        text = path.read_text(encoding="utf-8")
        config = read_json(folder / "tokenizer_config.json") or {}
        generation = read_json(folder / "generation_config.json") or {}
        digest = hashlib.sha256(text.encode())
        jinja = folder / "chat_template.jinja"
        template = jinja.read_text("utf-8") if jinja.is_file() else config.get("chat_template", "")
        digest.update(b"\0" + json.dumps(template).encode())
        ends = {*eos_token_ids, *token_ids(generation)}
        tokenizer = cls(text, ends, digest.hexdigest(), vocab_size)
        eos = config.get("eos_token")
        eos_id = tokenizer.token_id(str(eos.get("content") if isinstance(eos, dict) else eos))
        if eos_id is not None:
            tokenizer.eos_token_ids |= {eos_id}
        return tokenizer

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling in the vocabulary, or None."""
        token_id = self._tokenizer.token_to_id(token)
        return None if token_id is None else int(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, which has no text of its own."""
        return token_id in self._special_ids

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text: control tokens spelt out in it are text like any other.

        Bytes for which the vocabulary has no token are left out; some models lack those of
        characters that nobody writes.

        Raises:
            InvalidValueError: half a surrogate pair, which is no character.
        """
        if not text:
            return []
        if not text.isascii() and _SURROGATE.search(text):
            raise InvalidValueError(
                "The text has half a surrogate pair in it, which is no character.",
                action="Delete the character that does not show.",
            )
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        ids: list[int] = encoding.ids
        return ids

    def encode_template(self, text: str) -> list[int]:
        """Ids of text whose control tokens are meant, such as a rendered template's."""
        ids: list[int] = []
        for run, special_id in self.split_special(text):
            ids += self.encode_text(run) if special_id is None else [special_id]
        return ids

    def split_special(self, text: str) -> list[tuple[str, int | None]]:
        """``text`` cut at its control tokens: (run, None) for plain text, (token, id) for those."""
        pieces: list[tuple[str, int | None]] = []
        position = 0
        for match in self._special_pattern.finditer(text):
            if match.start() > position:
                pieces.append((text[position : match.start()], None))
            pieces.append((match[0], self.special_tokens[match[match.lastgroup or 0]]))
            position = match.end()
        if position < len(text):
            pieces.append((text[position:], None))
        return pieces

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ``ids``; bytes that are no UTF-8 become U+FFFD.

        Raises:
            InvalidValueError: an id that the model does not have.
        """
        parts = [
            self.token_bytes(token_id)
            for token_id in ids
            if not (skip_special and self.is_special(token_id))
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; empty for an id beyond the tokenizer's own.

        Raises:
            InvalidValueError: an id that the model does not have.
        """
        if not 0 <= token_id < self.vocab_size:
            raise InvalidValueError(
                f"Token id {token_id} does not exist: the model has {self.vocab_size:,} tokens.",
                action="Please report this with the log.",
                token_id=token_id,
                vocab_size=self.vocab_size,
            )
        return self._bytes.of(token_id)


class _TokenBytes:
    """The bytes of each token of a byte-level vocabulary, looked up once each.

    A byte-level vocabulary spells every byte as one printable character (GPT-2's table).
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, decoder: dict[str, Any] | None) -> None:
        kind = (decoder or {}).get("type", "none")
        if kind != "ByteLevel":
            raise UnsupportedModelError(
                f"The tokenizer's decoder is {kind}; ByteLevel can be read.",
                action="Choose a model with a byte-level tokenizer (Llama 3, Qwen, SmolLM …).",
                decoder=str(kind),
            )
        self._tokenizer = tokenizer
        self._byte_of = {character: byte for byte, character in _byte_characters().items()}
        self._known: dict[int, bytes] = {}

    def of(self, token_id: int) -> bytes:
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._spell(self._tokenizer.id_to_token(token_id))
        return known

    def _spell(self, token: str | None) -> bytes:
        if token is None:
            return b""
        try:
            return bytes(self._byte_of[character] for character in token)
        except KeyError:
            return token.encode()  # an added token, spelt as it is


def _byte_characters() -> dict[int, str]:
    """GPT-2's table: printable Latin-1 bytes are themselves, the others U+0100 and onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in table]
    table.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return table


def _pattern(tokens: Iterable[Any]) -> re.Pattern[str]:
    """Matches any control token, the longest first, with the spaces that it is said to swallow."""
    parts = []
    for index, token in enumerate(sorted(tokens, key=lambda token: -len(token.content))):
        left = r"\s*" if token.lstrip else ""
        right = r"\s*" if token.rstrip else ""
        parts.append(f"{left}(?P<t{index}>{re.escape(token.content)}){right}")
    return re.compile("|".join(parts) or r"(?!)")
