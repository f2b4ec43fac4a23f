"""A message lights its blocks and tells what editing it costs; a block lights its text."""

from __future__ import annotations

import pytest

from app.cache_panel.token_ranges import OPEN_END, TokenRange, token_ranges
from app.conversation import ASSISTANT, USER, Conversation, Message, MessageStatus
from app.widgets.transcript.lit import find_words
from engine.api.commands import EditCost
from engine.api.events import RequestUsage
from engine.api.params import OverflowPolicy, TurnTokens
from tests.helpers.real_window import RealWindow, real_window

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

SYSTEM = "hello hello hello hello world w"


@pytest.fixture
def real(qtbot):
    with real_window(qtbot, system_prompt=SYSTEM) as made:
        yield made


def point_at(real: RealWindow, conversation_id: str, message_id: str) -> None:
    transcript = real.window.tab_area.page(conversation_id).transcript
    transcript.buttons.set_item(transcript.item(message_id) if message_id else None)


def test_a_message_lights_its_blocks_and_tells_its_price(real: RealWindow) -> None:
    first = real.session.conversation_ids()[0]
    real.ask(first, "hello world of pages")
    real.ask(first, "and more of them, hello")
    path = real.session.conversation(first).path()
    table = real.model.ghosts[first].blocks
    point_at(real, first, path[0].message_id)
    real.wait(lambda: "Editing this message invalidates" in real.live.view._block.text())
    queries = [c for c in real.sent if isinstance(c, EditCost)]
    assert [c.index for c in queries] == [1]
    # The system prompt is before it and stays: its blocks are not the message's.
    lit = real.live.view.tables._lit
    assert lit
    assert lit == real.live.view.grid._highlight
    assert table[0] not in lit
    later = path[2].message_id
    point_at(real, first, later)
    real.wait(lambda: real.live.view.tables._lit not in (lit, frozenset()))
    assert min(map(table.index, real.live.view.tables._lit)) > min(map(table.index, lit))
    point_at(real, first, "")
    assert real.live.view.tables._lit == frozenset()
    assert "Point at a cell" in real.live.view._block.text()


def test_only_a_message_on_which_the_mouse_stays_is_asked_about(real: RealWindow, qtbot) -> None:
    first = real.session.conversation_ids()[0]
    real.ask(first, "hello world of pages")
    path = real.session.conversation(first).path()
    for message in (*path, *path, path[0]):
        point_at(real, first, message.message_id)
    real.wait(lambda: any(isinstance(c, EditCost) for c in real.sent))
    qtbot.wait(200)
    assert [c.index for c in real.sent if isinstance(c, EditCost)] == [1]


def test_nothing_is_done_while_the_panel_is_hidden(real: RealWindow, qtbot) -> None:
    first = real.session.conversation_ids()[0]
    real.ask(first, "hello world of pages")
    real.window.panels.hide()
    point_at(real, first, real.session.conversation(first).path()[0].message_id)
    assert not real.window.linked_views._timer.isActive()
    qtbot.wait(200)
    assert not [c for c in real.sent if isinstance(c, EditCost)]


def test_a_block_lights_its_text_in_every_conversation_that_has_it(real: RealWindow) -> None:
    first = real.session.conversation_ids()[0]
    question = "hello world of pages, of books and of the leaves that are in them"
    real.ask(first, question)
    second = real.window.new_tab()
    real.ask(second, question)
    block = real.model.ghosts[first].blocks[4]
    assert real.model.ghosts[second].blocks[4] == block
    real.live.view.grid.move_cursor(block)
    transcripts = [real.window.tab_area.page(i).transcript for i in (first, second)]
    questions = [real.session.conversation(i).path()[0].message_id for i in (first, second)]
    real.wait(lambda: all(t.lit.message_ids for t in transcripts))
    assert [t.lit.message_ids for t in transcripts] == [{q} for q in questions]
    item = transcripts[1].item(questions[1])
    assert item is not None
    box = item.boxes[0]
    found = transcripts[1].lit.range_in(item, box)
    assert found is not None
    assert box.document is not None
    lit = box.document.toPlainText()[slice(*found)]
    assert len(lit) >= 8
    assert lit in question
    real.live.view.block_pointed.emit(-1)
    assert not any(t.lit.message_ids for t in transcripts)


# --- positions, without an engine ---


