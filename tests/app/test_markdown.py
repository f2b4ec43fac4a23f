"""Model text to blocks: nothing lost, nothing unsafe, nothing that was closed changes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.markdown import OPEN_TEXT_LIMIT, MarkdownStream, split_blocks
from app.markdown_blocks import CODE, FORMULA, HEADING, RULE, SEGMENT_LINES, TABLE, TEXT
from app.markdown_inline import is_safe_link, visible_text
from app.markdown_math import PLACEHOLDER, Formula

CORPUS = [
    "# Title\n\nA *b* **c** `d`\nsoft\n\n- a\n- [ ] b\n  - n\n    ```py\n    x = 1\n    ```\n"
    "1. x\n1. y\n\n> q\n> - in\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\nend",
    "Text\n```python\ndef f():\n    return '```'\n```\nafter\n~~~\nplain\n~~~",
    "$$\nx_1\n= y\n$$\n\nand \\(a_1*b*\\) then \\[\nz\n\\]\n",
    "para\n===\n\nother\n---\n\n***\ntext\n    not code\n\n    code\n    more\n",
    "1. one\n\n   still one\n2. two\n   ```\n   fence\n   ```\n\n3. three\n- other\n* third",
    "```\nopen fence\nwithout end",
    "a\n```not a `fence`\nb\n\n````\n```\ninner\n```\n````\n",
    "| a\n|---\n| b\n\n| c | d |\ntext\n> lazy\ncontinuation\n\n<b>html</b> <!-- c -->\n<div>\nx\n",
    "中文段落，**加粗**。\n\n- 列表\n- 第二项\n\n```c\n/* 多行\n注释 */\n```\n",
    "$$ not closed\n\n- item\n\n$$\nopen",
]


def kinds(text: str) -> list[str]:
    return [block.kind for block in split_blocks(text)]


def test_kinds_of_blocks() -> None:
    text = "# h\n\np\n\n- i\n\n```\nc\n```\n\n| a |\n|---|\n| b |\n\n---\n"
    assert kinds(text) == [HEADING, TEXT, TEXT, CODE, TABLE, RULE]


def test_html_is_text() -> None:
    (block,) = split_blocks("if a<b and c>d: <T> <think> <img src=x onerror=y>")
    assert block.html == (
        "if a&lt;b and c&gt;d: &lt;T&gt; &lt;think&gt; &lt;img src=x onerror=y&gt;"
    )


def test_html_block_is_text() -> None:
    assert split_blocks("<script>alert(1)</script>")[0].html.startswith("&lt;script&gt;")


@pytest.mark.parametrize(
    "text",
    ["[x](javascript:alert(1))", "[x](file:///etc/passwd)", "[x](data:text/html,1)", "[x](//h/p)"],
)
def test_unsafe_links_are_text(text: str) -> None:
    assert "<a" not in split_blocks(text)[0].html


def test_safe_link_is_a_link() -> None:
    (block,) = split_blocks('[the "paper"](https://example.org/a?b=1&c=2)')
    assert block.html == ('<a href="https://example.org/a?b=1&amp;c=2">the &quot;paper&quot;</a>')


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see https://example.org/a_b_c?x=1&y=2.", "https://example.org/a_b_c?x=1&amp;y=2"),
        ("(http://example.org/x)", "http://example.org/x"),
        ("<https://example.org>", "https://example.org"),
    ],
)
def test_bare_addresses_are_links(text: str, address: str) -> None:
    assert f'<a href="{address}">' in split_blocks(text)[0].html


@pytest.mark.parametrize("text", ["app.py and readme.md", "a@b.org", "javascript://x", "ftp://h/x"])
def test_names_of_files_and_unsafe_addresses_are_no_links(text: str) -> None:
    assert "<a" not in split_blocks(text)[0].html


def test_beside_an_address_names_of_files_are_still_no_links() -> None:
    (block,) = split_blocks("https://example.org has app.py, a.com, 10.0.0.1 and a@b.org")
    assert block.html.count("<a ") == 1


def test_an_address_in_code_is_no_link() -> None:
    assert "<a" not in split_blocks("`https://example.org`")[0].html


def test_lines_of_an_answer_are_kept() -> None:
    assert split_blocks("one\ntwo  \nthree")[0].html == "one<br>two<br>three"


def test_an_image_is_its_description_and_address() -> None:
    (block,) = split_blocks("![a cat](https://example.org/c.png)")
    assert block.html == (
        '<a href="https://example.org/c.png">[a cat · https://example.org/c.png]</a>'
    )


def test_direction_marks_in_link_text_are_taken_out() -> None:
    (block,) = split_blocks("[\u202emoc.live\u202c](https://evil.example)")
    assert "\u202e" not in block.html


@pytest.mark.parametrize("source", ["http://h/x.png", "file:///x.png", "\\\\host\\x.png"])
def test_images_are_never_images(source: str) -> None:
    html = split_blocks(f"![alt]({source})")[0].html
    assert "<img" not in html
    assert "alt" in html


def test_mathematics_is_left_alone() -> None:
    (block,) = split_blocks(r"so \(x_1*y*z_2\) and $$a_1*b*c_2$$ hold")
    assert block.html == f"so {PLACEHOLDER} and {PLACEHOLDER} hold"
    assert [f.source for f in block.formulas] == [r"\(x_1*y*z_2\)", "$$a_1*b*c_2$$"]


def test_mathematics_over_several_lines_is_one_block() -> None:
    blocks = split_blocks("$$\nx_1\n= y\n- z\n$$\nafter")
    assert blocks[0].kind == FORMULA
    assert blocks[0].formulas == (Formula("$$\nx_1\n= y\n- z\n$$", True),)
    assert blocks[1].html == "after"


def test_a_dollar_pair_that_never_closes_is_text() -> None:
    assert [b.html for b in split_blocks("$$ 5\n\n- a")] == ["$$ 5", "a"]


def test_list_items_are_blocks_with_markers() -> None:
    blocks = split_blocks("3. a\n3. b\n   - c\n\n     more\n4. d")
    assert [(b.marker, b.indent, b.html) for b in blocks] == [
        ("3.", 1, "a"),
        ("4.", 1, "b"),
        ("•", 2, "c"),
        ("", 2, "more"),
        ("5.", 1, "d"),
    ]


def test_task_items_have_boxes() -> None:
    blocks = split_blocks("- [x] done\n- [ ] open")
    assert [(b.marker, b.html) for b in blocks] == [("☑", "done"), ("☐", "open")]


def test_code_in_a_list_item_keeps_its_language_and_indent() -> None:
    blocks = split_blocks("- run\n  ```bash title\n  ls\n  ```")
    assert (blocks[1].kind, blocks[1].language, blocks[1].indent, blocks[1].code) == (
        CODE,
        "bash",
        1,
        "ls",
    )


def test_a_long_fence_comes_in_segments() -> None:
    lines = [f"line {n}" for n in range(SEGMENT_LINES * 2 + 5)]
    blocks = split_blocks("```text\n" + "\n".join(lines) + "\n```\nafter")
    code = blocks[:3]
    assert [len(b.code.split("\n")) for b in code] == [SEGMENT_LINES, SEGMENT_LINES, 5]
    assert [(b.first, b.last) for b in code] == [(True, False), (False, False), (False, True)]
    assert "\n".join(b.code for b in code) == "\n".join(lines)
    assert blocks[3].html == "after"


def test_an_open_fence_only_gains_lines() -> None:
    stream = MarkdownStream("```python\n")
    for n in range(SEGMENT_LINES * 3):
        before = list(stream.closed)
        stream.append(f"x = {n}\n")
        stream.refresh()
        assert stream.closed[: len(before)] == before
        assert len(stream.open) == 1
        assert stream.open[0].code.endswith(f"x = {n}")


@pytest.mark.parametrize("end", ["```", "```\n", "````  ", ""])
def test_a_fence_ends_with_or_without_a_final_newline(end: str) -> None:
    (block,) = split_blocks(f"```py\nx = 1\n{end}")
    assert block.code.rstrip("\n") == "x = 1"


def test_a_fence_inside_a_longer_fence_does_not_close_it() -> None:
    blocks = split_blocks("````\n```\ninner\n```\n````\nafter")
    assert [b.kind for b in blocks] == [CODE, TEXT]
    assert blocks[0].code == "```\ninner\n```"


def test_a_paragraph_without_end_is_split() -> None:
    stream = MarkdownStream()
    text = "word " * (OPEN_TEXT_LIMIT // 2)
    for start in range(0, len(text), 50):
        stream.append(text[start : start + 50])
        stream.refresh()
        assert sum(len(b.html) for b in stream.open) <= OPEN_TEXT_LIMIT + 50
    stream.finish()
    assert " ".join(b.html for b in stream.closed).split() == text.split()


@pytest.mark.parametrize("text", CORPUS)
@pytest.mark.parametrize("seed", range(4))
def test_streamed_blocks_are_those_of_the_whole_text(text: str, seed: int) -> None:
    draw = random.Random(seed)
    stream = MarkdownStream()
    at = 0
    while at < len(text):
        step = draw.randint(1, 6)
        stream.append(text[at : at + step])
        at += step
        stream.refresh()
    stream.finish()
    assert stream.closed == split_blocks(text)


@pytest.mark.parametrize("text", CORPUS)
def test_closed_blocks_never_change(text: str) -> None:
    whole = split_blocks(text)
    stream = MarkdownStream()
    for char in text:
        stream.append(char)
        stream.refresh()
        assert stream.closed == whole[: len(stream.closed)]


PIECES = [
    "a",
    " ",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "```\n",
    "> ",
    "# ",
    "| x ",
    "|-|\n",
    "$$",
    "*",
    "  ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_any_text_streams_to_the_same_blocks(pieces: list[str]) -> None:
    stream = MarkdownStream()
    seen: list[object] = []
    for piece in pieces:
        stream.append(piece)
        stream.refresh()
        assert stream.closed[: len(seen)] == seen
        seen = list(stream.closed)
    stream.finish()
    assert stream.closed[: len(seen)] == seen


def test_the_parser_needs_no_window() -> None:
    code = (
        "import sys, app.markdown as m, app.highlight as h;"
        "m.split_blocks('*a*'); h.lex('x', 'python');"
        "sys.exit(any(name.startswith('PySide6') for name in sys.modules))"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://a.b", True),
        ("HTTP://a.b/c", True),
        ("mailto:a@b.c", True),
        ("mailto:", False),
        ("https:///path", False),
        ("ftp://a.b", False),
        ("javascript:1", False),
        ("http://[bad", False),
        ("", False),
    ],
)
def test_safe_links(url: str, safe: bool) -> None:
    assert is_safe_link(url) is safe


def test_visible_text_keeps_letters_and_joined_emoji() -> None:
    assert visible_text("a\u200bb\u202ec\u2066d") == "abcd"
    assert visible_text("👩\u200d🚀") == "👩\u200d🚀"
