"""Long tables in segments."""

from __future__ import annotations

import pytest

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
