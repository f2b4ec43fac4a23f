"""What a block shows, and where words stand in it."""

from __future__ import annotations

import pytest

from app.find_text import folded, may_hold, occurrences, shown_text
from app.markdown import split_blocks


def shown(text: str) -> list[str]:
    return [shown_text(block) for block in split_blocks(text)]


def test_markdown_signs_are_not_shown() -> None:
    assert shown("A **bo**ld [link](https://example.org) &amp; `x < y`") == [
        "a bold link & x < y",
    ]


def test_code_tables_and_formulas() -> None:
    assert shown("```\nLet X\n```\n\n| A | B |\n|---|---|\n| c | d |\n\n$x$ is") == [
        "let x",
        "a b c d ",
        "$x$ is",
    ]


def test_line_breaks_are_spaces() -> None:
    assert shown("one\ntwo  \nthree") == ["one two three"]


@pytest.mark.parametrize("text", ["İstanbul", "Straße", "ǅ", "中文ABC"])
def test_folding_keeps_places(text: str) -> None:
    assert len(folded(text)) == len(text)


def test_occurrences_do_not_overlap() -> None:
    assert occurrences("aaaa", "aa") == [0, 2]
    assert occurrences("abc", "") == []


@pytest.mark.parametrize(
    ("source", "needle"),
    [
        ("some **bold** text", "bold text"),
        ("a [li](u)nk", "link"),
        ("x &lt; y", "x < y"),
        ("1. item", "item"),
        ("中文\n第二行", "文 第"),
        ("_a_b", "ab"),
    ],
)
def test_what_is_shown_is_never_ruled_out(source: str, needle: str) -> None:
    assert may_hold(source, needle)


def test_what_is_not_there_is_ruled_out() -> None:
    assert not may_hold("some text", "other")
