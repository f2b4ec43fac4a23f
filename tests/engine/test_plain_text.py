"""Words from a model's files as they are shown."""

from __future__ import annotations

import pytest

from engine.loading.plain_text import MAX_CHARS, plain_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SmolLM2 135M", "SmolLM2 135M"),
        ("模型 é ñ 🙂", "模型 é ñ 🙂"),
        ("a\nb\tc\r\n d", "a b c d"),
        ("a\x00b\x1b[31mc\x7f", "a b [31mc"),
        ("safe\u202egpj.exe", "safegpj.exe"),
        ("\u2066a\u2069\u200b\u200f\ufeffb", "ab"),
        ("a\u2028b\u2029c\u00a0d", "a b c d"),
        ("\ud800x\ue000y\U000fffff", "xy"),
        ("  ", ""),
    ],
)
def test_what_is_not_seen_or_breaks_the_line_is_gone(text: str, shown: str) -> None:
    assert plain_text(text) == shown


def test_a_long_text_is_cut_and_says_so() -> None:
    shown = plain_text("x" * 1_000_000)
    assert shown == "x" * (MAX_CHARS - 1) + "…"
    assert plain_text("x" * MAX_CHARS) == "x" * MAX_CHARS
    assert plain_text("abcdef", 4) == "abc…"
    assert plain_text("\n" * 1_000_000 + "x") == "…"
