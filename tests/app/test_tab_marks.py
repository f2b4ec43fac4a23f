"""The mark of a tab in the back, for each way in which its answer can end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from app.conversation import Message, MessageStatus
from app.widgets.swatch import Activity
from engine.api.errors import ErrorInfo, PromptExceedsPoolError
from engine.api.events import FinishReason
from engine.api.params import SamplingParams
from tests.helpers.window_stage import Stage, send, wait_idle, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")
LONG = "Many words come here. " * 100
REFUSAL = PromptExceedsPoolError("too many blocks")


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot, script=lambda _submit: LONG, tokens_per_s=100.0) as made:
        yield made


def mark(stage: Stage, conversation_id: str) -> Activity:
    """What the tab shows; the row of the side bar and the spoken name must agree."""
    tabs = stage.window.tab_area.tabs
    activity = tabs._marks[conversation_id][1]
    assert stage.window.side_bar.model._activities[conversation_id] is activity
    spoken = tabs.accessibleTabName(tabs.index_of(conversation_id))
    assert ("new answer" in spoken) is (activity is Activity.DONE_UNSEEN)
    assert ("failed" in spoken) is (activity is Activity.FAILED_UNSEEN)
    return activity


def last(stage: Stage, conversation_id: str) -> Message:
    return stage.session.conversation(conversation_id).path()[-1]


def writing_in_the_back(stage: Stage, qtbot) -> str:
    """A conversation whose answer is being written, behind another tab."""
    conversation_id = send(stage, "Question")
    qtbot.waitUntil(lambda: len(last(stage, conversation_id).content) > 20)
    stage.window.new_tab()
    assert mark(stage, conversation_id) is Activity.STREAMING
    return conversation_id


def at_its_limit(stage: Stage, qtbot) -> str:
    """A conversation in front with an answer that can be gone on with."""
    stage.session.change_settings(sampling=SamplingParams(max_tokens=3))
    conversation_id = send(stage, "Question")
    wait_idle(stage, qtbot)
    last(stage, conversation_id).params = SamplingParams(max_tokens=300)
    return conversation_id


def switch_model(stage: Stage) -> None:
    stage.session.switch_model("other.gguf", wait=False)


def unload_model(stage: Stage) -> None:
    stage.session.unload_model()


def stop(stage: Stage) -> None:
    for conversation_id in stage.session.conversation_ids():
        stage.session.stop(conversation_id)


def end_program(stage: Stage) -> None:
    stage.session.shut_down()


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (switch_model, MessageStatus.STOPPED),
        (unload_model, MessageStatus.STOPPED),
        (stop, MessageStatus.STOPPED),
        (end_program, MessageStatus.INTERRUPTED),
    ],
)
def test_an_answer_that_is_cut_short_leaves_no_mark(
    stage: Stage, qtbot, end: Callable[[Stage], None], status: MessageStatus
) -> None:
    conversation_id = writing_in_the_back(stage, qtbot)
    end(stage)
    wait_idle(stage, qtbot)
    assert last(stage, conversation_id).status is status
    assert mark(stage, conversation_id) is Activity.IDLE


def fail(stage: Stage) -> None:
    (running,) = stage.engine._requests.running
    stage.engine._requests.finish(running, FinishReason.ERROR, REFUSAL.info())


def die(stage: Stage) -> None:
    stage.engine.die(ErrorInfo("engine_died", "The engine stopped.", "Restart it."))


@pytest.mark.parametrize("end", [fail, die])
def test_an_answer_that_fails_is_marked_as_failed(
    stage: Stage, qtbot, end: Callable[[Stage], None]
) -> None:
    conversation_id = writing_in_the_back(stage, qtbot)
    end(stage)
    wait_idle(stage, qtbot)
    assert last(stage, conversation_id).status is MessageStatus.ERROR
    assert mark(stage, conversation_id) is Activity.FAILED_UNSEEN


@pytest.mark.parametrize(("max_tokens", "limit"), [(40, "max_tokens"), (None, "context"), (60, "")])
def test_an_answer_that_ends_by_itself_or_at_a_limit_is_marked_as_new(
    qtbot, max_tokens: int | None, limit: str
) -> None:
    text = "one two " * (20 if limit == "" else 200)
    with window_stage(
        qtbot, script=lambda _submit: text, tokens_per_s=100.0, context_length=128
    ) as stage:
        stage.session.change_settings(sampling=SamplingParams(max_tokens=max_tokens))
        conversation_id = writing_in_the_back(stage, qtbot)
        wait_idle(stage, qtbot)
        assert last(stage, conversation_id).limit == limit
        assert mark(stage, conversation_id) is Activity.DONE_UNSEEN


def test_the_rest_of_an_answer_that_never_began_leaves_no_mark(stage: Stage, qtbot) -> None:
    conversation_id = at_its_limit(stage, qtbot)
    stage.session.unload_model()
    stage.engine.hold_load.set()
    assert stage.session.continue_answer(conversation_id)
    stage.window.new_tab()
    assert mark(stage, conversation_id) is Activity.WAITING
    stop(stage)
    stage.engine.hold_load.clear()
    assert last(stage, conversation_id).status is MessageStatus.DONE
    assert mark(stage, conversation_id) is Activity.IDLE


def go_on(stage: Stage, conversation_id: str) -> bool:
    return stage.session.continue_answer(conversation_id)


def ask_again(stage: Stage, conversation_id: str) -> bool:
    return stage.session.regenerate(conversation_id)


def ask_more(stage: Stage, conversation_id: str) -> bool:
    return stage.session.send(conversation_id, "More")


@pytest.mark.parametrize("ask", [go_on, ask_again, ask_more])
def test_what_is_refused_is_marked_as_failed_although_the_answer_before_it_is_whole(
    stage: Stage, qtbot, ask: Callable[[Stage, str], bool]
) -> None:
    conversation_id = at_its_limit(stage, qtbot)
    stage.engine.refusal = lambda _submit: REFUSAL
    assert ask(stage, conversation_id)
    stage.window.new_tab()
    wait_idle(stage, qtbot)
    assert last(stage, conversation_id).status is MessageStatus.DONE
    assert mark(stage, conversation_id) is Activity.FAILED_UNSEEN


def test_of_several_answers_one_that_is_finished_is_marked(stage: Stage, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    assert stage.session.send(conversation_id, "Which?", num_answers=2)
    first, second = stage.session.compared(conversation_id)
    messages = stage.session.conversation(conversation_id).messages
    qtbot.waitUntil(lambda: bool(messages[second].content))
    stage.window.new_tab()
    stage.session.stop(conversation_id, first)
    qtbot.waitUntil(lambda: messages[first].status is MessageStatus.STOPPED)
    assert mark(stage, conversation_id) is Activity.STREAMING
    (running,) = stage.engine._requests.running
    stage.engine._requests.finish(running, FinishReason.STOP)
    wait_idle(stage, qtbot)
    assert mark(stage, conversation_id) is Activity.DONE_UNSEEN


def test_a_tab_that_was_looked_at_is_marked_no_more(stage: Stage, qtbot) -> None:
    conversation_id = writing_in_the_back(stage, qtbot)
    other = stage.page.conversation_id
    fail(stage)
    wait_idle(stage, qtbot)
    assert mark(stage, conversation_id) is Activity.FAILED_UNSEEN
    stage.window.show_conversation(conversation_id)
    stage.window.show_conversation(other)
    assert mark(stage, conversation_id) is Activity.IDLE
