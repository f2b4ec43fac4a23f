"""A long text is cut where each part, parsed by itself, gives what the whole text gives."""

from __future__ import annotations

import random

import pytest

from app import markdown_slices
from app.markdown import split_blocks
from app.markdown_blocks import CODE, TABLE, TEXT
from app.markdown_slices import LONGEST_PIECE, SLICE_CHARS, slice_markdown
from tests.helpers.markdown_sliced import sliced

FENCE = "```py\n" + "\n".join(f"line {n}" for n in range(95)) + "\n```"
PARTS = [
    "# Title\n\nA *b* **c** `d`\nsoft",
    "Some **text** with `code`.",
    "1. one\n2. two\n3. three",
    "10) x\n11) y\n\n    code in an item\n\n12) z",
    "- a\n\n- b\n  more\n\n  ```py\n  x\n\n  y\n  ```\n- c",
    "- a\n- [ ] b\n  - n\n    ```py\n    x = 1\n    ```\n1. x\n1. y",
    FENCE,
    "```py\n" + "\n".join(f"line {n}" for n in range(80)) + "\n```",
    "````\n```\ninner\n```\n````",
    "a\n```not a `fence`\nb",
    "   ```\n  x\n\ny\n   ```\nz",
    "- a\n   ```\n   never closed\nafter it\n\nnext",
    "~~~\nplain\n~~~",
    "> a\n\n> b\n> - in",
    "para\n===\n\nother\n---\n\n***\ntext\n    not code\n\n    code\n    more",
    "* * *",
    "- - -\n- x",
    "-\n\n  x",
    "- x\n\n\n  y\nz",
    "1. a\n# head\n2. b",
    "1. a\nlazy\n3. b\n\ntext\n\n5. n\n6. m",
    "1. a\n  ```\n  f\n  ```\n2. b",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\ntext after",
    "$$\nx_1\n= y\n$$\n\nand \\(a_1*b*\\)",
    "中文段落，**加粗**。\n\n- 列表\n- 第二项",
]


@pytest.mark.parametrize("slice_chars", [25, 120])
def test_slices_give_the_blocks_of_the_whole_text(monkeypatch, slice_chars: int) -> None:
    monkeypatch.setattr(markdown_slices, "SLICE_CHARS", slice_chars)
    num_cuts = 0
    for seed in range(150):
        draw = random.Random(seed)
        gaps = ["\n\n", "\n\n", "\n", "\n\n\n"]
        text = "".join(draw.choice(PARTS) + draw.choice(gaps) for _ in range(draw.randint(3, 12)))
        places = slice_markdown(text)
        num_cuts += len(places) - 1
        assert "".join(text[place.start : place.end] for place in places) == text
        assert sliced(text) == split_blocks(text)
    assert num_cuts > 300


def test_a_short_text_is_one_slice() -> None:
    assert len(slice_markdown("word " * 100)) == 1
    assert len(slice_markdown("")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "word " * 40_000,
        "字" * 100_000,
        "Some words in a line of it.\n" * 5_000,
        "> quoted words\n" * 8_000,
        "- item\n" * 20_000,
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 10_000,
        "```\n" + "x = 1\n" * 20_000,
        "    indented\n" * 8_000,
        "😀" * 50_000,
    ],
)
def test_no_slice_is_long(text: str) -> None:
    places = slice_markdown(text)
    assert "".join(text[place.start : place.end] for place in places) == text
    assert max(place.end - place.start for place in places) <= SLICE_CHARS + 2 * LONGEST_PIECE


def test_a_fence_goes_on_in_the_next_slice() -> None:
    text = "```python\n" + "value = 1\n" * 5_000 + "```\nafter"
    blocks = sliced(text)
    assert blocks == split_blocks(text)
    code, end = blocks[:-1], blocks[-1]
    assert {(b.kind, b.language) for b in code} == {(CODE, "python")}
    assert [b.first for b in code].count(True) == 1
    assert [b.last for b in code].count(True) == 1
    assert end.kind == TEXT


def test_a_table_goes_on_with_the_same_columns_and_one_head() -> None:
    rows = "".join(f"| {n} | some words {n} | 中文 |\n" for n in range(1_000))
    text = f"intro\n\n| a | b | c |\n|---|:--|---|\n{rows}\nafter"
    blocks = sliced(text)
    tables = [b for b in blocks if b.kind == TABLE]
    assert len(tables) == len(blocks) - 2
    assert sum(b.html.count("<th ") for b in tables) == 3
    assert sum(b.html.count("</tr>") for b in tables) == 1_001
    assert len({b.columns for b in tables}) == 1
    assert len(tables[0].columns) == 3
    assert [b.first for b in tables].count(True) == 1


def test_numbers_of_a_list_go_on_in_the_next_slice() -> None:
    text = "".join(f"{n}. item with words in it\n" for n in range(5, 2_005))
    markers = [b.marker for b in sliced(text)]
    assert markers == [f"{n}." for n in range(5, 2_005)]
