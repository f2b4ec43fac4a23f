"""Reasoning is told from what is said, wherever the tokens part the tags."""

from __future__ import annotations

import random

import pytest

from app.markdown_thoughts import ThoughtSplitter, answer_text, split_thoughts

WHOLE = "<think>\nFirst.\n\n```\n</think>\n```\n`</think>` too.\n</think>\n\nAnswer `<think>`."


def told(text: str) -> list[tuple[int, str]]:
    parts, _splitter = split_thoughts(text)
    return [(part.thought, text[part.start : part.end]) for part in parts]


def test_reasoning_and_answer() -> None:
    assert told("<think>\na\n</think>\n\nb") == [(1, "\na\n"), (0, "\n\nb")]


def test_without_tags_all_is_answer() -> None:
    assert told("a\nb") == [(0, "a\nb")]


@pytest.mark.parametrize(
    "text",
    [
        "Write <think> and </think> like so.",
        "```\n<think>\na\n</think>\n```\n",
        "`<think>`\n\na",
        "Text\n    <think>\n",
        "- a\n  ```\n<think> is a tag",
    ],
)
def test_a_tag_in_code_or_in_a_sentence_is_text(text: str) -> None:
    assert {thought for thought, _text in told(text)} == {0}


def test_a_closing_tag_in_code_does_not_end_reasoning() -> None:
    (thought, inside), (answer, after) = told(WHOLE)
    assert (thought, answer) == (1, 0)
    assert inside.endswith("too.\n")
    assert after == "\n\nAnswer `<think>`."


def test_reasoning_without_an_end_goes_to_the_end() -> None:
    assert told("<think>a\nb") == [(1, "a\nb")]


def test_a_closing_tag_alone_ends_reasoning_that_the_template_began() -> None:
    assert told("a\nb\n</think>\nc") == [(1, "a\nb\n"), (0, "\nc")]


def test_reasoning_may_come_again_on_a_line_of_its_own() -> None:
    assert told("<think>a</think>b\n<think>\nc\n</think>d") == [
        (1, "a"),
        (0, "b\n"),
        (2, "\nc\n"),
        (0, "d"),
    ]


def test_empty_reasoning_is_no_part() -> None:
    assert told("<think>\n\n</think>\n\nb")[-1] == (0, "\n\nb")


@pytest.mark.parametrize("seed", range(20))
def test_cut_anywhere_the_parts_are_those_of_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    splitter = ThoughtSplitter()
    found: dict[int, int] = {}
    at = 0
    while at < len(WHOLE):
        step = draw.randint(1, 9)
        for part in splitter.take(WHOLE[at : at + step]):
            found.update(dict.fromkeys(range(part.start, part.end), part.thought))
        at += step
    for part in splitter.finish():
        found.update(dict.fromkeys(range(part.start, part.end), part.thought))
    parts, _splitter = split_thoughts(WHOLE)
    expected = {i: part.thought for part in parts for i in range(part.start, part.end)}
    assert found == expected


def test_half_a_tag_is_held_back_and_given_at_the_end() -> None:
    splitter = ThoughtSplitter()
    assert splitter.take("<thi") == []
    (part,) = splitter.finish()
    assert (part.start, part.end, part.thought) == (0, 4, 0)


def test_a_missing_opening_tag_is_noticed_while_streaming() -> None:
    splitter = ThoughtSplitter()
    splitter.take("reasoning\n</thi")
    assert not splitter.began_inside
    splitter.take("nk>\n")
    assert splitter.began_inside


def test_the_answer_alone() -> None:
    assert answer_text("<think>\na\n</think>\n\nb") == "b"
    assert answer_text("<think>a</think> \n\n    code\n") == "    code"
    assert answer_text("no reasoning\n") == "no reasoning\n"
