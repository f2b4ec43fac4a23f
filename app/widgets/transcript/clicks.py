"""What a click selects at once: nothing, with the second one a word, with the third a paragraph."""

from __future__ import annotations

from PySide6.QtCore import QElapsedTimer, QPointF
from PySide6.QtGui import QGuiApplication, QTextCursor

from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.selection import Position, position_of

_CHARACTER, _WORD, _PARAGRAPH = 1, 2, 3


class Clicks:
    """Counts clicks at one place, and grows a selection by the unit that they began with."""

    def __init__(self) -> None:
        self._count = _CHARACTER
        self._since = QElapsedTimer()
        self._place = QPointF()
        self._first: tuple[Position, Position] | None = None

    def press(self, point: QPointF) -> None:
        """A button went down; soon after the second click at its place it is the third."""
        hints = QGuiApplication.styleHints()
        away = (point - self._place).manhattanLength()
        is_third = (
            self._count == _WORD
            and self._since.elapsed() < hints.mouseDoubleClickInterval()
            and away < hints.startDragDistance()
        )
        self._count = _PARAGRAPH if is_third else _CHARACTER
        self._first = None

    def press_again(self, point: QPointF) -> None:
        """It is the second click."""
        self._count, self._place, self._first = _WORD, point, None
        self._since.start()

    def selected(
        self, item: MessageItem, box: BlockBox, at: Position
    ) -> tuple[Position, Position] | None:
        """(anchor, caret) with the mouse at a character; None if characters are selected singly."""
        if self._count == _CHARACTER or box.document is None:
            return None
        cursor = QTextCursor(box.document)
        cursor.setPosition(min(at.char, box.document.characterCount() - 1))
        if self._count == _WORD:
            cursor.select(QTextCursor.SelectionType.WordUnderCursor)
        else:
            cursor.movePosition(QTextCursor.MoveOperation.StartOfBlock)
            keep = QTextCursor.MoveMode.KeepAnchor
            cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, keep)
        start = position_of(item, box, cursor.selectionStart())
        end = position_of(item, box, cursor.selectionEnd())
        first_start, first_end = self._first = self._first or (start, end)
        # The unit that was clicked stays selected, whichever way the mouse goes.
        return (first_end, start) if start < first_start else (first_start, max(end, first_end))
