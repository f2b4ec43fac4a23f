"""A character of which a part was sampled before the answer was cut off, the rest after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.detokenizer import Detokenizer
from tests.helpers.tiny_chat import answer, fed_so_far, tiny_encoder, user
from tests.helpers.tiny_tokenizer import END_ID, byte_ids, tiny_tokenizer

TINY = tiny_tokenizer()
TEXT = "a👍é你 b"
IDS = byte_ids(TEXT.encode())


@pytest.mark.parametrize("cut", range(1, len(IDS)))
def test_an_answer_that_goes_on_is_the_whole_one(cut: int) -> None:
    encoder, question = tiny_encoder(), user("hi")
    first = answer(encoder.encode([question]), IDS[:cut], TINY)
    assert TEXT.startswith(first.content)
    going_on = encoder.encode([question, first], continue_answer=True)
    assert going_on.token_ids[going_on.answer_start :] == IDS[:cut]
    rest = answer(going_on, [*IDS[cut:], END_ID], TINY)
    whole = replace(rest, content=first.content + rest.content)
    assert whole.content == TEXT
    for reply in (first, whole):
        asked = [question, reply, user("and?")]
        prompt = encoder.encode(asked)
        assert prompt.token_ids[: prompt.turn_start] == fed_so_far(asked)
        assert prompt.reencoded_tokens == 0


def test_what_somebody_wrote_behind_it_follows_on_whole_characters() -> None:
    encoder, question = tiny_encoder(), user("hi")
    first = answer(encoder.encode([question]), IDS[:3], TINY)
    edited = replace(first, content=first.content + "bc")
    going_on = encoder.encode([question, edited], continue_answer=True)
    assert TINY.decode(going_on.token_ids[going_on.answer_start :]) == "abc" == edited.content


@pytest.mark.parametrize("stop", [(), ("é", "x"), ("👍👍",)])
def test_its_rest_comes_with_the_first_token_that_completes_it(stop: tuple[str, ...]) -> None:
    detokenizer = Detokenizer(TINY, stop)
    detokenizer.follow(IDS[:4])
    pieces = [detokenizer.feed([i]).text for i in byte_ids("👍!".encode())[3:]]
    assert "".join(pieces) == "👍!"
    assert detokenizer.kept_tokens() == (2, 2)


def test_a_stop_string_may_begin_with_it() -> None:
    detokenizer = Detokenizer(TINY, ("👍é",))
    detokenizer.follow(IDS[:4])
    pieces = [detokenizer.feed([i]) for i in IDS[4:7]]
    assert [piece.text for piece in pieces] == ["", "", ""]
    assert pieces[-1].stopped
    assert detokenizer.kept_tokens() == (0, 0)


def test_what_does_not_complete_it_shows_that_it_is_broken() -> None:
    detokenizer = Detokenizer(TINY)
    detokenizer.follow(IDS[:4])
    assert detokenizer.feed(byte_ids(b"x")).text == "\ufffdx"
