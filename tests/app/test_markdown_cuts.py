"""However a text comes and is cut, its blocks are those of the whole; formulas and line ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import markdown, markdown_blocks, markdown_slices
from app.markdown import MarkdownStream, split_blocks
from app.markdown_blocks import FORMULA, Block
from app.markdown_math import LONGEST_DISPLAY
from app.markdown_slices import SLICE_CHARS, slice_markdown
from app.markdown_thoughts import ThoughtSplitter, answer_text, split_thoughts
from tests.helpers.markdown_sliced import sliced

LINES = [
    *("1. The sum is", "2. next", "- The sum is", "- $$", "   - inner", "1. \\["),
    *("| a | b |", "|---|---|", "| 1 | 2 |"),
    *("$$", "  $$", "   $$", "\\[", "\\]", "  \\[", "  \\].", "\\begin{align}", "\\end{align}"),
    *("$$x$$", "$$ y", "S = a", "+ b", "  + b", "- c", "# d", "1. e", "text", "", ""),
]
AFTER_LISTS_AND_TABLES = [
    "1. The sum is\n$$\nS = a\n+ b\n- c\n$$\nThat is all.\n",
    "1. The sum is\n  $$\n  S = a\n  + b\n  $$\n2. next\n",
    "- The sum is\n\\[\nS = a\n# b\n\\]\n\nThat is all.\n",
    "2. So\n\\begin{align}\na &= b \\\\\n- c &= d\n\\end{align}\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n$$\nx = y\n- z\n$$\n",
    "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 39 + "$$\nx\n= y\n- z\n$$\n",
    "The sum is\n$$\nS = a\n\nand no more",
]
RETURNS = [
    "The bar:\n\n10%\r20%\r30%\r40%\n\nSecond.\n\nThird.\n\nFourth.\n\nFifth.\n",
    "It prints:\n\n    10%\r    50%\r    100%\n\nFirst.\n\nSecond.\n\nLast.\n",
    "```\nx\n```\n\n10%\r20%\r30%\n\n```py\nprint(1)\r\rprint(2)\r\n```\n\nDone.\r",
    "one\r\n\r\n- a\r\n- b\r\n\r\n```py\r\nx = 1\r\n```\r\n\r\n| a |\r\n|---|\r\n| 1 |\r\n\r\nend",
]


def streamed(text: str, cuts: list[int]) -> list[Block]:
    """The blocks of ``text``, which comes in pieces of so many characters, over and over."""
    whole = split_blocks(text)
    stream = MarkdownStream()
    at = number = 0
    while at < len(text):
        step = cuts[number % len(cuts)]
        stream.append(text[at : at + step])
        stream.refresh()
        assert stream.closed == whole[: len(stream.closed)]
        at, number = at + step, number + 1
    stream.finish()
    return stream.closed


@pytest.mark.parametrize("text", AFTER_LISTS_AND_TABLES + RETURNS)
@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_streamed_text_has_the_blocks_of_the_whole(text: str, step: int) -> None:
    assert streamed(text, [step]) == split_blocks(text)


@pytest.mark.parametrize("text", RETURNS)
def test_each_line_end_is_one(text: str) -> None:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert split_blocks(text) == split_blocks(plain)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.lists(st.sampled_from(LINES), max_size=16),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
)
def test_any_cuts_give_the_blocks_of_the_whole(
    lines: list[str], line_end: str, is_ended: bool, cuts: list[int]
) -> None:
    text = line_end.join(lines) + line_end * is_ended
    whole = split_blocks(text)
    assert streamed(text, cuts) == whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown_slices, "SLICE_CHARS", 25)
        assert sliced(text) == whole


def test_a_long_text_is_not_cut_within_a_formula() -> None:
    words = "Some words of a paragraph that fill the page.\n\n"
    before = words * (SLICE_CHARS // len(words) - 1)
    text = before + "- The sum is\n\\[\nS = a\n" + "+ b_1\n" * 30 + "\\]\n\n" + words * 200
    assert len(slice_markdown(text)) > 1
    assert sliced(text) == split_blocks(text)
    assert [block.kind for block in sliced(text)].count(FORMULA) == 1


def test_a_formula_without_an_end_holds_back_no_more_than_the_longest_one() -> None:
    text = "- The sum is\n\\[\n" + "+ b_1\n" * (3 * LONGEST_DISPLAY // 6)
    stream = MarkdownStream()
    for at in range(0, len(text), 400):
        stream.append(text[at : at + 400])
        stream.refresh()
        shown = sum(len(block.source) for block in stream.open)
        assert shown <= LONGEST_DISPLAY + 500
    stream.finish()
    assert stream.closed == split_blocks(text) == sliced(text)


def test_a_table_with_signs_of_formulas_in_its_rows_is_cut() -> None:
    text = "a | b\n---|---\n" + "$$ 5 | 3\n" * 4_000
    assert max(place.end - place.start for place in slice_markdown(text)) < 2 * SLICE_CHARS


def test_tags_of_reasoning_stand_on_lines_of_any_end() -> None:
    text = "<think>\r```\rx\r```\rhm\r</think>\r\nSaid.\r\n<think>\r\nmore\r\n</think>\r\nEnd."
    parts, _splitter = split_thoughts(text)
    splitter = ThoughtSplitter()
    told = [part for sign in text for part in splitter.take(sign)] + splitter.finish()
    thoughts = {at: part.thought for part in told for at in range(part.start, part.end)}
    assert thoughts == {at: part.thought for part in parts for at in range(part.start, part.end)}
    assert answer_text(text).split() == ["Said.", "End."]


@pytest.mark.parametrize(
    "lines",
    [
        "1. The sum is\n$$\nS = a\n+ b\n$$\n",
        "- The sum is so long that it takes a line\n\\[ not closed\n",
        "\\[ never closed, and no line of it is empty\n",
        "> $$ a quotation of many lines\n>\n> more\n",
        "| $$ 5 for a row | 3 |\n",
        "10%\r",
    ],
)
def test_what_is_parsed_while_a_text_comes_grows_as_the_text_does(monkeypatch, lines: str) -> None:
    parsed = 0

    def counting(text: str, list_mark: str, next_number: int) -> list[markdown_blocks.Unit]:
        nonlocal parsed
        parsed += len(text)
        return markdown_blocks.parse_units(text, list_mark, next_number)

    monkeypatch.setattr(markdown, "parse_units", counting)
    stream = MarkdownStream("| a | b |\n|---|---|\n" if lines.startswith("|") else "")
    marks = []
    # The first 15,000 characters are left out: until then what is left open may still grow.
    for size in (15_000, 10_000, 10_000):
        text = lines * (size // len(lines))
        for at in range(0, len(text), 500):
            stream.append(text[at : at + 500])
            stream.refresh()
        marks.append(parsed)
    assert marks[2] - marks[1] <= 1.5 * (marks[1] - marks[0]) + 20_000
