"""Builds a tokenizer of SentencePiece's kind from what a GGUF file holds of it.

The file has pieces, with U+2581 for a space, and a score for each; no merges. SentencePiece joins
the two neighbours that make the piece with the highest score, until no two make a piece (Kudo and
Richardson, 2018). A byte-pair model does the same if its merges are all pairs of pieces that make a
piece, ranked by that piece's score. (Where the same piece could be made of overlapping neighbours,
as "aaa" of a, aa, a, SentencePiece takes the leftmost and this the pair with the lowest ids, as
transformers does.) What no piece covers is spelt in bytes.

Control pieces are never made by joining, and bytes neither: only thus does text that spells one
stay text. Pieces that the author defined are taken whole before anything is joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.api.errors import ModelFileError
from engine.loading.gguf_token_types import TokenType
from engine.loading.progress import Breathe, no_breath

SPACE = "\u2581"
_FIRST_ONLY = "[INST]"
_MAX_PIECE_CHARS = 256
_PIECES_A_BREATH = 1_000


def piece_tokenizer(
    tokens: Sequence[str],
    types: Sequence[int],
    scores: Sequence[float],
    merges: Sequence[tuple[str, str]],
    settings: Mapping[str, Any],
    breathe: Breathe = no_breath,
) -> Tokenizer:
    """The tokenizer of these pieces, without its added tokens.

    Args:
        tokens: the pieces, all different; their index is their id.
        types: of each, as ``TokenType``.
        scores: of each; higher is joined first.
        merges: the file's own, where it has some.
        settings: the file's entries ``tokenizer.ggml.…``, without that prefix.
        breathe: called now and then; what it raises ends the work.

    Raises:
        ModelFileError: types or scores do not fit the pieces, or none can be joined.
    """
    if len(types) != len(tokens) or (len(scores) != len(tokens) and not merges):
        raise ModelFileError(
            f"The tokenizer has {len(tokens):,} tokens, {len(types):,} token types and "
            f"{len(scores):,} scores.",
            tokens=len(tokens),
        )
    unknown_id = settings.get("unknown_token_id")
    unknown = None
    if isinstance(unknown_id, int) and 0 <= unknown_id < len(tokens):
        unknown = tokens[unknown_id]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = list(merges) or _merges(tokens, types, scores, breathe)
    try:
        tokenizer = Tokenizer(
            models.BPE(
                vocab=vocab,
                merges=pairs,
                unk_token=unknown,
                byte_fallback=True,
                fuse_unk=True,
            )
        )
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelFileError(f"The tokenizer's pieces do not fit together: {error}.") from error
    _set_spaces(tokenizer, settings, _control(tokens, types))
    return tokenizer


def respelt(tokens: Sequence[str], types: Sequence[int], settings: Mapping[str, Any]) -> list[str]:
    """The pieces, with defined ones of nothing but spaces spelt as SentencePiece spells spaces.

    llama.cpp's converter writes their spaces as such. They then are found in text after its spaces
    have been respelt too, so that a space and U+2581, which look alike to the model, are alike.
    Where a space is put before text they are left alone: it would be put before them too.
    """
    if puts_space_before(settings):
        return list(tokens)
    known = {*tokens}
    changed = []
    for token, kind in zip(tokens, types, strict=False):
        spelt = SPACE * len(token)
        only_spaces = kind == TokenType.USER_DEFINED and token.strip(" ") == ""
        changed.append(spelt if only_spaces and spelt not in known else token)
    return [*changed, *tokens[len(changed) :]]


def puts_space_before(settings: Mapping[str, Any]) -> bool:
    """Whether text that begins gets a space."""
    return bool(settings.get("add_space_prefix", True))


def _merges(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float], breathe: Breathe
) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, the highest score first."""
    # A copy of each piece as a key would double them; ids are enough.
    joined = {
        token: token_id
        for token_id, token in enumerate(tokens)
        if types[token_id] in (TokenType.NORMAL, TokenType.UNUSED, TokenType.UNDEFINED)
    }
    found: list[tuple[float, int, int, int]] = []
    for count, (token, token_id) in enumerate(joined.items()):
        if count % _PIECES_A_BREATH == 0:
            breathe()
        if not 1 < len(token) <= _MAX_PIECE_CHARS:
            continue
        for at in range(1, len(token)):
            left = joined.get(token[:at])
            if left is None:
                continue
            right = joined.get(token[at:])
            if right is not None:
                found.append((-scores[token_id], token_id, left, right))
    found.sort()
    breathe()
    return [(tokens[left], tokens[right]) for _, _, left, right in found]


def _set_spaces(
    tokenizer: Tokenizer, settings: Mapping[str, Any], control: Collection[str]
) -> None:
    """How spaces are spelt, and where one is put before text that has none."""
    spell = normalizers.Replace(" ", SPACE)
    decoder = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if not puts_space_before(settings):
        tokenizer.normalizer = spell
    else:
        if _FIRST_ONLY in control:
            # Mistral's from its third version on: only before the beginning of all.
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first", split=False)
        else:
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spell])
        decoder.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(decoder)


def _control(tokens: Iterable[str], types: Iterable[int]) -> set[str]:
    pairs = zip(tokens, types, strict=True)
    return {token for token, kind in pairs if kind == TokenType.CONTROL}
