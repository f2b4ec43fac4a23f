"""The scroll area: streams into the last block, follows only while the user is at the end."""

from __future__ import annotations

import math
import time

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHideEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QWidget

from app.i18n import tr
from app.theme import Theme, ThemeManager
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.message import MessageItem, MessageView
from app.widgets.transcript.mouse import TranscriptInput
from app.widgets.transcript.overlay import JumpButton, MessageButtons
from app.widgets.transcript.page import Page
from app.widgets.transcript.painter import TranscriptPainter
from app.widgets.transcript.selection import Selection

REFRESH_MS = 50
_COST_SHARE = 8
_KEEP_PAGES = 1.5
_DESCRIPTION = 4000


class Transcript(QAbstractScrollArea):
    """Messages of one conversation.

    Signals:
        link_activated(url): the user clicked a link; nothing is opened here.
        regenerate_requested(message_id), fork_requested(message_id)
        version_requested(message_id, step): step −1 or 1 among the versions.
    """

    link_activated = Signal(str)
    regenerate_requested = Signal(str)
    fork_requested = Signal(str)
    version_requested = Signal(str, int)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("transcript")
        self.setAccessibleName(tr("Transcript"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setMouseTracking(True)
        self.page = Page(DocumentFactory(themes.theme))
        self.selection = Selection(self.page)
        self._painter = TranscriptPainter(themes.theme)
        self._by_id: dict[str, MessageItem] = {}
        self._follows = True
        self._wanted: MessageItem | None = None
        self._is_settling = False
        self._stale = False
        self._refresh_cost_ms = 0.0
        self._refresh_timer = QTimer(self)
        self._refresh_timer.setSingleShot(True)
        self._refresh_timer.timeout.connect(self._on_refresh_timeout)
        self.buttons = MessageButtons(self, themes)
        self.jump_button = JumpButton(self, themes)
        self.jump_button.clicked.connect(self.jump_to_latest)
        self._input = TranscriptInput(self)
        self.verticalScrollBar().setSingleStep(40)
        self.verticalScrollBar().actionTriggered.connect(self._on_scroll_bar_action)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        themes.changed.connect(self._on_theme_changed)

    # --- content ---

    @property
    def items(self) -> list[MessageItem]:
        return self.page.items

    @property
    def follows(self) -> bool:
        """True while new text scrolls the view; the user's scrolling up ends it."""
        return self._follows

    def item(self, message_id: str) -> MessageItem | None:
        return self._by_id.get(message_id)

    def set_messages(self, views: list[MessageView]) -> None:
        """Shows another branch, from its end."""
        self.selection.clear()
        self.buttons.set_item(None)
        self.page.clear()
        self._by_id = {}
        for view in views:
            item = MessageItem(view)
            item.estimate(self.page.column, self.page.factory)
            self.page.items.append(item)
            self._by_id[view.message_id] = item
        self.page.place()
        self._follows = True
        self._changed()

    def add_message(self, view: MessageView) -> None:
        """Adds a message at the end."""
        item = MessageItem(view)
        self._by_id[view.message_id] = item
        self.page.add(item)
        if view.is_user:
            self._follows = True
        self._changed()

    def remove_message(self, message_id: str) -> None:
        """Takes a message off the page; unknown ids are ignored."""
        item = self._by_id.pop(message_id, None)
        if item is None:
            return
        self.selection.clear()
        self.buttons.set_item(None)
        self.page.remove(item)
        self._changed()

    def append_text(self, message_id: str, text: str) -> None:
        """Adds streamed text; it is seen within ``REFRESH_MS``, or later if laying out is slow."""
        item = self._by_id.get(message_id)
        if item is not None:
            item.append(text)
            self._schedule()

    def update_message(self, view: MessageView) -> None:
        """New figures, status or versions of a message."""
        item = self._by_id.get(view.message_id)
        if item is None:
            return
        moves_others = item.view.divider != view.divider
        item.update(view)
        if moves_others:
            self._replace_around(item)
        if not view.is_open and item is self.items[-1]:
            # Screen readers find the newest answer here.
            self.setAccessibleDescription(item.text[:_DESCRIPTION])
        self.buttons.refresh()
        self._schedule()

    def _replace_around(self, item: MessageItem) -> None:
        """A message that may be far from the viewport changed its height."""
        bar = self.verticalScrollBar()
        anchor = self.page.anchor_at(float(bar.value()))
        self.page.place()
        if anchor is not None and not self._follows:
            self._is_settling = True
            bar.setRange(0, max(0, round(self.page.height)))
            bar.setValue(round(self.page.anchor_y(anchor)))
            self._is_settling = False

    def jump_to_latest(self) -> None:
        """Scrolls to the end and follows again."""
        self._follows = True
        self._settle()

    def show_message(self, message_id: str) -> None:
        """Scrolls a message to the top, as soon as the page is seen; unknown ids are ignored."""
        item = self._by_id.get(message_id)
        if item is None:
            return
        self._follows = False
        self._wanted = item
        if self.isVisible():
            self._show_wanted()

    def _show_wanted(self) -> None:
        item, self._wanted = self._wanted, None
        if item is None or item not in self.items:
            return
        bar = self.verticalScrollBar()
        # The second time the heights around it are exact.
        for _ in range(2):
            self._is_settling = True
            bar.setRange(0, max(0, round(self.page.height)))
            bar.setValue(math.ceil(item.top))
            self._is_settling = False
            self._settle()

    def copy_selection(self) -> str:
        """The selected text, as plain text."""
        return self.selection.text()

    # --- layout ---

    def _schedule(self) -> None:
        if not self.isVisible():
            self._stale = True
        elif not self._refresh_timer.isActive():
            self._refresh_timer.start(round(max(REFRESH_MS, _COST_SHARE * self._refresh_cost_ms)))

    def _changed(self) -> None:
        if self.isVisible():
            self._settle()
        else:
            self._stale = True

    def _on_refresh_timeout(self) -> None:
        if not self.isVisible():
            self._stale = True
            return
        started = time.perf_counter()
        self._settle()
        self._refresh_cost_ms = (time.perf_counter() - started) * 1000.0

    def _settle(self) -> None:
        """Lays out around the viewport, then brings scroll bar and buttons in line."""
        if self._is_settling:
            return
        self._is_settling = True
        self._stale = False
        view = self.viewport()
        height = float(view.height())
        bar = self.verticalScrollBar()
        y = self.page.settle(float(bar.value()), height, height * 0.5, self._follows)
        bar.setRange(0, max(0, round(self.page.height - height)))
        bar.setPageStep(max(1, view.height() - 40))
        bar.setValue(round(y))
        keep = height * _KEEP_PAGES
        self.page.release(y - keep, y + height + keep)
        self._is_settling = False
        self.jump_button.place(not self._follows and bar.value() < bar.maximum())
        self.buttons.place()
        view.update()

    def _on_scroll_bar_action(self) -> None:
        bar = self.verticalScrollBar()
        self._follows = bar.sliderPosition() >= bar.maximum() - 2

    def _on_scrolled(self) -> None:
        if not self._is_settling and self.isVisible():
            self._settle()

    def scroll_by(self, pixels: float) -> None:
        """Scrolls as the user does: up ends following, reaching the end resumes it."""
        bar = self.verticalScrollBar()
        target = min(bar.maximum(), max(0, bar.value() + round(pixels)))
        self._follows = target >= bar.maximum() - 2
        bar.setValue(target)
        self._settle()

    # --- events ---

    def wheelEvent(self, event: QWheelEvent) -> None:
        pixels = event.pixelDelta().y()
        delta = pixels if pixels else event.angleDelta().y() / 120.0 * 80.0
        if delta:
            self.scroll_by(-delta)
        event.accept()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.isVisible():
            self._resize_page()

    def _resize_page(self) -> None:
        bar = self.verticalScrollBar()
        anchor = None if self._follows else self.page.anchor_at(float(bar.value()))
        self.page.set_width(self.viewport().width())
        if anchor is not None:
            self._is_settling = True
            bar.setRange(0, max(0, round(self.page.height)))
            bar.setValue(round(self.page.anchor_y(anchor)))
            self._is_settling = False
        self._settle()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        by_keyboard = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.ShortcutFocusReason)
        if event.reason() in by_keyboard and self.items:
            # The next Tab reaches the buttons of the last message.
            self.buttons.set_item(self.items[-1])

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._resize_page()
        self._show_wanted()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._refresh_timer.stop()
        self._stale = True

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        y = self.verticalScrollBar().value()
        exposed = QRectF(event.rect())
        painter.translate(0, -y)
        self._painter.draw(
            painter, self.page, self.selection, exposed.top() + y, exposed.bottom() + y
        )
        painter.end()

    def _on_theme_changed(self, theme: Theme) -> None:
        self.page.factory = DocumentFactory(theme)
        self._painter = TranscriptPainter(theme)
        self.page.drop_documents()
        self._changed()

    def sizeHint(self) -> QSize:
        return QSize(560, 400)
