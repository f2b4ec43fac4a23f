"""Mathematics in Markdown: found where it is meant, left alone where it is not."""

from __future__ import annotations

import pytest

from app.markdown import MarkdownStream, split_blocks
from app.markdown_blocks import CODE, FORMULA, TEXT, Block
from app.markdown_math import PLACEHOLDER, Formula, formula_of

CORPUS = [
    "Let $x_1*y*z_2$ be $a$.\n\n$$\n- a\n- b\n= c\n$$\n\nThen $$E=mc^2$$ and \\(x\\).",
    "$$\na\n- b\n1. c\n\nnot closed",
    "\\begin{align*}\na &= b \\\\\n- c &= d\n\\end{align*}\nafter",
    "- item $x$\n- $$\n  y\n  $$\n\n> \\[\n> z\n> \\]\n",
    "$5 and $6\n\n`$x$` and $`y`$\n\n```\n$$\nx\n$$\n```\n\\[ open",
]


def sources(text: str) -> list[str]:
    return [formula.source for block in split_blocks(text) for formula in block.formulas]


@pytest.mark.parametrize(
    "text",
    ["$x$", "$x_1*y*z$", r"\(x\)", r"\[x\]", "$$x$$", r"$2 \text{ kg}$", "$2$", "$a, b$"],
)
def test_each_way_to_write_mathematics(text: str) -> None:
    assert sources(f"so {text} holds") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        "from $5-$6 a piece",
        "$ x $",
        "US$5 or A$6",
        "from $10 (about 8) to 20$",
        "echo $HOME and $USER",
        r"\$x\$",
        "`$x$`",
        "```\n$x$\n$$y$$\n```",
        "    $$x$$ in indented code",
        "a $ b",
        "$$",
        "$$$$",
        "100$",
        "$x",
        "`a $b` and `c$ d`",
        "$x\n\ny$",
    ],
)
def test_what_is_no_mathematics(text: str) -> None:
    assert sources(text) == []


def test_a_dollar_sign_stays_in_the_text() -> None:
    (block,) = split_blocks("It costs $5 and $6.")
    assert block.html == "It costs $5 and $6."


@pytest.mark.parametrize(
    ("source", "tex", "is_display"),
    [
        ("$x$", "x", False),
        ("$$ x $$", "x", True),
        (r"\(x\)", "x", False),
        ("\\[\nx\n\\]", "x", True),
        (r"\begin{align}x\end{align}", r"\begin{align}x\end{align}", True),
    ],
)
def test_a_formula_without_its_delimiters(source: str, tex: str, is_display: bool) -> None:
    formula = formula_of(source)
    assert (formula.tex, formula.is_display) == (tex, is_display)


@pytest.mark.parametrize("text", ["$$x$$", "\\[\n- x\n- y\n\\]", "\\begin{align}\na\n\\end{align}"])
def test_mathematics_set_apart_is_a_block_of_its_own(text: str) -> None:
    blocks = split_blocks(f"before\n{text}\nafter")
    assert [block.kind for block in blocks] == [TEXT, FORMULA, TEXT]
    assert blocks[1].formulas == (Formula(text, True),)


def test_formulas_of_a_table_come_in_their_order() -> None:
    (block,) = split_blocks("| $a$ | b |\n|---|---|\n| c | $d$ |")
    assert [formula.tex for formula in block.formulas] == ["a", "d"]
    assert block.html.count(PLACEHOLDER) == 2


def test_what_stands_for_a_formula_cannot_be_forged() -> None:
    (block,) = split_blocks(f"a {PLACEHOLDER} b `{PLACEHOLDER}` $x$ c")
    assert block.html.count(PLACEHOLDER) == len(block.formulas) == 1


def test_an_open_formula_is_shown_as_its_source_in_one_block() -> None:
    stream = MarkdownStream("$$\n- a\n# b\n")
    stream.refresh()
    assert stream.closed == []
    assert stream.open == [Block(TEXT, html='<span class="math">$$<br>- a<br># b</span>')]
    stream.append("$$\n\n")
    stream.finish()
    assert [block.kind for block in stream.closed] == [FORMULA]


@pytest.mark.parametrize("text", CORPUS)
def test_closed_blocks_never_change(text: str) -> None:
    whole = split_blocks(text)
    stream = MarkdownStream()
    for char in text:
        stream.append(char)
        stream.refresh()
        assert stream.closed == whole[: len(stream.closed)]
    stream.finish()
    assert stream.closed == whole


def test_code_of_a_fence_holds_no_formulas() -> None:
    (block,) = split_blocks("```latex\n$$x$$\n```")
    assert (block.kind, block.formulas) == (CODE, ())
