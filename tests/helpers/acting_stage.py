"""What tests of acting on messages do in a window: ask, hover, press keys."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.widgets.transcript.message import MessageItem
from tests.helpers.window_stage import Stage, wait_idle

LEFT = Qt.MouseButton.LeftButton


def ask_on(stage: Stage, qtbot, *texts: str) -> str:
    """Asks in the tab in front, one after the other; the id of its conversation."""
    conversation_id = stage.page.conversation_id
    for text in texts:
        assert stage.window.submit_text(conversation_id, text)
        wait_idle(stage, qtbot)
    return conversation_id


def hover(stage: Stage, index: int) -> MessageItem:
    """The mouse goes over a message."""
    view = stage.page.transcript
    item = view.items[index]
    QTest.mouseMove(view.viewport(), QPoint(3, 3))
    y = round(item.top + item.head_height + 4) - view.verticalScrollBar().value()
    QTest.mouseMove(view.viewport(), QPoint(round(view.page.left) + 30, y))
    return item


def key(stage: Stage, which: Qt.Key, modifiers: Qt.KeyboardModifier) -> None:
    """A key where the keyboard is."""
    QTest.keyClick(QApplication.focusWidget() or stage.window, which, modifiers)
