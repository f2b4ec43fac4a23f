"""Long tables in segments."""

from __future__ import annotations

import re

import pytest

from app.find_text import plain_text, read_text
from app.markdown import MarkdownStream, split_blocks
from app.markdown_blocks import TABLE
from app.markdown_tables import LONGEST_TABLE, SEGMENT_ROWS, columns_of

HEAD = "| a $x$ | b | c |\n|---|:--|---|\n"


def table(rows: int) -> str:
    return HEAD + "".join(f"| {n} | word {n} $y_{n}$ | 中文 |\n" for n in range(rows))


def test_a_short_table_is_one_block_as_wide_as_its_text() -> None:
    (block,) = split_blocks(table(LONGEST_TABLE))
    assert block.kind == TABLE
    assert block.columns == ()


def test_a_long_table_has_its_head_once_and_all_rows() -> None:
    blocks = split_blocks(table(100))
    assert [b.html.count("</tr>") for b in blocks] == [SEGMENT_ROWS + 1, SEGMENT_ROWS, 40]
    assert [b.first for b in blocks] == [True, False, False]
    assert {b.columns for b in blocks} == {blocks[0].columns}
    formulas = [f.source for b in blocks for f in b.formulas]
    assert formulas == ["$x$", *(f"$y_{n}$" for n in range(100))]


@pytest.mark.parametrize(("rows", "step"), [(41, 3), (10, 40), (70, 40), (71, 40), (100, 997)])
def test_a_streamed_table_is_that_of_the_whole_text(rows: int, step: int) -> None:
    text = f"intro\n\n{table(rows)}\nafter\n\n| s | t |\n|---|---|\n| 1 | 2 |\n"
    stream = MarkdownStream()
    seen: list[object] = []
    for start in range(0, len(text), step):
        stream.append(text[start : start + step])
        stream.refresh()
        assert stream.closed[: len(seen)] == seen
        seen = list(stream.closed)
    stream.finish()
    assert stream.closed == split_blocks(text)
    sources = "\n".join(b.source for b in stream.closed if b.source)
    assert sources.count(HEAD.rstrip()) == 1
    assert sources.count("word") == rows


def test_widths_of_columns_come_from_the_text() -> None:
    assert columns_of(["| a | long words |", "|---|---|", "| 中文 | x |"]) == (6, 12)


def test_a_table_from_right_to_left_has_its_cells_in_reverse() -> None:
    (block,) = split_blocks("| אחת $a$ | שתיים | API $b$ |\n|---|:-:|:--|\n| 1 | 2 $c$ | 3 $d$ |\n")
    assert block.mirrored
    assert block.html.count("<tr>") == 2
    cells = plain_text(block).split("\n")
    assert cells == ["API $b$", "שתיים", "אחת $a$", "3 $d$", "2 $c$", "1", ""]
    assert read_text(block).split("\n") == [*cells[2::-1], *cells[5:2:-1], ""]
    # What the Markdown says of a side is meant so; where it says nothing, text begins at the right.
    assert re.findall(' align="(.*?)"', block.html) == 2 * ["left", "center", "right"]


@pytest.mark.parametrize(
    ("head", "mirrored"),
    [
        ("| # | الاسم | العمر |", True),
        ("| ID | الاسم | العمر |", True),
        ("| الأمر | API | x |", False),
        ("| الأمر | API |", True),
        ("| English | العربية |", False),
        ("| a | b |", False),
        ("| | |", False),
    ],
)
def test_a_tables_direction_is_that_of_most_of_its_heads(head: str, mirrored: bool) -> None:
    columns = head.count("|") - 1
    (block,) = split_blocks(f"{head}\n{'|---' * columns}|\n{'| x ' * columns}|\n")
    assert block.mirrored is mirrored


@pytest.mark.parametrize("step", [40, 997])
def test_all_segments_of_a_table_have_its_direction(step: int) -> None:
    text = table(100).replace("| a $x$ | b | c |", "| שם $x$ | ערך | הסבר |")
    stream = MarkdownStream()
    for start in range(0, len(text), step):
        stream.append(text[start : start + step])
        stream.refresh()
    stream.finish()
    assert [b.mirrored for b in stream.closed] == [True] * 3
    assert stream.closed == split_blocks(text)
    assert {b.columns for b in stream.closed} == {(columns_of(text.split("\n")[:32]))}
