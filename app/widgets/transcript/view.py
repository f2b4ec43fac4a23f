"""The scroll area: streams into the last block, follows only while the user is at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

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
from app.theme import ThemeManager
from app.widgets.transcript import access
from app.widgets.transcript.acting import Acting
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.content import Content
from app.widgets.transcript.documents import DocumentFactory
from app.widgets.transcript.keyboard import TranscriptKeys
from app.widgets.transcript.lit import Lit
from app.widgets.transcript.message import MessageItem, MessageView
from app.widgets.transcript.mouse import TranscriptInput
from app.widgets.transcript.overlay import JumpButton, MessageButtons
from app.widgets.transcript.page import Anchor, Page
from app.widgets.transcript.painter import TranscriptPainter
from app.widgets.transcript.scroll import Scroll
from app.widgets.transcript.selection import Selection
from app.widgets.transcript.view_state import ViewState, state_of

REFRESH_MS = 50
_COST_SHARE = 8


class Transcript(QAbstractScrollArea):
    """Messages of one conversation.

    Signals:
        link_activated(url): the user clicked a link; nothing is opened here.
        action_requested(action_id, message_id): one of the registry's actions, for this message.
        menu_opened(QMenu, message_id): for entries about a message.
        message_pointed(message_id): mouse or keyboard are on this one; empty for none.
        edit_saved(message_id, text); edit_cancelled(message_id, text): by the user, who wrote it;
        edit_dropped(text): its message is no longer shown.
        files_dropped(paths), picture_pasted(): into an edit, which takes text alone.
    """

    link_activated = Signal(str)
    action_requested = Signal(str, str)
    menu_opened = Signal(object, str)
    message_pointed = Signal(str)
    edit_saved = Signal(str, str)
    edit_cancelled = Signal(str, str)
    edit_dropped = Signal(str)
    files_dropped = Signal(object)
    picture_pasted = Signal()

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("transcript")
        self.setAccessibleName(tr("Transcript"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setMouseTracking(True)
        self.content = Content(self, themes)
        self.page = Page(self.content.factory())
        self.selection = Selection(self.page)
        self.lit = Lit()
        self._painter = self.content.painter()
        self._by_id: dict[str, MessageItem] = {}
        self._scroll = Scroll(self, self.page)
        self._refresh_cost_ms = 0.0
        self._refresh_timer = QTimer(self)
        self._refresh_timer.setSingleShot(True)
        self._refresh_timer.timeout.connect(self._on_refresh_timeout)
        self.buttons = MessageButtons(self, themes)
        self.jump_button = JumpButton(self, themes)
        self.jump_button.clicked.connect(self.jump_to_latest)
        self.acting = Acting(self)
        self.keys = TranscriptKeys(self)
        self.access: object = None
        access.install()
        self._input = TranscriptInput(self)
        self.verticalScrollBar().setSingleStep(40)
        self.verticalScrollBar().actionTriggered.connect(self._on_scroll_bar_action)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)

    # --- content ---

    @property
    def items(self) -> list[MessageItem]:
        return self.page.items

    @property
    def follows(self) -> bool:
        """True while new text scrolls the view; the user's scrolling up ends it."""
        return self._scroll.follows

    def item(self, message_id: str) -> MessageItem | None:
        return self._by_id.get(message_id)

    def light(self, words: Mapping[str, str]) -> None:
        """Lights these words, by message id; those of messages elsewhere are ignored."""
        if self.lit.set({i: text for i, text in words.items() if i in self._by_id}):
            self.viewport().update()

    def set_messages(self, views: list[MessageView]) -> None:
        """Shows another branch: what was read stays if it is there too, else the end is shown."""
        place = self._place()
        self.selection.clear()
        self.buttons.set_item(None)
        self.page.clear()
        self._by_id = {}
        for view in views:
            item = self.content.take(MessageItem(view))
            item.estimate(self.page.column, self.page.factory)
            self.page.items.append(item)
            self._by_id[view.message_id] = item
        self.page.place()
        self._scroll.follow()
        if place is not None and place.item.index < len(self.items):
            same = self._by_id.get(place.item.view.message_id)
            there = self.items[place.item.index]
            self._scroll.want(Anchor(there) if same is None else replace(place, item=same))
        self.acting.keep_editor()
        self.content.finder.content_changed(is_other=True)
        self._changed()

    def add_message(self, view: MessageView) -> None:
        """Adds a message at the end."""
        item = self.content.take(MessageItem(view))
        self._by_id[view.message_id] = item
        self.page.add(item)
        if view.is_user:
            self._scroll.follow()
        self.content.finder.content_changed(is_other=True)
        self._changed()

    def remove_message(self, message_id: str) -> None:
        """Takes a message off the page; unknown ids are ignored."""
        item = self._by_id.pop(message_id, None)
        if item is None:
            return
        self.selection.clear()
        self.buttons.set_item(None)
        self.page.remove(item)
        self.acting.keep_editor()
        self.content.finder.content_changed(is_other=True)
        self._changed()

    def append_text(self, message_id: str, text: str) -> None:
        """Adds streamed text; it is seen within ``REFRESH_MS``, or later if laying out is slow."""
        item = self._by_id.get(message_id)
        if item is not None:
            item.append(text)
            self.content.finder.content_changed()
            self._schedule()

    def update_message(self, view: MessageView) -> None:
        """New figures, status or versions of a message."""
        item = self._by_id.get(view.message_id)
        if item is None:
            return
        place, moves_others = self._place(), item.view.divider != view.divider
        was_open = item.view.is_open
        item.update(view)
        if moves_others:
            # It may be far from the viewport, where nothing else would notice its new height.
            self.page.place()
            self._settle_at(place)
        if was_open and not view.is_open:
            access.tell_finished(self, item)
        self.buttons.refresh()
        self._schedule()

    def jump_to_latest(self) -> None:
        """Scrolls to the end and follows again."""
        self._scroll.follow()
        self._settle()

    def show_message(self, message_id: str) -> None:
        """Scrolls a message to the top, as soon as the page is seen; unknown ids are ignored."""
        item = self._by_id.get(message_id)
        if item is not None:
            self.go_to(Anchor(item))

    def go_to(self, place: Anchor) -> None:
        """Scrolls a place to the top, as soon as the page is seen."""
        self._scroll.want(place)
        self._changed()

    def room_changed(self, item: MessageItem) -> None:
        """What lies over a message needs more or less room."""
        place = self._place()
        item.place()
        self.page.place()
        self._settle_at(place)

    def view_state(self) -> ViewState:
        """Where the view is and what is selected, for ``restore_view_state``."""
        state = state_of(self.selection, self._place(), self.follows)
        return replace(state, folds=self.content.folds)

    def restore_view_state(self, state: ViewState) -> None:
        """Shows the same as another transcript of these messages did, as soon as it is seen."""
        self.content.fold_as(state.folds)
        if state.selected is not None and len(self.items) > max(p.message for p in state.selected):
            self.selection.anchor, self.selection.caret = state.selected
        place = state.place
        item = None if place is None else self._by_id.get(place.item.view.message_id)
        if place is not None and item is not None:
            self._scroll.want(replace(place, item=item))
            self._changed()

    def copy_code(self, box: BlockBox) -> None:
        """Puts a whole fence on the clipboard, given its first segment."""
        self._input.copy_code(box)

    def copy_selection(self) -> str:
        """The selected text, as plain text."""
        return self.selection.text()

    # --- layout ---

    def _schedule(self) -> None:
        if self.isVisible() and not self._refresh_timer.isActive():
            self._refresh_timer.start(round(max(REFRESH_MS, _COST_SHARE * self._refresh_cost_ms)))

    def _changed(self) -> None:
        if self.isVisible():
            self._settle()

    def _on_refresh_timeout(self) -> None:
        if not self.isVisible():
            return
        started = time.perf_counter()
        self._settle()
        self._refresh_cost_ms = (time.perf_counter() - started) * 1000.0

    def _settle(self) -> None:
        self._settle_at(None)

    def _settle_at(self, place: Anchor | None) -> None:
        """Lays out around the viewport, then brings the buttons in line."""
        if self._scroll.is_settling or not self.isVisible():
            return
        self._scroll.settle(place)
        if self.page.is_behind:
            self._schedule()
        self.jump_button.place(not self.follows and not self._scroll.is_at_end)
        self.buttons.place()
        self.acting.place()
        self.content.place()

    def _place(self) -> Anchor | None:
        """What is read; None while the end is followed."""
        return None if self.follows else self._scroll.place()

    def _on_scroll_bar_action(self) -> None:
        self._scroll.user_moved()

    def _on_scrolled(self) -> None:
        if not self._scroll.is_settling:
            self._settle()

    def scroll_by(self, pixels: float) -> None:
        """Scrolls as the user does: up ends following, reaching the end resumes it."""
        self._scroll.move_by(pixels)
        self._settle()

    # --- events ---

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.content.zoom_by_wheel(event.angleDelta().y())
            event.accept()
            return
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
        place = self._place()
        self.page.set_width(self.viewport().width())
        self._settle_at(place)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.keys.focus_in(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._resize_page()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._refresh_timer.stop()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        y = self.verticalScrollBar().value()
        exposed = QRectF(event.rect())
        painter.translate(0, -y)
        self._painter.current = self.keys.current if self.hasFocus() else None
        self._painter.draw(
            painter, self.page, self.selection, self.lit, exposed.top() + y, exposed.bottom() + y
        )
        painter.end()

    def restyle(self, factory: DocumentFactory, painter: TranscriptPainter) -> None:
        """Other colours or fonts; what is read stays where it is."""
        place = self._place()
        has_other_fonts = factory.fonts != self.page.factory.fonts
        self.page.factory, self._painter = factory, painter
        self.page.drop_documents()
        if has_other_fonts:
            self.page.reestimate()
        self._settle_at(place)

    def refresh_boxes(self, is_meant: Callable[[BlockBox], bool]) -> None:
        """Makes documents anew where ``is_meant``; what is read stays where it is."""
        place = self._place()
        if self.page.drop_some(is_meant):
            self._settle_at(place)

    def sizeHint(self) -> QSize:
        return QSize(560, 400)
