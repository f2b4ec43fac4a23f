"""Text to token ids and back, over the tokenizers library."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from engine.api.errors import InvalidValueError, ModelFileError
from engine.models.hf_config import read_json, token_ids
from engine.special_tokens import SpecialTokens
from engine.template_files import TOKENIZER_FILE, require_tokenizer
from engine.text_prefix import Before, prefixed_after, without_prefix
from engine.token_bytes import TokenBytes

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL_SPELLING = re.compile(r"<[|\uff5c].*[|\uff5c]>", re.DOTALL)


class Tokenizer:
    """A model's tokenizer. It adds nothing by itself: start tokens come from the chat template.

    ``eos_token_ids``: every token that ends an answer. ``special_tokens``: text → id of control
    tokens: those flagged special, those that end an answer, and those spelt ``<|…|>``, which some
    files forget to flag. ``fingerprint``: SHA-256 over tokenizer.json and chat template; token
    ids kept with a conversation are good for the same fingerprint only. ``vocab_size``: ids are
    below it.
    """

    def __init__(
        self,
        text: str,
        eos_token_ids: Iterable[int],
        fingerprint: str,
        vocab_size: int = 0,
        eos_token: str = "",
    ) -> None:
        try:
            settings: dict[str, Any] = json.loads(text)
            self.eos_token_ids = frozenset({*eos_token_ids, *_ids_of(settings, eos_token)})
            if _flag_control_tokens(settings, self.eos_token_ids):
                text = json.dumps(settings)
            self._tokenizer = _build(text)
            self._prefixed_after = prefixed_after(settings)
            self._plain = self._tokenizer
            if self._prefixed_after:
                self._plain = _build(json.dumps(without_prefix(settings)))
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelFileError(f"{TOKENIZER_FILE} is damaged: {error}.") from error
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {token_id: token for token_id, token in added.items() if token.special}
        self.special_tokens = {token.content: token_id for token_id, token in self._special.items()}
        self.fingerprint = fingerprint
        own_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.vocab_size = max(vocab_size, own_size, max(added, default=-1) + 1)
        self._finder = SpecialTokens(self._special.values())
        self._bytes = TokenBytes(self._tokenizer, settings.get("decoder"))

    @classmethod
    def from_folder(
        cls, folder: Path, eos_token_ids: Iterable[int] = (), vocab_size: int = 0
    ) -> Tokenizer:
        """The tokenizer of the model in ``folder``; its own end token joins ``eos_token_ids``.

        Raises:
            UnsupportedModelError: no tokenizer.json, or a decoder that we do not know.
            ModelFileError: tokenizer.json or tokenizer_config.json is damaged.
        """
        try:
            text = require_tokenizer(folder).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(
                f"{TOKENIZER_FILE} is damaged: byte {error.start:,} is no text in UTF-8."
            ) from error
        config = read_json(folder / "tokenizer_config.json") or {}
        generation = read_json(folder / "generation_config.json") or {}
        digest = hashlib.sha256(text.encode())
        jinja = folder / "chat_template.jinja"
        template = config.get("chat_template", "")
        if jinja.is_file():
            # Only told apart here. One that is no text is refused where it is used.
            template = jinja.read_text("utf-8", errors="replace")
        digest.update(b"\0" + json.dumps(template).encode())
        ends = {*eos_token_ids, *token_ids(generation)}
        eos = config.get("eos_token")
        eos = eos.get("content") if isinstance(eos, dict) else eos
        # The word "None" is a token too: what is missing must not become text.
        eos_token = eos if isinstance(eos, str) else ""
        return cls(text, ends, digest.hexdigest(), vocab_size, eos_token)

    def with_ends(self, tokens: Iterable[str], template: str = "") -> Tokenizer:
        """The same for a chat template in which further tokens end an answer.

        Args:
            tokens: control tokens that end an answer too.
            template: what tells a template that was chosen from others; ids kept with it are not
                another's. Empty for the model's own, of which the fingerprint knows.
        """
        changed = copy.copy(self)
        ends = (self.special_tokens[token] for token in tokens)
        changed.eos_token_ids = self.eos_token_ids | frozenset(ends)
        if not template:
            return changed
        text = f"{self.fingerprint}\0{template}"
        changed.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        return changed

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling in the vocabulary, or None."""
        token_id = self._tokenizer.token_to_id(token)
        return None if token_id is None else int(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, which has no text of its own."""
        return token_id in self._special

    def encode_text(self, text: str, before: Before = Before.NOTHING) -> list[int]:
        """Ids of plain text: control tokens spelt out in it are text like any other.

        ``before``: what stands before it; some tokenizers put a space before text that begins.
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
        tokenizer = self._tokenizer if before in self._prefixed_after else self._plain
        encoding = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        ids: list[int] = encoding.ids
        return ids

    def encode_template(self, text: str) -> list[int]:
        """Ids of text whose control tokens are meant, such as a rendered template's."""
        ids: list[int] = []
        before = Before.NOTHING
        for run, special_id in self.split_special(text):
            ids += self.encode_text(run, before) if special_id is None else [special_id]
            before = Before.TEXT if special_id is None else Before.CONTROL
        return ids

    def end_pattern(self) -> re.Pattern[str]:
        """Matches a token that ends an answer where it is spelt in a rendered template, with the
        white space before it and that which the token takes.
        """
        ends = [self._special[i] for i in self.eos_token_ids if i in self._special]
        return re.compile(rf"\s*(?:{_pattern(ends).pattern})")

    def split_special(self, text: str) -> list[tuple[str, int | None]]:
        """``text`` cut at its control tokens: (run, None) for plain text, (token, id) for those."""
        pieces: list[tuple[str, int | None]] = []
        position = 0
        for found in self._finder.find(text):
            if found.start > position:
                pieces.append((text[position : found.start], None))
            token_id = self.special_tokens[found.token]
            pieces.append((text[found.start : found.end], token_id))
            position = found.end
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


def _build(text: str) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(text)
    # Control tokens in text are never recognised; encode_template puts them in itself.
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _flag_control_tokens(settings: dict[str, Any], eos_token_ids: frozenset[int]) -> bool:
    """Flags every control token special, so that text cannot spell one; whether any was not."""
    changed = False
    for token in settings.get("added_tokens") or []:
        is_control = token["id"] in eos_token_ids or _CONTROL_SPELLING.fullmatch(token["content"])
        if is_control and not token["special"]:
            token["special"] = changed = True
    return changed


def _ids_of(settings: dict[str, Any], token: str) -> set[int]:
    """The id of a token by its spelling, if there is one; none of no spelling."""
    if not token:
        return set()
    for entry in settings.get("added_tokens") or []:
        if entry["content"] == token:
            return {int(entry["id"])}
    vocab = settings["model"]["vocab"]
    found = vocab.get(token) if isinstance(vocab, dict) else None
    return set() if found is None else {int(found)}


def _pattern(tokens: Iterable[Any]) -> re.Pattern[str]:
    """Matches any control token, the longest first, with the spaces that it is said to swallow."""
    parts = []
    for index, token in enumerate(sorted(tokens, key=lambda token: -len(token.content))):
        left = r"\s*" if token.lstrip else ""
        right = r"\s*" if token.rstrip else ""
        parts.append(f"{left}(?P<t{index}>{re.escape(token.content)}){right}")
    return re.compile("|".join(parts) or r"(?!)")
