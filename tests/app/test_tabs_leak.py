"""Opening, streaming and closing tabs leaves nothing behind."""

from __future__ import annotations

import gc

import psutil
import pytest
from PySide6.QtWidgets import QApplication

from tests.helpers.window_stage import Stage, window_stage

LIMIT_BYTES = 20_000_000


def cycle(stage: Stage, qtbot, times: int) -> None:
    for number in range(times):
        conversation_id = stage.window.new_tab()
        stage.window.submit_text(conversation_id, f"Question {number}")
        qtbot.wait(30)
        stage.window.tab_area.close_conversation(conversation_id)
        if number % 20 == 19:
            # Nobody else looks for cycles here; in the application its event loop does.
            gc.collect()
    qtbot.wait(50)
    gc.collect()


@pytest.mark.slow
def test_a_hundred_tabs_leave_no_memory_and_no_widget(qtbot) -> None:
    with window_stage(qtbot) as stage:
        cycle(stage, qtbot, 20)
        widgets = len(QApplication.allWidgets())
        resident = psutil.Process().memory_info().rss
        cycle(stage, qtbot, 100)
        assert len(QApplication.allWidgets()) <= widgets
        assert psutil.Process().memory_info().rss - resident < LIMIT_BYTES
