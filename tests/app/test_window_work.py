"""What the window does while answers stream and keys are pressed: no more than what is seen."""

from __future__ import annotations

import gc
import weakref

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.conversation import ASSISTANT, USER, Message
from app.widgets.transcript.scroll import Scroll
from tests.helpers.transcript_stage import counted
from tests.helpers.window_stage import Stage, window_stage

ANSWER = "Some **text** with `code`:\n\n1. one\n2. two\n\n```python\nx = 1\n```\n\n"


def test_a_key_lays_nothing_out_below_five_hundred_messages(qtbot, monkeypatch) -> None:
    with window_stage(qtbot) as stage:
        conversation = stage.session.conversation(stage.page.conversation_id)
        for number in range(250):
            conversation.append(Message(USER, f"Question {number}?"))
            conversation.append(Message(ASSISTANT, ANSWER))
        stage.session.path_changed.emit(conversation.conversation_id)
        qtbot.wait(50)
        assert len(stage.page.transcript.items) == 500
        painter = stage.page.transcript._painter
        painted: list[int] = []
        real = painter.draw
        monkeypatch.setattr(painter, "draw", lambda *rest: (painted.append(1), real(*rest)))
        with counted(monkeypatch) as work:
            for _ in range(20):
                QTest.keyClick(stage.page.composer.edit, "x")
                QApplication.processEvents()
        assert stage.page.composer.text() == "x" * 20
        assert (work.documents, work.laid_out, sum(work.parsed)) == (0, 0, 0)
        # The gauge of the composer may change its height once, and the transcript's with it.
        assert len(painted) <= 2
        stage.page.transcript.viewport().repaint()
        assert painted
        # These messages never went through the session, so the store must not see them.
        stage.session.path_changed.disconnect()


def test_of_eight_streaming_tabs_only_the_one_in_front_is_laid_out(qtbot, monkeypatch) -> None:
    with window_stage(qtbot, script=lambda _s: ANSWER * 30, tokens_per_s=300.0) as stage:
        tabs = [stage.page.conversation_id, *(stage.window.new_tab() for _ in range(7))]
        for tab in tabs:
            stage.window.submit_text(tab, "Question")
        front = stage.page.transcript
        settled: list[Scroll] = []
        real = Scroll.settle
        monkeypatch.setattr(
            Scroll, "settle", lambda self, *rest: (settled.append(self), real(self, *rest))
        )
        answers = [stage.session.conversation(tab).path()[-1] for tab in tabs]
        qtbot.waitUntil(lambda: all(len(answer.content) > 400 for answer in answers))
        assert set(settled) == {front._scroll}
        for tab in tabs:
            stage.session.stop(tab)
        qtbot.waitUntil(lambda: not any(map(stage.session.is_busy, tabs)))


def _open_and_close(stage: Stage, qtbot, number: int) -> list[weakref.ref]:
    tab = stage.window.new_tab()
    stage.window.submit_text(tab, f"Question {number}")
    transcript = stage.page.transcript
    qtbot.waitUntil(lambda: len(transcript.items) == 2 and bool(transcript.items[1].boxes))
    documents = [b.document for item in transcript.items for b in item.boxes if b.document]
    refs = [weakref.ref(transcript), weakref.ref(transcript.page), *map(weakref.ref, documents)]
    stage.window.tab_area.close_conversation(tab)
    return refs


def test_closed_tabs_leave_no_transcript_and_no_widget(qtbot) -> None:
    with window_stage(qtbot, script=lambda _s: ANSWER * 30) as stage:
        _open_and_close(stage, qtbot, 0)
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        widgets = len(QApplication.allWidgets())
        refs = [ref for number in range(5) for ref in _open_and_close(stage, qtbot, number)]
        assert len(refs) > 20
        qtbot.wait(60)
        for _ in range(3):
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
            gc.collect()
        assert len(QApplication.allWidgets()) <= widgets
        assert sum(ref() is not None for ref in refs) == 0
