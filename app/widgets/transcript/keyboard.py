"""The keyboard on the transcript: from message to message, and through the long ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QFocusEvent, QKeyEvent

from app.widgets.transcript import access
from app.widgets.transcript.message import MessageItem

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_BY_KEYBOARD = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)


class TranscriptKeys:
    """Part of a transcript. ``current``: the message that the keyboard has reached."""

    def __init__(self, view: Transcript) -> None:
        self._view = view
        self._message_id = ""

    @property
    def current(self) -> MessageItem | None:
        """None while the mouse is used instead."""
        return self._view.item(self._message_id)

    def focus_in(self, event: QFocusEvent) -> None:
        """The last message in sight is the current one, and the next Tab reaches its buttons."""
        if event.reason() in _BY_KEYBOARD and self._view.items:
            self.reach(self.current or self._seen()[-1])

    def leave(self) -> None:
        """The mouse is used."""
        if self._message_id:
            self._message_id = ""
            self._view.viewport().update()

    def press(self, event: QKeyEvent) -> bool:
        """True if the key means something here."""
        if event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            return False
        return self._press_plain(Qt.Key(event.key()))

    def _press_plain(self, key: Qt.Key) -> bool:
        view = self._view
        bar = view.verticalScrollBar()
        pages = {
            Qt.Key.Key_PageUp: -bar.pageStep(),
            Qt.Key.Key_PageDown: bar.pageStep(),
            Qt.Key.Key_Space: bar.pageStep(),
        }
        if key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.step(1 if key == Qt.Key.Key_Down else -1)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End) and view.items:
            is_end = key == Qt.Key.Key_End
            view.scroll_by(bar.maximum() if is_end else -bar.maximum())
            self.reach(view.items[-1 if is_end else 0])
        elif key in pages:
            view.scroll_by(pages[key])
            if view.items:
                self.reach(self._seen()[0 if pages[key] < 0 else -1])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            view.acting.open_menu()
        else:
            return False
        return True

    def step(self, by: int) -> None:
        """Through the current message, if it goes on beyond the viewport, else to the next one."""
        view, item = self._view, self.current
        if not view.items:
            return
        seen = self._seen()
        if item is None or item not in seen:
            self.reach(seen[0 if by > 0 else -1])
            return
        top = float(view.verticalScrollBar().value())
        bottom = top + view.viewport().height()
        goes_on = item.top + item.height > bottom + 1 if by > 0 else item.top < top - 1
        index = item.index + by
        if goes_on:
            view.scroll_by(by * view.verticalScrollBar().singleStep())
        elif 0 <= index < len(view.items):
            view.acting.show(view.items[index])
        else:
            view.scroll_by(by * view.verticalScrollBar().singleStep())

    def _seen(self) -> list[MessageItem]:
        """Messages in sight; never empty where there are messages."""
        view = self._view
        top = float(view.verticalScrollBar().value())
        seen = [item for item, _ in view.page.visible(top, top + view.viewport().height())]
        return seen or view.items[-1:]

    def reach(self, item: MessageItem) -> None:
        """Makes a message the current one; a screen reader reads it."""
        self._message_id = item.view.message_id
        self._view.buttons.set_item(item)
        self._view.viewport().update()
        access.tell_current(self._view)
