"""Small tokenizers of the kinds that real models have, trained on a page of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

_SPACE = "\u2581"

_CORPUS = """The river runs through the old town, and the town sleeps beside the river.
How many bridges are there? There are seven bridges, and each of them has a name.
You are a helpful assistant. Answer briefly, and say so when you do not know.
user assistant system model think answer question Hello Hi there hello again

    def add(a, b):
        return a + b

1. first\n2. second\n3. third\nInst [INST] q [/INST] Knowledge Date: December 2023 Today
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 你好，世界。 👍
"""


@dataclass(frozen=True)
class AddedText:
    """A control token; ``rstrip``: it takes the white space after it."""

    content: str
    rstrip: bool = False


def toy_tokenizer_json(kind: str, control: Sequence[AddedText], plain: Sequence[str] = ()) -> str:
    """tokenizer.json of a byte-level BPE (``bytes``) or a SentencePiece-like BPE.

    Of the latter there are three kinds: ``legacy`` puts a space before each run of text (Llama 2,
    Phi-3), ``first`` only before the text's beginning (Mistral v0.3), ``spaces`` nowhere (Gemma).
    """
    tokenizer = Tokenizer.from_str(_trained(kind))
    tokenizer.add_special_tokens(
        [AddedToken(t.content, special=True, normalized=False, rstrip=t.rstrip) for t in control]
    )
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in plain])
    return str(tokenizer.to_str())


@cache
def _trained(kind: str) -> str:
    return _byte_level() if kind == "bytes" else _sentence_pieces(kind)


def _byte_level() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_CORPUS], trainer)
    return str(tokenizer.to_str())


def _sentence_pieces(kind: str) -> str:
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", _SPACE)
    learner.pre_tokenizer = pre_tokenizers.Split(_SPACE, "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False)
    learner.train_from_iterator(_CORPUS.splitlines(), trainer)
    learnt: dict[str, Any] = json.loads(learner.to_str())["model"]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    merges = [tuple(merge) for merge in learnt["merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    decoder = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "legacy":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
        )
    elif kind == "first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, "first", split=False)
    else:
        tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    if kind != "spaces":
        decoder.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(decoder)
    return str(tokenizer.to_str())
