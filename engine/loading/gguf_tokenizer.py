"""Builds a tokenizer.json from the tokenizer that a GGUF file carries.

Two kinds (``tokenizer.ggml.model``): byte-level BPE (gpt2) and SentencePiece (llama, for which see
``gguf_pieces``). How byte-level BPE cuts text into words before the merges is named by
``tokenizer.ggml.pre``; the file does not hold the rule itself. The rules are those that llama.cpp's
``llama-vocab.cpp`` lists under the same names, which are those of the models' own tokenizers.
(transformers' GGUF conversion of ``smollm`` leaves out the split into single digits; its ids then
differ from the model's own where two or more spaces stand before a digit.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.gguf_pieces import SPACE, piece_tokenizer, respelt
from engine.loading.gguf_token_types import TokenType
from engine.loading.progress import Breathe, no_breath
from engine.models.hf_config import token_ids

BYTE_LEVEL, PIECES = "gpt2", "llama"
_PREFIX = "tokenizer.ggml."

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

# Words change where small letters are followed by capital ones.
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased_words(ending: str, digits: str) -> str:
    begin = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{begin}{_CAPITALS}*{_SMALL}+{ending}|{begin}{_CAPITALS}+{_SMALL}*{ending}|{digits}{_REST}"
    )


_GPT4O_WORDS = _cased_words(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")
_TEKKEN_WORDS = _cased_words("", r"\p{N}")


def _gpt2_words() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2_words()])


def _words(pattern: str) -> Callable[[], Any]:
    def build() -> Any:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    return build


PRE_TOKENIZERS: Mapping[str, Callable[[], Any]] = {
    "smollm": _single_digits,
    "gpt-2": _gpt2_words,
    "llama-bpe": _words(_LLAMA3_WORDS),
    "llama3": _words(_LLAMA3_WORDS),
    "smaug-bpe": _words(_LLAMA3_WORDS),
    "qwen2": _words(_QWEN2_WORDS),
    "deepseek-r1-qwen": _words(_QWEN2_WORDS),
    "gpt-4o": _words(_GPT4O_WORDS),
    "tekken": _words(_TEKKEN_WORDS),
}
"""How each named kind cuts text into words."""

_WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "tekken"})
"""Kinds that take a whole word that is a token without merging it."""

_PHI_KEEPS = frozenset({"<unk>", "<s>", "<|endoftext|>"})
"""Phi-3's tokens that do not take the white space after them. GGUF has no entry for it."""


def build_tokenizer(metadata: Mapping[str, Any], breathe: Breathe = no_breath) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata; control tokens are flagged special.

    ``breathe`` is called now and then; what it raises ends the work. What the tokenizers library
    does at once, up to a second for a large vocabulary, cannot be ended in between.

    Raises:
        UnsupportedModelError: a tokenizer kind that we do not know.
        ModelFileError: the tokens or merges are missing or do not fit together.
    """
    kind = str(metadata.get(f"{_PREFIX}model", ""))
    pre = str(metadata.get(f"{_PREFIX}pre", ""))
    if kind != PIECES and (kind != BYTE_LEVEL or pre not in PRE_TOKENIZERS):
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnsupportedModelError(
            f"The model's tokenizer is of kind {kind or 'unknown'}, {pre or 'unnamed'}. "
            f"SentencePiece ({PIECES}) and byte-level BPE ({BYTE_LEVEL}) of these kinds can be "
            f"read: {known}.",
            action="Choose another model, or a folder of this one that has a tokenizer.json.",
            kind=kind,
            pre_tokenizer=pre,
        )
    tokens: list[str] = _list_of(str, metadata, "tokens")
    types: list[int] = _list_of(int, metadata, "token_type")
    if not tokens or len({*tokens}) != len(tokens):
        raise ModelFileError(
            f"The tokenizer has {len(tokens):,} tokens, {len({*tokens}):,} of them distinct.",
            tokens=len(tokens),
        )
    breathe()
    merges = _pairs(_list_of(str, metadata, "merges"))
    breathe()
    if kind == PIECES:
        start = len(_PREFIX)
        entries = {key[start:]: metadata[key] for key in metadata if key.startswith(_PREFIX)}
        scores: list[float] = _list_of(float, metadata, "scores")
        tokens = respelt(tokens, types, entries)
        tokenizer = piece_tokenizer(tokens, types, scores, merges, entries, breathe)
    else:
        vocab = {token: token_id for token_id, token in enumerate(tokens)}
        tokenizer = _bpe(vocab, merges, ignore_merges=pre in _WHOLE_WORDS)
        tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
        tokenizer.decoder = decoders.ByteLevel()
    breathe()
    is_phi = kind == PIECES and metadata.get("general.architecture") == "phi3"
    _add_tokens(tokenizer, tokens, types, swallow=is_phi)
    return tokenizer


def _list_of(kind: type, metadata: Mapping[str, Any], name: str) -> list[Any]:
    values = metadata.get(f"{_PREFIX}{name}", [])
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ModelFileError(f"The tokenizer's {name} are no list of {kind.__name__}.", name=name)
    return values


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    # A merge is two tokens with one space between; the first may itself begin with a space.
    pairs = [(merge[:at], merge[at + 1 :]) for merge in merges if (at := merge.find(" ", 1)) > 0]
    if len(pairs) != len(merges):
        raise ModelFileError(
            "The tokenizer's merges do not fit its tokens: "
            f"{len(merges) - len(pairs)} merges are not pairs."
        )
    return pairs


def _bpe(vocab: dict[str, int], merges: list[tuple[str, str]], ignore_merges: bool) -> Tokenizer:
    try:
        return Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    except Exception as error:  # tokenizers raises plain Exception for merges out of the vocabulary
        raise ModelFileError(f"The tokenizer's merges do not fit its tokens: {error}.") from error


def _add_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[int], swallow: bool) -> None:
    """``swallow``: control tokens take the white space after them."""
    control, own = [], []
    for token, kind in zip(tokens, types, strict=False):
        is_control = kind in (TokenType.CONTROL, TokenType.UNKNOWN)
        right = swallow and token not in _PHI_KEEPS and (is_control or token.startswith("<|"))
        if is_control:
            control.append(AddedToken(token, special=True, normalized=False, rstrip=right))
        elif kind == TokenType.USER_DEFINED:
            spaces = not token.strip(SPACE)
            own.append(AddedToken(token, special=False, normalized=spaces, rstrip=right))
    # All of a kind at once: the library builds its search anew at each call.
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(own)


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs into tokenizer_config.json: the named tokens and the chat template."""
    tokens: list[str] = _list_of(str, metadata, "tokens")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    for name, gguf_name in names.items():
        token_id = metadata.get(f"{_PREFIX}{gguf_name}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < len(tokens):
            config[f"{name}_token"] = tokens[token_id]
    if isinstance(metadata.get(f"{_PREFIX}add_bos_token"), bool):
        config["add_bos_token"] = metadata[f"{_PREFIX}add_bos_token"]
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str) and template:
        config["chat_template"] = template
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    if isinstance(length, int):
        config["model_max_length"] = length
    return config


def end_token_ids(metadata: Mapping[str, Any]) -> list[int]:
    """All tokens that the file says end a turn: end of sequence, of turn and of message."""
    keys = ("eos_token_id", "eos_token_ids", "eot_token_id", "eom_token_id")
    values = {key: metadata.get(f"{_PREFIX}{key}") for key in keys}
    return sorted({end for key in keys for end in token_ids(values, key=key)})
