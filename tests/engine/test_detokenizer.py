"""Streaming text: whole characters, stop strings that never show, ids to keep."""

from __future__ import annotations

import codecs
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import InvalidValueError
from engine.detokenizer import Detokenizer, TextDelta
from engine.tokenizer import Tokenizer
from tests.helpers.starter import starter_files
from tests.helpers.tiny_tokenizer import END_ID, byte_ids, tiny_tokenizer

TINY = tiny_tokenizer()
WORDS = st.sampled_from(["a", "b", "ab", "ba", "aab", "é", "你", "👍"])


@pytest.fixture(scope="module")
def starter() -> Tokenizer:
    return starter_files().tokenizer()


def stream(ids: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], Detokenizer]:
    """One delta an id, then the flush."""
    detokenizer = Detokenizer(TINY, stop)
    deltas = [detokenizer.feed([token_id]).text for token_id in ids]
    return [*deltas, detokenizer.flush()], detokenizer


@given(ids=st.lists(st.integers(0, 49151), max_size=60), cuts=st.lists(st.integers(0, 60)))
def test_deltas_joined_equal_the_full_decode(
    ids: list[int], cuts: list[int], starter: Tokenizer
) -> None:
    detokenizer = Detokenizer(starter)
    text, start = "", 0
    for end in [*sorted(cuts), len(ids)]:
        text += detokenizer.feed(ids[start:end]).text
        assert starter.decode(ids[:end]).startswith(text)
        start = max(start, end)
    # But for a character that they leave unfinished.
    shown = text + detokenizer.flush()
    assert starter.decode(ids) in (shown, f"{shown}\ufffd")
    assert detokenizer.kept_tokens() == (len(ids), len(shown))


@given(data=st.binary(max_size=40))
def test_any_bytes_come_out_as_the_full_decode_has_them(data: bytes) -> None:
    """But for a character that they leave unfinished."""
    ids = byte_ids(data)
    deltas, _ = stream(ids)
    assert TINY.decode(ids) == data.decode("utf-8", "replace")
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    assert "".join(deltas) == decoder.decode(data)


def test_a_character_cut_into_tokens_comes_whole() -> None:
    deltas, _ = stream(byte_ids("é你👍".encode()))
    assert deltas == ["", "é", "", "", "你", "", "", "", "👍", ""]


def test_an_unfinished_character_is_no_text() -> None:
    deltas, detokenizer = stream(byte_ids("a👍".encode()[:-1]))
    assert deltas == ["a", "", "", "", ""]
    assert detokenizer.kept_tokens() == (4, 1)


def test_the_start_of_a_stop_string_is_never_shown() -> None:
    detokenizer = Detokenizer(TINY, ("own fox",))
    deltas = [detokenizer.feed([i]) for i in byte_ids(b"brown fox jumps")]
    assert "".join(delta.text for delta in deltas) == "br"
    assert deltas[8] == TextDelta("", True, "own fox", 1)
    assert detokenizer.flush() == ""


def test_text_is_held_back_only_while_a_stop_may_still_come() -> None:
    deltas, _ = stream(byte_ids(b"xabaaby"), stop=("abc",))
    assert deltas == ["x", "", "", "ab", "a", "", "aby", ""]


def test_what_was_held_back_comes_at_the_end() -> None:
    deltas, _ = stream(byte_ids(b"see ab"), stop=("abc",))
    assert deltas == ["s", "e", "e", " ", "", "", "ab"]


def test_ids_after_the_stop_are_not_taken_in() -> None:
    detokenizer = Detokenizer(TINY, ("b",))
    assert detokenizer.feed(byte_ids(b"abcd")) == TextDelta("a", True, "b", 2)
    assert detokenizer.feed(byte_ids(b"e")) == TextDelta("", True, "b", 0)


def test_the_stop_that_is_complete_first_wins() -> None:
    for ids in (byte_ids(b"xabcd"), [*byte_ids(b"x"), *byte_ids(b"abcd")]):
        detokenizer = Detokenizer(TINY, ("abcd", "bc"))
        assert detokenizer.feed(ids) == TextDelta("xa", True, "bc", 4)


@given(
    words=st.lists(WORDS, max_size=20),
    stop=st.lists(st.text("abé你", min_size=1, max_size=4), min_size=1, max_size=3),
    size=st.integers(1, 7),
)
def test_stops_do_not_depend_on_how_text_is_cut(
    words: list[str], stop: list[str], size: int
) -> None:
    """Against a plain search over all ways to end, one character at a time."""
    text = "".join(words)
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    expected = text[: min(ends)[1]] if ends else text
    ids = byte_ids(text.encode())
    detokenizer = Detokenizer(TINY, stop)
    shown = ""
    for start in range(0, len(ids), size):
        shown += detokenizer.feed(ids[start : start + size]).text
        assert expected.startswith(shown)
    assert shown + detokenizer.flush() == expected


def test_tokens_kept_end_before_the_token_that_the_stop_cuts() -> None:
    hello = TINY.encode_text("hello")
    assert len(hello) == 1
    detokenizer = Detokenizer(TINY, ("lo!",))
    ids = [*byte_ids(b"oh "), *hello, *byte_ids(b"!")]
    assert detokenizer.feed(ids) == TextDelta("oh hel", True, "lo!", 5)
    assert detokenizer.kept_tokens() == (3, 3)


