"""The window stays quick. Times are the GUI thread's own, so that a busy machine is no failure."""

from __future__ import annotations

import time

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.conversation import ASSISTANT, USER, Message, MessageStatus
from tests.helpers.window_stage import Stage, window_stage

ANSWER = """Some **text** with `code` and a list:

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
GAP_MS, KEY_MS = 50.0, 30.0


def turns(seconds: float) -> list[float]:
    """Milliseconds of this thread in each turn of the event loop."""
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.thread_time()
        QApplication.processEvents()
        found.append((time.thread_time() - started) * 1000.0)
        time.sleep(0.002)
    return sorted(found)


def test_four_streaming_tabs_never_hold_the_window(qtbot) -> None:
    with window_stage(qtbot, script=lambda _s: ANSWER * 40, tokens_per_s=50.0) as stage:
        ids = [stage.page.conversation_id] + [stage.window.new_tab() for _ in range(3)]
        for conversation_id in ids:
            stage.window.submit_text(conversation_id, "Question")
        found = turns(3.0)
        assert stage.page.transcript.items[1].text
        assert found[-1] < GAP_MS
        for conversation_id in ids:
            stage.session.stop(conversation_id)
        qtbot.waitUntil(lambda: not any(map(stage.session.is_busy, ids)))


def five_hundred_messages(stage: Stage) -> None:
    conversation = stage.session.conversation(stage.page.conversation_id)
    for number in range(250):
        conversation.append(Message(USER, f"Question {number}?"))
        conversation.append(Message(ASSISTANT, ANSWER))
    stage.session.path_changed.emit(conversation.conversation_id)


def test_typing_is_quick_in_a_long_conversation(qtbot) -> None:
    with window_stage(qtbot) as stage:
        five_hundred_messages(stage)
        turns(0.2)
        found = []
        for _ in range(40):
            started = time.thread_time()
            QTest.keyClick(stage.page.composer.edit, "x")
            QApplication.processEvents()
            found.append((time.thread_time() - started) * 1000.0)
        assert sorted(found)[35] < KEY_MS
        assert len(stage.page.transcript.items) == 500
        # These messages never went through the session, so the store must not see them.
        stage.session.path_changed.disconnect()


def test_an_answer_of_thirty_thousand_words_does_not_stall(qtbot) -> None:
    text = ANSWER * 900
    with window_stage(qtbot) as stage:
        conversation = stage.session.conversation(stage.page.conversation_id)
        conversation.append(Message(USER, "Tell me everything."))
        answer = conversation.append(Message(ASSISTANT, "", status=MessageStatus.STREAMING))
        stage.session.path_changed.emit(conversation.conversation_id)
        transcript = stage.page.transcript
        worst = 0.0
        for start in range(0, len(text), 2000):
            transcript.append_text(answer.message_id, text[start : start + 2000])
            started = time.thread_time()
            transcript._on_refresh_timeout()
            QApplication.processEvents()
            worst = max(worst, (time.thread_time() - started) * 1000.0)
        assert len(transcript.items[1].boxes) > 4000
        assert worst < 3 * GAP_MS
