"""Small vocabularies of SentencePiece's kind, as a GGUF file holds them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from engine.loading.gguf_token_types import TokenType
from tests.helpers.toy_tokenizer import toy_tokenizer_json

SPACE = "\u2581"
CONTROL = ("<s>", "</s>", "<|user|>", "<|end|>")
DEFINED = ("\n\n", "  ", "   ", "    ", "<b>")
"""Pieces that are taken whole; the converter spells their spaces as spaces."""


def piece_metadata(*, defined: Sequence[str] = (), **changed: Any) -> dict[str, Any]:
    """Entries of a file with a vocabulary that was learnt from a page of text.

    ``changed``: entries ``tokenizer.ggml.…``.
    """
    vocab = json.loads(toy_tokenizer_json("spaces", []))["model"]["vocab"]
    pieces = sorted(vocab, key=vocab.__getitem__)
    tokens = [*pieces[:257], *CONTROL, *defined, *pieces[257:]]
    types = [TokenType.UNKNOWN, *[TokenType.BYTE] * 256, *[TokenType.CONTROL] * len(CONTROL)]
    types += [TokenType.USER_DEFINED] * len(defined)
    types += [TokenType.NORMAL] * (len(tokens) - len(types))
    scores = [-1000.0] * (len(tokens) - len(pieces[257:]))
    scores += [-float(rank) for rank in range(len(pieces[257:]))]
    entries: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "token_type": [int(kind) for kind in types],
        "scores": scores,
        "unknown_token_id": 0,
        "bos_token_id": tokens.index("<s>"),
        "eos_token_id": tokens.index("</s>"),
        "add_space_prefix": False,
        **changed,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in entries.items() if value is not None}


def naive_pieces(metadata: dict[str, Any], text: str) -> list[str]:
    """The pieces of ``text`` by SentencePiece's own rule, step by step.

    ``text`` has no defined pieces in it; spaces are respelt, none is put before it.
    """
    prefix = "tokenizer.ggml."
    tokens: list[str] = metadata[f"{prefix}tokens"]
    kinds: list[int] = metadata[f"{prefix}token_type"]
    score_of = {
        token: (score, -token_id)
        for token_id, (token, kind, score) in enumerate(
            zip(tokens, kinds, metadata[f"{prefix}scores"], strict=True)
        )
        if kind == TokenType.NORMAL
    }
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = [
            (score_of[left + right], -at)
            for at, (left, right) in enumerate(itertools.pairwise(parts))
            if left + right in score_of
        ]
        if not pairs:
            break
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    found: list[str] = []
    for part in parts:
        found += [part] if part in score_of else [f"<0x{byte:02X}>" for byte in part.encode()]
    return found
