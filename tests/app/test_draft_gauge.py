"""The figures of a draft follow what they are made of: answers, system prompt, model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from PySide6.QtTest import QTest

from app.gauges import Gauge
from app.session_state import ModelStatus
from tests.helpers.fake_engine import MODEL
from tests.helpers.window_stage import Stage, send, wait_idle, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

SLOW_MS = 30_000
WORDS = "word " * 1500


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    """One answer would take half a minute: a test stops it when it has seen enough."""
    with window_stage(qtbot, script=lambda _submit: WORDS, tokens_per_s=50.0) as made:
        yield made


def gauge_of(stage: Stage, conversation_id: str) -> Gauge | None:
    return stage.session.gauges.of(conversation_id)


def tokens(stage: Stage, conversation_id: str) -> int:
    """Of the prompt with the draft; 0 while nothing is known."""
    gauge = gauge_of(stage, conversation_id)
    return 0 if gauge is None else gauge.prompt_tokens or 0


def wait(qtbot, condition: Callable[[], bool]) -> None:
    qtbot.waitUntil(condition, timeout=SLOW_MS)


def type_while_it_is_answered(stage: Stage, qtbot) -> tuple[str, int]:
    """Returns the conversation, still busy, and the tokens of its draft as they were told first."""
    conversation_id = send(stage, "Tell me")
    wait(qtbot, lambda: len(stage.page.last_answer().content) > 10)
    QTest.keyClicks(stage.page.composer.edit, "and then")
    wait(qtbot, lambda: tokens(stage, conversation_id) > 0)
    first = tokens(stage, conversation_id)
    words = len(stage.page.last_answer().content.split())
    wait(qtbot, lambda: len(stage.page.last_answer().content.split()) > words + 40)
    assert stage.session.is_busy(conversation_id)
    return conversation_id, first


def test_a_draft_that_was_written_while_an_answer_came_is_measured_with_all_of_it(
    stage: Stage, qtbot
) -> None:
    conversation_id, first = type_while_it_is_answered(stage, qtbot)
    stage.page.stop()
    wait_idle(stage, qtbot)
    wait(qtbot, lambda: tokens(stage, conversation_id) > first + 40)
    assert f"{tokens(stage, conversation_id):,} of 2,048" in stage.page.composer.gauge.text


def test_what_ends_in_the_back_leaves_no_old_figures(stage: Stage, qtbot) -> None:
    conversation_id, first = type_while_it_is_answered(stage, qtbot)
    stage.window.new_tab()
    stage.session.stop(conversation_id)
    wait_idle(stage, qtbot)
    wait(qtbot, lambda: gauge_of(stage, conversation_id) is None)
    stage.window.show_conversation(conversation_id)
    wait(qtbot, lambda: tokens(stage, conversation_id) > first + 40)


def test_another_system_prompt_is_counted(stage: Stage, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    QTest.keyClicks(stage.page.composer.edit, "A draft")
    wait(qtbot, lambda: tokens(stage, conversation_id) > 0)
    first = tokens(stage, conversation_id)
    stage.session.set_system_prompt(conversation_id, "many words " * 50)
    wait(qtbot, lambda: tokens(stage, conversation_id) > first + 40)


def test_another_model_is_asked_anew_and_figures_of_the_old_one_go(stage: Stage, qtbot) -> None:
    behind = stage.page.conversation_id
    QTest.keyClicks(stage.page.composer.edit, "A draft")
    wait(qtbot, lambda: tokens(stage, behind) > 0)
    front = stage.window.new_tab()
    QTest.keyClicks(stage.page.composer.edit, "Another draft")
    wait(qtbot, lambda: tokens(stage, front) > 0)
    other = replace(MODEL, name="Other", context_length=1024, fingerprint="other")
    stage.engine.models["/other"] = other
    stage.session.load_model("/other")
    wait(qtbot, lambda: stage.session.model_state.info == other)
    assert stage.session.model_state.status is ModelStatus.READY
    assert gauge_of(stage, behind) is None
    wait(qtbot, lambda: tokens(stage, front) > 0)
    assert gauge_of(stage, front).limit_tokens == 1024
    assert "of 1,024 tokens" in stage.page.composer.gauge.text
    stage.window.show_conversation(behind)
    wait(qtbot, lambda: tokens(stage, behind) > 0)
    assert gauge_of(stage, behind).limit_tokens == 1024


def test_the_same_model_loaded_again_is_asked_anew(stage: Stage, qtbot) -> None:
    """Its pool is empty then."""
    conversation_id = stage.page.conversation_id
    QTest.keyClicks(stage.page.composer.edit, "A draft")
    wait(qtbot, lambda: tokens(stage, conversation_id) > 0)
    stage.session.unload_model()
    wait(qtbot, lambda: gauge_of(stage, conversation_id) is None)
    assert stage.page.composer.gauge.text == ""
    stage.session.wake_model()
    wait(qtbot, lambda: tokens(stage, conversation_id) > 0)
