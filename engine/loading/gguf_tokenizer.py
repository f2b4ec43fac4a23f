"""Builds a tokenizer.json from the tokenizer that a GGUF file carries.

Only byte-level BPE (``tokenizer.ggml.model`` = gpt2). How text is cut into words before the merges
is named by ``tokenizer.ggml.pre``; the file does not hold the rule itself. The rules are those that
llama.cpp's ``llama-vocab.cpp`` lists under the same names, which are those of the models' own
tokenizers. (transformers' GGUF conversion of ``smollm`` leaves out the split into single digits;
its ids then differ from the model's own where two or more spaces stand before a digit.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from engine.api.errors import ModelFileError, UnsupportedModelError

_CONTROL, _USER_DEFINED, _UNKNOWN = 3, 4, 2

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


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
    "qwen2": _words(_QWEN2_WORDS),
}
"""How each named kind cuts text into words. Llama 3 takes whole words without merging them."""

_WHOLE_WORDS = frozenset({"llama-bpe", "llama3"})


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata; control tokens are flagged special.

    Raises:
        UnsupportedModelError: a tokenizer kind that we do not know.
        ModelFileError: the tokens or merges are missing or do not fit together.
    """
    kind = str(metadata.get("tokenizer.ggml.model", ""))
    pre = str(metadata.get("tokenizer.ggml.pre", ""))
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnsupportedModelError(
            f"The model's tokenizer is of kind {kind or 'unknown'}, {pre or 'unnamed'}. "
            f"Byte-level BPE (gpt2) of these kinds can be read: {known}.",
            action="Choose another model, or a folder of this one that has a tokenizer.json.",
            kind=kind,
            pre_tokenizer=pre,
        )
    tokens: list[str] = _list_of(str, metadata, "tokens")
    merges: list[str] = _list_of(str, metadata, "merges")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if not vocab or len(vocab) != len(tokens):
        raise ModelFileError(
            f"The tokenizer has {len(tokens):,} tokens, {len(vocab):,} of them distinct.",
            tokens=len(tokens),
        )
    tokenizer = _bpe(vocab, merges, ignore_merges=pre in _WHOLE_WORDS)
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, _list_of(int, metadata, "token_type"))
    return tokenizer


def _list_of(kind: type, metadata: Mapping[str, Any], name: str) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{name}", [])
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ModelFileError(f"The tokenizer's {name} are no list of {kind.__name__}.", name=name)
    return values


def _bpe(vocab: dict[str, int], merges: list[str], ignore_merges: bool) -> Tokenizer:
    # A merge is two tokens with one space between; the first may itself begin with a space.
    pairs = [(merge[:at], merge[at + 1 :]) for merge in merges if (at := merge.find(" ", 1)) > 0]
    try:
        if len(pairs) != len(merges):
            raise ValueError(f"{len(merges) - len(pairs)} merges are not pairs")
        return Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=ignore_merges))
    except Exception as error:  # tokenizers raises plain Exception for merges out of the vocabulary
        raise ModelFileError(f"The tokenizer's merges do not fit its tokens: {error}.") from error


def _add_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> None:
    for token, kind in zip(tokens, types, strict=False):
        if kind in (_CONTROL, _UNKNOWN):
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs into tokenizer_config.json: the named tokens and the chat template."""
    tokens: list[str] = _list_of(str, metadata, "tokens")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    for name, gguf_name in names.items():
        token_id = metadata.get(f"tokenizer.ggml.{gguf_name}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < len(tokens):
            config[f"{name}_token"] = tokens[token_id]
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str) and template:
        config["chat_template"] = template
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    if isinstance(length, int):
        config["model_max_length"] = length
    return config


def end_token_ids(metadata: Mapping[str, Any]) -> list[int]:
    """All tokens that the file says end a turn: end of sequence, of turn and of message."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = (metadata.get(f"tokenizer.ggml.{key}") for key in keys)
    return sorted({token_id for token_id in ids if isinstance(token_id, int)})
