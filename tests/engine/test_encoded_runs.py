"""Texts that come again are not encoded again."""

from __future__ import annotations

import random

import pytest

from engine.api.errors import InvalidValueError
from engine.api.params import ChatMessage, TurnTokens
from engine.chat_encoder import ChatEncoder
from engine.encoded_runs import EncodedRuns
from engine.text_prefix import Before
from tests.benchmarks import prose
from tests.benchmarks.word_chat import word_encoder, word_tokenizer


class Counting:
    """Encodes letters, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str, before: Before) -> list[int]:
        self.asked.append(text)
        return [ord(letter) + 10_000 * before.value for letter in text]


def test_what_was_used_last_is_kept() -> None:
    encode = Counting()
    runs = EncodedRuns(encode, most_chars=300)
    first, second, third = (letter * 100 for letter in "abc")
    for text in (first, second, first, third, first):
        assert list(runs.ids(text, Before.TEXT)) == encode(text, Before.TEXT)
        encode.asked.pop()
    assert encode.asked == [first, second, third]
    assert runs.num_chars == 300
    runs.ids("d" * 100, Before.TEXT)
    runs.ids(first, Before.TEXT)
    assert encode.asked[3:] == ["d" * 100]
    runs.ids(second, Before.TEXT)
    assert encode.asked[4:] == [second]
    assert runs.num_chars == 300


def test_what_stands_before_makes_another_text_of_it() -> None:
    runs = EncodedRuns(Counting())
    found = {before: runs.ids("a" * 80, before)[0] for before in Before}
    assert found == {Before.NOTHING: 97, Before.CONTROL: 10_097, Before.TEXT: 20_097}


def test_short_and_huge_texts_and_refused_ones_are_not_kept() -> None:
    def refuse(text: str, before: Before) -> list[int]:
        if "!" in text:
            raise InvalidValueError("no")
        return [1]

    runs = EncodedRuns(refuse, most_chars=1000)
    for text in ("a" * 10, "a" * 2000):
        assert list(runs.ids(text, Before.TEXT)) == [1]
    for _ in range(2):
        with pytest.raises(InvalidValueError):
            runs.ids("a" * 100 + "!", Before.TEXT)
    assert runs.num_chars == 0


def test_a_turn_encodes_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the system prompt and the questions before; the ids are those of a new encoder."""
    tokenizer = word_tokenizer(2000)
    draw = random.Random(1)

    def write(tokens: int) -> str:
        return prose.write(tokens, lambda text: len(tokenizer.encode_text(text)), draw)

    encoder = word_encoder(tokenizer)
    messages = [ChatMessage("system", write(400))]
    for turn in range(4):
        messages.append(ChatMessage("user", write(60)))
        encoded: list[str] = []
        encode = encoder._runs._encode

        def noted(text: str, before: Before, encode=encode, encoded=encoded) -> list[int]:
            encoded.append(text)
            return encode(text, before)

        monkeypatch.setattr(encoder._runs, "_encode", noted)
        prompt = encoder.encode(messages)
        monkeypatch.setattr(encoder._runs, "_encode", encode)
        long = [text for text in encoded if len(text) > 64]
        assert len(long) == (2 if turn == 0 else 1)
        fresh: ChatEncoder = word_encoder(tokenizer)
        assert prompt == fresh.encode(messages)
        assert prompt.reencoded_tokens == 0
        answer = tokenizer.encode_text(write(80))
        text = tokenizer.decode(answer)
        fed = tuple(prompt.token_ids[prompt.turn_start :])
        turn_tokens = TurnTokens(fed, tuple(answer), len(text), tokenizer.fingerprint)
        messages.append(ChatMessage("assistant", text, turn_tokens))
