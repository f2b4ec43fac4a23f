"""The transcript for screen readers: a list with one child for each message."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, QRect, QRectF
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QAccessibleEvent,
    QAccessibleInterface,
)
from PySide6.QtWidgets import QAccessibleWidget

from app.find_text import read_text
from app.i18n import tr
from app.markdown import split_blocks
from app.markdown_blocks import Block
from app.markdown_thoughts import answer_text
from app.overrides import guarded
from app.widgets.item_access import ItemAccess
from app.widgets.transcript.message import MessageItem

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_NAME_CHARS = 4000
"""What is read out for one message without being asked for more."""


class TranscriptAccess(QAccessibleWidget):
    """Messages from top to bottom; the one that the keyboard has reached has the focus."""

    def __init__(self, view: Transcript) -> None:
        super().__init__(view, QAccessible.Role.List, view.accessibleName())
        self.view = view
        self._messages: dict[str, MessageAccess] = {}

    def childCount(self) -> int:
        return len(self.view.items)

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        if not 0 <= index < self.childCount():
            return None
        message_id = self.view.items[index].view.message_id
        message = self._messages.get(message_id)
        if message is None:
            # Kept for good: Qt may hold on to what it was given.
            message = self._messages[message_id] = MessageAccess(self, message_id)
        return message

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        area = self.view.viewport()
        point = area.mapFromGlobal(QPoint(x, y))
        if not area.rect().contains(point) or not self.view.items:
            return None
        top = self.view.verticalScrollBar().value()
        return self.child(self.view.page.index_at(float(point.y() + top)))

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        item = child.item if isinstance(child, MessageAccess) else None
        return -1 if item is None else item.index

    def focusChild(self) -> QAccessibleInterface | None:  # type: ignore[override]
        item = self.view.keys.current if self.view.hasFocus() else None
        return None if item is None else self.child(item.index)


class MessageAccess(ItemAccess):
    """One message: who wrote it and what it says."""

    def __init__(self, transcript: TranscriptAccess, message_id: str) -> None:
        super().__init__(transcript)
        self._transcript = transcript
        self._message_id = message_id

    @property
    def item(self) -> MessageItem | None:
        """The message; None once it is no longer shown."""
        return self._transcript.view.item(self._message_id)

    def isValid(self) -> bool:
        return self.item is not None

    def text(self, kind: QAccessible.Text) -> str:
        item = self.item
        if item is None:
            return ""
        if kind == QAccessible.Text.Name:
            return name_of(item)
        if kind == QAccessible.Text.Value:
            return spoken(item)
        if kind == QAccessible.Text.Description:
            return _description_of(item, self._transcript.childCount())
        return ""

    def rect(self) -> QRect:
        item, view = self.item, self._transcript.view
        if item is None:
            return QRect()
        top = item.top - view.verticalScrollBar().value()
        rect = QRectF(view.page.left, top, view.page.column, item.height).toAlignedRect()
        return QRect(view.viewport().mapToGlobal(rect.topLeft()), rect.size())

    def state(self) -> QAccessible.State:
        state = QAccessible.State()
        item, view = self.item, self._transcript.view
        if item is None:
            state.invalid = True
            return state
        top = view.verticalScrollBar().value()
        state.focusable = state.readOnly = state.multiLine = True
        state.focused = view.hasFocus() and item is view.keys.current
        state.offscreen = not top < item.top + item.height <= top + view.viewport().height()
        state.busy = item.view.is_open
        return state


def name_of(item: MessageItem) -> str:
    """Who wrote a message and what it says, cut where it is very long."""
    who = tr("You") if item.view.is_user else tr("Answer")
    return tr("{who}: {words}", who=who, words=spoken(item, _NAME_CHARS))


def spoken(item: MessageItem, limit: int | None = None) -> str:
    """The text as it is shown, without Markdown's signs and without folded reasoning."""
    if item.view.is_user:
        return item.text[:limit]
    parts: list[str] = []
    size = 0
    for block in _blocks(item, limit):
        text = read_text(block).strip()
        marker = block.marker if block.marker != "•" else ""
        parts.append(f"{marker} {text}".strip())
        size += len(text)
        if limit is not None and size > limit:
            break
    return "\n".join(part for part in parts if part)[:limit]


def _blocks(item: MessageItem, limit: int | None) -> Iterator[Block]:
    if not item.sections:
        # It never came near the viewport, and is not cut into sections for this.
        yield from split_blocks(answer_text(item.text)[:limit])
    for section in item.sections:
        if not section.is_folded:
            yield from section.blocks()


def _description_of(item: MessageItem, total: int) -> str:
    place = tr("Message {index} of {total}", index=item.index + 1, total=total)
    parts = (item.view.divider, place, item.view.footer)
    return " · ".join(part for part in parts if part)


@cache
def install() -> None:
    """Makes Qt ask here for the accessible interface of a transcript."""
    QAccessible.installFactory(guarded(_make))


def _make(_class_name: str, widget: QObject) -> QAccessibleInterface | None:
    # Imported late: the view imports this module.
    from app.widgets.transcript.view import Transcript

    if not isinstance(widget, Transcript):
        return None
    access = TranscriptAccess(widget)
    # The wrapper must live as long as Qt knows the interface.
    widget.access = access
    return access


def tell_current(view: Transcript) -> None:
    """The keyboard has reached another message: a screen reader reads it."""
    item = view.keys.current
    if item is not None and QAccessible.isActive():
        event = QAccessibleEvent(view, QAccessible.Event.Focus)
        event.setChild(item.index)
        QAccessible.updateAccessibility(event)


def tell_finished(view: Transcript, item: MessageItem) -> None:
    """An answer is complete: a screen reader says it when it has nothing else to say."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(view, name_of(item)))
