"""Titles without a model: the gist of the first message that says something."""

from __future__ import annotations

import time

import pytest

from app.conversation import USER, Conversation, Message
from app.titles import TITLE_LENGTH, automatic_title, clean_title, is_small_talk, title_of


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\n\n  second line first  \nthird", "second line first"),
        ("tab\tbetween", "tab between"),
        ("\u202egnp.exe\u2066 hidden\u0007", "gnp.exe hidden"),
        ("👩\u200d🚀 می\u200cخواهم", "👩\u200d🚀 می\u200cخواهم"),
        ("\u200d\u200c\nsecond", "second"),
        ("", ""),
        (" \n\u200b\n", ""),
        ("Hi, can you: explain", "Hi, can you: explain"),
    ],
)
def test_a_title_that_the_user_gave_is_only_cleaned(text: str, title: str) -> None:
    assert clean_title(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hi, can you explain how paging works?", "Explain how paging works?"),
        ("Hello there!\nWhat is a block table?", "What is a block table?"),
        ("Good morning. Please help me to sort a list", "Sort a list"),
        ("你好，请帮我写一首关于秋天的诗。", "写一首关于秋天的诗"),
        ("请问一下，什么是分页注意力？", "什么是分页注意力？"),
        ("High school maths", "High school maths"),
        ("Hello", "Hello"),
        ("Please", "Please"),
    ],
)
def test_greetings_and_polite_beginnings_are_left_out(text: str, title: str) -> None:
    assert automatic_title(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("```python\ndef quicksort(xs):\n    return xs\n```", "python: quicksort"),
        ("What is wrong here?\n```js\nlet x = 1\n```", "What is wrong here?"),
        ("```js\nlet x = 1\n```\nWhat is wrong here?", "What is wrong here?"),
        ("```\nplain\n```", "plain"),
        ("~~~rust\npub fn main() {}\n", "rust: main"),
        ("def area(r):\n    return r", "def area(r)"),
    ],
)
def test_code_is_named_by_what_is_asked_or_what_it_defines(text: str, title: str) -> None:
    assert automatic_title(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("https://github.com/a/b/c/file_name.py?x=1#L20", "github.com/…/file_name.py"),
        (
            "Sum up https://www.example.org/a/Paged%20attention.",
            "Sum up example.org/…/Paged attention",
        ),
        ("https://example.org", "example.org"),
        ("https://[bad", "https://[bad"),
    ],
)
def test_an_address_is_named_by_host_and_page(text: str, title: str) -> None:
    assert automatic_title(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("## Heading with **bold**", "Heading with bold"),
        ("- [ ] do `this`", "do this"),
        ("> 1. [a link](https://example.org)", "a link"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
    ],
)
def test_marks_of_markdown_go_and_everything_else_stays(text: str, title: str) -> None:
    assert automatic_title(text) == title


def test_a_long_title_is_cut_at_a_word() -> None:
    title = automatic_title("word " * 40)
    assert title.endswith("word…")
    assert len(title) <= TITLE_LENGTH


def test_a_long_chinese_title_takes_no_more_room_than_others() -> None:
    title = automatic_title("为什么天空是蓝色的而不是紫色的" * 4)
    assert title.startswith("为什么天空")
    assert len(title) <= TITLE_LENGTH // 2 + 1
    assert title.endswith("…")


def test_of_several_sentences_that_are_too_long_the_first_is_taken() -> None:
    text = "Fix the tests. They fail with an error about modules that are missing since today."
    assert automatic_title(text) == "Fix the tests"
    assert automatic_title("写一首诗。" + "要有五句，每句七个字，还要押韵。" * 3) == "写一首诗"


@pytest.mark.parametrize("text", ["Hi!", "hello there", "你好！", "Thanks.", "ok", "…"])
def test_small_talk_is_known(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", ["Hi-fi amplifiers", "test results", "你好吗是什么意思", "2+2"])
def test_what_only_begins_like_small_talk_is_not(text: str) -> None:
    assert not is_small_talk(text)


def test_a_greeting_names_the_conversation_until_something_is_said() -> None:
    conversation = Conversation()
    conversation.append(Message(USER, "Hi!"))
    assert conversation.title == "Hi!"
    conversation.append(Message(USER, "What is a block table?"))
    assert conversation.title == "What is a block table?"
    conversation.append(Message(USER, "And now something else"))
    assert conversation.title == "What is a block table?"


def test_a_name_that_the_user_gave_is_never_replaced() -> None:
    conversation = Conversation(title="Hi", title_is_automatic=False)
    conversation.append(Message(USER, "What is a block table?"))
    assert conversation.title == "Hi"


def test_the_first_message_names_it_where_all_is_small_talk() -> None:
    assert title_of(["Hi!", "thanks"]) == "Hi!"
    assert title_of([]) == ""


def test_a_megabyte_of_text_is_named_at_once() -> None:
    started = time.perf_counter()
    for text in ("你好" * 300_000, "**" * 300_000, "http://" + "a/" * 300_000, "\n" * 1_000_000):
        automatic_title(text)
    assert time.perf_counter() - started < 1.0


@pytest.mark.parametrize(
    ("lines", "limit_s"),
    [
        ("\n" * 8000, 0.5),
        (" \n" * 4000, 0.25),
        ("pub \n" * 1600, 0.15),
    ],
)
def test_a_block_of_many_lines_that_define_nothing_is_named_at_once(
    lines: str, limit_s: float
) -> None:
    # Looking over line ends again for every line takes longer than that, each time.
    took_s = []
    for _ in range(3):
        started = time.perf_counter()
        automatic_title(f"```\n{lines}")
        took_s.append(time.perf_counter() - started)
    assert min(took_s) < limit_s
