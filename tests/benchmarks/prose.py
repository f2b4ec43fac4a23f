"""Text of a wanted number of tokens: plain English sentences, never the same twice."""

from __future__ import annotations

import random
from collections.abc import Callable

VOCABULARY = """
the a this that every some people water light day night year house street city river sea
mountain road paper letter book story question answer reason example number part side work hand
head eye voice door window table garden tree flower bird animal summer winter morning evening
friend child teacher doctor school music picture color machine engine train ship price market
money country world is was has had makes takes gives shows keeps finds brings holds turns moves
opens closes begins ends carries follows near under over between before after with without about
because while often never always again old new small large long short warm cold dark bright slow
quick early late quiet simple strange common different
"""
_WORDS = tuple(VOCABULARY.split())
_TOLERANCE = 0.01
_ROUNDS = 8


def write(num_tokens: int, count: Callable[[str], int], draw: random.Random) -> str:
    """Sentences of ``num_tokens`` tokens, within a hundredth, as ``count`` counts them."""
    words = draw.choices(_WORDS, k=num_tokens)
    text = _sentences(words)
    for _ in range(_ROUNDS):
        off = count(text) - num_tokens
        if abs(off) <= _TOLERANCE * num_tokens:
            break
        if off > 0:
            words = words[: max(len(words) - off, 1)]
        else:
            words += draw.choices(_WORDS, k=-off)
        text = _sentences(words)
    return text


def _sentences(words: list[str]) -> str:
    """A full stop after every dozen words and at the end."""
    parts = [" ".join(words[i : i + 12]).capitalize() + "." for i in range(0, len(words), 12)]
    return " ".join(parts)