def turn(num_prompt: int, num_output: int) -> TurnTokens:
    return TurnTokens(tuple(range(num_prompt)), tuple(range(num_output)), 1, "f")


def answer(num_prompt: int, num_new: int, num_output: int, num_dropped: int = 0) -> Message:
    return Message(
        ASSISTANT,
        "answer",
        turn=turn(num_new, num_output),
        usage=RequestUsage(prompt_tokens=num_prompt, output_tokens=num_output),
        num_dropped=num_dropped,
    )


def ranges(conversation: Conversation, running: int = 0) -> list[tuple[int, int] | None]:
    found = token_ranges(conversation, running)
    listed = [found.get(message.message_id) for message in conversation.path()]
    return [None if tokens is None else (tokens.start, tokens.end) for tokens in listed]


def talk(*messages: Message) -> Conversation:
    conversation = Conversation()
    for message in messages:
        conversation.append(message)
    return conversation


def test_positions_of_answered_turns() -> None:
    made = talk(Message(USER, "a"), answer(20, 20, 5), Message(USER, "b"), answer(33, 8, 4))
    assert ranges(made) == [(0, 20), (20, 25), (25, 33), (33, 37)]


def test_an_answer_that_was_continued_counts_once() -> None:
    continued = Message(
        ASSISTANT,
        "answer",
        turn=turn(8, 9),
        # Of the second request, whose prompt had the first 4 tokens of the answer.
        usage=RequestUsage(prompt_tokens=37, output_tokens=5),
    )
    made = talk(Message(USER, "a"), answer(20, 20, 5), Message(USER, "b"), continued)
    assert ranges(made) == [(0, 20), (20, 25), (25, 33), (33, 42)]


def test_positions_while_an_answer_runs() -> None:
    streaming = Message(ASSISTANT, "", status=MessageStatus.STREAMING)
    made = talk(Message(USER, "a"), answer(20, 20, 5), Message(USER, "b"), streaming)
    assert ranges(made) == [(0, 20), (20, 25), None, None]
    assert ranges(made, 33) == [(0, 20), (20, 25), (25, 33), (33, OPEN_END)]
    first = talk(Message(USER, "a"), Message(ASSISTANT, "", status=MessageStatus.STREAMING))
    assert ranges(first, 12) == [(0, 12), (12, OPEN_END)]


def test_positions_after_a_cut_are_those_of_what_is_still_read() -> None:
    made = talk(
        Message(USER, "a"), answer(20, 20, 5), Message(USER, "b"), answer(18, 8, 4, num_dropped=2)
    )
    made.overflow = OverflowPolicy.DROP_OLDEST
    assert ranges(made) == [None, None, (10, 18), (18, 22)]


def test_an_answer_of_unknown_tokens_ends_what_is_known() -> None:
    made = talk(Message(USER, "a"), Message(ASSISTANT, "old"), Message(USER, "b"), answer(33, 8, 4))
    assert ranges(made) == [None, None, (25, 33), (33, 37)]


@pytest.mark.parametrize(
    ("tokens", "num_blocks", "blocks"),
    [((0, 16), 9, [0]), ((15, 17), 9, [0, 1]), ((20, OPEN_END), 3, [1, 2]), ((40, 60), 2, [])],
)
def test_blocks_of_a_range(tokens: tuple[int, int], num_blocks: int, blocks: list[int]) -> None:
    assert list(TokenRange(*tokens).blocks(16, num_blocks)) == blocks


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("of pages", "a list of pages here", "of pages"),
        ("<|im_start|>user\nWhat is a block table", "What is a block table?", "What is a block ta"),
        ("a **bold** statement of the", "It is a bold statement of the sort", "statement of the"),
        ("nothing of this stands there", "An other sentence entirely", None),
        ("in them<|im_end|>\n<|im_start|>assistant\n", "the leaves that are in them", "in them"),
        ("<|im_end|>\n<|im_start|>user\nhello", "hello world", "hello"),
        ("  ", "spaces are nowhere", None),
        ("块表是一份列表", "一个块表是一份列表。", "块表是一份列表"),
    ],
)
def test_words_are_found_in_what_is_shown(words: str, text: str, found: str | None) -> None:
    place = find_words(words, text)
    if found is None:
        assert place is None
    else:
        assert place is not None
        assert found in text[slice(*place)]
