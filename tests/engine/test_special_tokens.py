"""Control tokens in text: the longest at each place, with the spaces that they take."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine.content_guard import ContentGuard
from engine.special_tokens import SpecialTokens, TextSet


@dataclass(frozen=True)
class Token:
    content: str
    lstrip: bool = False
    rstrip: bool = False


TOKENS = (
    Token("<a>"),
    Token("<a>b"),
    Token("<ab>", rstrip=True),
    Token("[x]", lstrip=True),
    Token("|", lstrip=True, rstrip=True),
)
TEXT = st.lists(
    st.sampled_from(["<a>", "<a>b", "<ab>", "[x]", "|", "<", "a", "b", ">", " ", "\n", "\u3000"]),
    max_size=16,
).map("".join)


def one_by_one(text: str) -> list[tuple[str, int, int]]:
    """What a regular expression finds that lists the tokens, the longest first."""
    parts = []
    for index, token in enumerate(sorted(TOKENS, key=lambda token: -len(token.content))):
        left, right = (r"\s*" if strips else "" for strips in (token.lstrip, token.rstrip))
        parts.append(f"{left}(?P<t{index}>{re.escape(token.content)}){right}")
    found = re.finditer("|".join(parts), text)
    return [(match[match.lastgroup or 0], match.start(), match.end()) for match in found]


@given(text=TEXT)
def test_the_same_is_found_as_by_trying_one_after_the_other(text: str) -> None:
    found = [(one.token, one.start, one.end) for one in SpecialTokens(TOKENS).find(text)]
    assert found == one_by_one(text)


@given(text=TEXT)
def test_replacing_leaves_the_rest(text: str) -> None:
    contents = [token.content for token in TOKENS]
    pattern = "|".join(map(re.escape, sorted(contents, key=len, reverse=True)))
    assert TextSet(contents).replace(text, str.upper) == re.sub(
        pattern, lambda match: match[0].upper(), text
    )


def test_nothing_is_found_where_there_is_nothing_to_find() -> None:
    assert list(SpecialTokens(()).find("<a>")) == []
    assert TextSet(()).replace("<a>", str.upper) == "<a>"


def test_thousands_of_control_tokens_cost_no_more_than_a_few() -> None:
    """A page of HTML took minutes with a regular expression; the bound is loose, for others use
    the machine.
    """
    tokens = [Token(f"<unused{number}>") for number in range(6000)]
    page = "<p>some <b>text</b> in <unused77> HTML</p>\n" * 500
    finder, guard = SpecialTokens(tokens), ContentGuard(token.content for token in tokens)
    started = time.perf_counter()
    assert sum(1 for _ in finder.find(page)) == 500
    assert guard.restore(guard.escape(page)) == page
    assert time.perf_counter() - started < 1.0