def test_tokens_kept_end_at_a_whole_character() -> None:
    detokenizer = Detokenizer(TINY, ("!",))
    detokenizer.feed(byte_ids("é!".encode()))
    assert detokenizer.kept_tokens() == (2, 1)


@given(words=st.lists(WORDS, max_size=12), stop=st.text("abé你", min_size=1, max_size=3))
def test_tokens_kept_say_what_they_claim(words: list[str], stop: str) -> None:
    ids = byte_ids("".join(words).encode())
    deltas, detokenizer = stream(ids, (stop,))
    visible = "".join(deltas)
    kept, covered = detokenizer.kept_tokens()
    assert TINY.decode(ids[:kept]) == visible[:covered]


def goes_on(said: bytes, rest: bytes, stop: tuple[str, ...]) -> tuple[str, Detokenizer]:
    """What ``rest`` shows where ``said`` has been shown before."""
    detokenizer = Detokenizer(TINY, stop)
    detokenizer.follow(byte_ids(said))
    shown = "".join(detokenizer.feed([token_id]).text for token_id in byte_ids(rest))
    return shown + detokenizer.flush(), detokenizer


@pytest.mark.parametrize(
    ("said", "rest", "stop", "shown"),
    [
        (b"see ab", b"c and d", ("abc",), ""),
        (b"see ab", b"d abc", ("abc",), "d "),
        (b"see ab", b"abc", ("abc",), ""),
        (b"see ab", b"xy", ("abc",), "xy"),
        (b"see ab", b"", ("abc",), ""),
        (b"xabab", b"e", ("ababc", "abd"), "e"),
        (b"xabab", b"d", ("ababc", "abd"), ""),
        (b"xaab", b"ab", ("aabc",), "ab"),
        (b"xaab", b"aabcd", ("aabc",), ""),
        ("é你".encode(), "👍x".encode(), ("你👍",), ""),
        # Shown before although it is a stop string now: it was none then.
        (b"xbc", b"de", ("bc", "bcf"), "de"),
        (b"xbcb", b"c!", ("bc",), ""),
    ],
)
def test_a_stop_string_may_begin_in_what_was_said_before(
    said: bytes, rest: bytes, stop: tuple[str, ...], shown: str
) -> None:
    assert goes_on(said, rest, stop)[0] == shown


def test_of_what_was_said_before_no_ids_are_kept_twice() -> None:
    _, stopped = goes_on(b"see ab", b"cd", ("abc",))
    assert stopped.kept_tokens() == (0, 0)
    _, later = goes_on(b"see ab", b"d abc", ("abc",))
    assert later.kept_tokens() == (2, 2)
    _, unstopped = goes_on(b"see ab", b"ab", ("abc",))
    assert unstopped.kept_tokens() == (2, 2)


@given(
    words=st.lists(WORDS, max_size=20),
    stop=st.lists(st.text("abé你", min_size=1, max_size=4), min_size=1, max_size=3),
    cut=st.integers(0, 60),
)
def test_an_answer_that_goes_on_ends_where_it_would_have_ended(
    words: list[str], stop: list[str], cut: int
) -> None:
    text = "".join(words)
    said, rest = text[:cut], text[cut:]
    ends = [text.find(s, max(cut - len(s) + 1, 0)) + len(s) for s in stop]
    whole = [(end, end - len(s)) for end, s in zip(ends, stop, strict=True) if end >= len(s)]
    expected = text[cut : max(min(whole)[1], cut)] if whole else rest
    assert goes_on(said.encode(), rest.encode(), tuple(stop))[0] == expected


def test_a_long_answer_is_not_read_again_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    spell = Tokenizer.token_bytes

    def watched(self: Tokenizer, token_id: int) -> bytes:
        read.append(token_id)
        return spell(self, token_id)

    monkeypatch.setattr(Tokenizer, "token_bytes", watched)
    said = "👍".encode() * 1000
    assert goes_on(said, "👍!".encode(), ("👍👍!",))[0] == ""
    assert goes_on(said, b"!", ())[0] == "!"
    # Four bytes of each character of the stop string, or of the last one; then what was said since.
    assert len(read) == 4 * 3 + 5 + 4 + 1


def test_control_tokens_give_no_text() -> None:
    deltas, detokenizer = stream([*byte_ids("é".encode())[:1], END_ID, *byte_ids("é".encode())[1:]])
    assert "".join(deltas) == "é"
    assert detokenizer.kept_tokens() == (3, 1)


def test_an_id_out_of_range_is_refused_and_nothing_is_taken_in() -> None:
    detokenizer = Detokenizer(TINY)
    with pytest.raises(InvalidValueError):
        detokenizer.feed([*byte_ids(b"a"), 10**6])
    assert detokenizer.feed(byte_ids(b"b")).text == "b"
    assert detokenizer.kept_tokens() == (1, 1)


def test_the_cost_of_a_token_does_not_grow_with_the_answer() -> None:
    detokenizer = Detokenizer(TINY, ("never",))
    ids = byte_ids("some text, 你好, and more of it. ".encode())
    times = []
    for _ in range(3):
        start = time.thread_time()
        for _ in range(200):
            detokenizer.feed(ids)
        times.append(time.thread_time() - start)
        for _ in range(1000):
            detokenizer.feed(ids)
    # Quadratic cost would make the last round many times the first.
    assert times[-1] < 4 * times[0]
