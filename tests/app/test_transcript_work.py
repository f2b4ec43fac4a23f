"""What a transcript does for long texts, in characters parsed and blocks laid out.

These are the cases in which windows freeze. Times depend on the machine; the work does not. The
times themselves are in ``tests/benchmarks/gui.py window``.
"""

from __future__ import annotations

import gc
import weakref

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QGuiApplication

from app.markdown import OPEN_TEXT_LIMIT
from app.markdown_blocks import Block
from app.markdown_slices import SLICE_CHARS
from app.theme import ThemeManager
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.message import AT_ONCE, MessageView
from app.widgets.transcript.sections import MAX_BOXES, Section
from app.widgets.transcript.view import Transcript
from tests.helpers.transcript_stage import (
    answer,
    counted,
    light_theme,
    live_documents,
    question,
    refresh,
    shown_transcript,
    wheel,
)

BIG = 1_200_000
PART = """Some **text** with `code` and a list:

1. one thing
2. another

```python
def schedule(budget: int) -> list[int]:
    return [n for n in range(budget) if n % 2]
```

| a | b |
|---|---|
| 1 | 2 |

"""
CODE = "".join(f"value_{n} = compute({n}, 'text')  # note\n" for n in range(2000))
ROW = "| 1234 | some words | 5678 |\n"
BIG_ANSWERS = {
    "mixed": PART * (BIG // len(PART)),
    "one fence": "```python\n" + CODE * (BIG // len(CODE)) + "```\n",
    "one line": "word " * (BIG // 5),
    "no space": "字" * BIG,
    "one paragraph": "Some words in a line of it.\n" * (BIG // 29),
    "one list": "- item with some words in it\n" * (BIG // 29),
    "one table": "| a | b | c |\n|---|---|---|\n" + ROW * (BIG // len(ROW)),
    "one quote": "> quoted words of a text\n" * (BIG // 25),
}


@pytest.fixture
def themes(qapp) -> ThemeManager:
    return light_theme()


@pytest.fixture
def transcript(qtbot, themes: ThemeManager) -> Transcript:
    return shown_transcript(qtbot, themes)


def stream(view: Transcript, text: str, step: int) -> None:
    """The text comes in steps, and each is shown."""
    for start in range(0, len(text), step):
        view.append_text("a1", text[start : start + step])
        refresh(view)


def test_thirty_thousand_tokens_are_parsed_a_few_times_and_placed_in_parts(
    transcript: Transcript, monkeypatch
) -> None:
    text = PART * 800
    placed: list[int] = []
    real = Section.place
    monkeypatch.setattr(Section, "place", lambda self: (placed.append(len(self.boxes)), real(self)))
    transcript.set_messages([question(1), answer(1, "", True)])
    with counted(monkeypatch) as work:
        stream(transcript, text, 800)
    assert len(text) > 150_000
    assert sum(work.parsed) < 4 * len(text)
    assert max(work.parsed) < 2_000
    # Each block once or twice, the open one a little more often.
    num_blocks = len(transcript.items[1].boxes)
    assert num_blocks >= 4000
    assert work.documents < 3 * num_blocks
    assert max(placed) <= MAX_BOXES
    assert sum(placed) < 16 * num_blocks
    assert live_documents(transcript) < 200


def test_two_thousand_lines_in_an_open_fence_are_lexed_twice(
    transcript: Transcript, monkeypatch
) -> None:
    transcript.set_messages([question(1), answer(1, "```python\n", True)])
    with counted(monkeypatch) as work:
        stream(transcript, CODE, 160)
    # Line by line as they come, the unfinished line again and again, each segment at its end.
    assert work.lexed < 3 * len(CODE)
    assert sum(work.parsed) < 1_000
    assert live_documents(transcript) < 40


@pytest.mark.parametrize(
    "text",
    [
        "word " * 6_000,
        "字" * 30_000,
        "| a | b |\n|---|---|\n" + "| 1 | words of a row |\n" * 1_200,
        "> quoted words of a text\n>\n" * 1_000,
        "- item with some words in it\n" * 1_000,
    ],
    ids=["one line", "no space", "one table", "one quote", "one list"],
)
def test_one_endless_block_is_closed_piece_by_piece(
    transcript: Transcript, monkeypatch, text: str
) -> None:
    transcript.set_messages([question(1), answer(1, "", True)])
    with counted(monkeypatch) as work:
        stream(transcript, text, 500)
    assert max(work.parsed) < 2 * OPEN_TEXT_LIMIT
    assert sum(work.parsed) < 20 * len(text)
    assert live_documents(transcript) < 150


@pytest.mark.parametrize("name", BIG_ANSWERS)
def test_opening_a_long_answer_parses_only_its_end(
    transcript: Transcript, monkeypatch, name: str
) -> None:
    with counted(monkeypatch) as work:
        transcript.set_messages([question(1), answer(1, BIG_ANSWERS[name])])
    assert 0 < sum(work.parsed) + work.lexed < 12 * SLICE_CHARS
    assert 0 < work.documents < 150
    assert transcript.verticalScrollBar().value() == transcript.verticalScrollBar().maximum()


def test_a_long_answer_is_parsed_where_it_is_looked_at(transcript: Transcript, monkeypatch) -> None:
    transcript.set_messages([question(1), answer(1, BIG_ANSWERS["mixed"])])
    bar = transcript.verticalScrollBar()
    with counted(monkeypatch) as work:
        for share in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0):
            transcript.scroll_by(share * bar.maximum() - bar.value())
    assert sum(work.parsed) < 100 * SLICE_CHARS
    assert transcript.items[0].top < bar.value() + 500
    assert live_documents(transcript) < 150


@pytest.mark.parametrize("text", [CODE * 15, "word " * (BIG // 5), "字" * BIG])
def test_a_long_typed_text_is_laid_out_at_its_end(
    transcript: Transcript, monkeypatch, text: str
) -> None:
    with counted(monkeypatch) as work:
        transcript.set_messages([MessageView("q1", True, text)])
    assert 0 < work.documents < 20
    longest = max(len(box.block.html) for box in transcript.items[0].boxes)
    assert longest <= 4_001
    transcript.selection.select_all()
    assert transcript.copy_selection() == text


def test_what_a_hidden_tab_gathered_is_parsed_in_pieces(
    transcript: Transcript, monkeypatch
) -> None:
    transcript.set_messages([question(1), answer(1, "First.", True)])
    transcript.hide()
    text = PART * 800
    for start in range(0, len(text), 5_000):
        transcript.append_text("a1", text[start : start + 5_000])
    most = 0
    with counted(monkeypatch) as work:
        transcript.show()
        for _ in range(len(text) // AT_ONCE + 2):
            most = max(most, sum(work.parsed))
            work.parsed.clear()
            refresh(transcript)
    assert 0 < most < 32_000
    assert not transcript.page.is_behind
    assert transcript.items[1].boxes[-1].plain_text().startswith("a\nb")
    assert transcript.follows


def test_nothing_goes_on_once_everything_is_shown(transcript: Transcript) -> None:
    transcript.set_messages([question(1), answer(1, PART * 30, True)])
    wheel(transcript, 12)
    transcript.append_text("a1", "More.")
    transcript.update_message(answer(1, transcript.items[1].text))
    transcript._refresh_timer.stop()
    refresh(transcript)
    assert not transcript._refresh_timer.isActive()


def test_a_frame_of_five_hundred_messages_touches_those_in_sight(
    transcript: Transcript, monkeypatch
) -> None:
    views = [view for n in range(250) for view in (question(n), answer(n, PART))]
    transcript.set_messages([*views, answer(999, "Open", True)])
    with counted(monkeypatch) as work:
        for n in range(20):
            transcript.append_text("a999", f" {n}")
            refresh(transcript)
    assert work.laid_out < 20 * 150
    assert work.documents <= 20
    assert sum(work.parsed) < 20 * 100


def test_a_closed_transcript_leaves_no_document(qtbot, themes: ThemeManager) -> None:
    def open_and_close() -> list[weakref.ref]:
        view = Transcript(themes)
        view.resize(700, 500)
        view.show()
        qtbot.waitExposed(view)
        view.set_messages([question(1), answer(1, PART * 3, True)])
        stream(view, PART * 2, 100)
        documents = [weakref.ref(b.document) for i in view.items for b in i.boxes if b.document]
        view.close()
        view.deleteLater()
        return [weakref.ref(view), *documents]

    refs = open_and_close()
    assert len(refs) > 10
    for _ in range(3):
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        gc.collect()
    assert not any(ref() is not None for ref in refs)


CORPUS = (
    "# Title\n\nA *b* **c** `d`\nsoft\n\n- a\n- [ ] b\n  - n\n    ```py\n    x = 1\n    ```\n\n"
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\nend\n\nText\n```python\n"
    "def f():\n    return '```'\n```\n"
    "after\na\n```not a `fence`\nb\n\n> q\n> - in\n\npara\n===\n\n1. one\n\n   still one\n"
    "2. two\n   ```\n   fence\n   ```\n\n"
    "$$\nx_1\n= y\n$$\n\n中文段落，**加粗**。\n\n<think>\nhm\n</think>\n\n    code\n\nlast"
)


def test_a_closed_block_keeps_its_box_and_its_kind_whatever_comes(transcript: Transcript) -> None:
    transcript.set_messages([answer(1, "", True)])
    closed: list[tuple[BlockBox, Block]] = []
    for char in CORPUS:
        transcript.append_text("a1", char)
        refresh(transcript)
        item = transcript.items[0]
        still_open = item._end._open_boxes
        boxes = [box for box in item.boxes if box not in still_open]
        assert [(id(b), b.block) for b, _ in closed] == [
            (id(b), b.block) for b in boxes[: len(closed)]
        ]
        assert all(box.block == block for box, block in closed)
        closed = [(box, box.block) for box in boxes]
    assert len(closed) > 15
    transcript.update_message(answer(1, CORPUS))
    refresh(transcript)
    streamed = [box.block for box in transcript.items[0].boxes]
    assert [block for _, block in closed] == streamed[: len(closed)]
    transcript.set_messages([answer(2, CORPUS)])
    whole = transcript.items[0]
    # Reasoning is folded, and not parsed as long as it is.
    whole.parse_all(transcript.page.column, transcript.page.factory)
    assert [box.block for box in whole.boxes] == streamed


def test_copying_a_fence_parses_no_more_than_the_fence(transcript: Transcript, monkeypatch) -> None:
    fence = f"```python\n{CODE}```\n\n"
    transcript.set_messages([answer(1, fence + PART * 3_000)])
    transcript.scroll_by(-1_000_000)
    QGuiApplication.clipboard().clear()
    with counted(monkeypatch) as work:
        transcript._input.copy_code(transcript.items[0].boxes[0])
    assert QGuiApplication.clipboard().text() == CODE.rstrip("\n")
    assert sum(work.parsed) < 3 * SLICE_CHARS
