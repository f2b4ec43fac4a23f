"""Mouse and keyboard on the transcript: selecting, copying, links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPointF, Qt, QTimer
from PySide6.QtGui import (
    QContextMenuEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QMenu

from app.i18n import tr
from app.markdown_blocks import CODE
from app.markdown_inline import is_safe_link
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.painter import copy_rect
from app.widgets.transcript.selection import Position

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_AUTO_SCROLL_MS = 30


class TranscriptInput(QObject):
    """An event filter on the transcript and its viewport."""

    def __init__(self, view: Transcript) -> None:
        super().__init__(view)
        self._view = view
        self._is_dragging = False
        self._pressed_link = ""
        self._mouse = QPointF()
        self._auto_scroll = QTimer(self)
        self._auto_scroll.setInterval(_AUTO_SCROLL_MS)
        self._auto_scroll.timeout.connect(self._on_auto_scroll)
        view.viewport().installEventFilter(self)
        view.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._view:
            return self._on_view_event(event)
        if isinstance(event, QMouseEvent):
            return self._on_mouse_event(event)
        if isinstance(event, QContextMenuEvent):
            self._show_menu(event)
            return True
        if event.type() == QEvent.Type.Leave:
            self._view.buttons.leave()
        return False

    # --- places ---

    def _page_point(self, point: QPointF) -> QPointF:
        return point + QPointF(0, self._view.verticalScrollBar().value())

    def position_at(self, point: QPointF) -> Position | None:
        """The character nearest to a viewport point."""
        view, at = self._view, self._page_point(point)
        found = view.page.box_at(at.y())
        if found is None:
            return None
        item = view.page.items[found[0]]
        box = item.boxes[found[1]]
        if box.document is None:
            return Position(found[0], found[1], 0)
        local = at - QPointF(view.page.box_left(item) + box.text_x, item.top + box.y + box.text_y)
        layout = box.document.documentLayout()
        hit = layout.hitTest(local, Qt.HitTestAccuracy.FuzzyHit)
        return Position(found[0], found[1], max(0, hit))

    def _box_under(self, point: QPointF) -> tuple[BlockBox, QPointF] | None:
        """The box that holds a viewport point, with its place on the page."""
        view, at = self._view, self._page_point(point)
        found = view.page.box_at(at.y())
        if found is None:
            return None
        item = view.page.items[found[0]]
        box = item.boxes[found[1]]
        place = QPointF(view.page.box_left(item), item.top + box.y)
        inside = place.y() <= at.y() <= place.y() + box.height
        return (box, place) if inside else None

    def link_at(self, point: QPointF) -> str:
        """The address under a viewport point, or empty."""
        found = self._box_under(point)
        if found is None:
            return ""
        box, place = found
        if box.document is None:
            return ""
        local = self._page_point(point) - place - QPointF(box.text_x, box.text_y)
        url = box.document.documentLayout().anchorAt(local)
        return url if is_safe_link(url) else ""

    def code_button_at(self, point: QPointF) -> BlockBox | None:
        """The first segment of the fence whose copy button is under a viewport point."""
        found = self._box_under(point)
        if found is None or found[0].block.kind != CODE or not found[0].block.first:
            return None
        box, place = found
        return box if copy_rect(box, place).contains(self._page_point(point)) else None

    # --- mouse ---

    def _on_mouse_event(self, event: QMouseEvent) -> bool:
        kind = event.type()
        point = event.position()
        left = event.button() == Qt.MouseButton.LeftButton
        if kind == QEvent.Type.MouseButtonPress and left:
            self._press(point, event.modifiers())
        elif kind == QEvent.Type.MouseMove:
            self._move(point)
        elif kind == QEvent.Type.MouseButtonRelease and left:
            self._release(point)
        elif kind == QEvent.Type.MouseButtonDblClick and left:
            self._select_word(point)
        else:
            return False
        return True

    def _press(self, point: QPointF, modifiers: Qt.KeyboardModifier) -> None:
        self._view.setFocus(Qt.FocusReason.MouseFocusReason)
        box = self.code_button_at(point)
        if box is not None:
            self.copy_code(box)
            return
        self._pressed_link = self.link_at(point)
        position = self.position_at(point)
        selection = self._view.selection
        extends = bool(modifiers & Qt.KeyboardModifier.ShiftModifier)
        if not extends or selection.anchor is None:
            selection.anchor = position
        selection.caret = position
        self._is_dragging = True
        self._view.viewport().update()

    def _move(self, point: QPointF) -> None:
        self._mouse = point
        if self._is_dragging:
            self._extend()
            inside = 0 <= point.y() <= self._view.viewport().height()
            if inside:
                self._auto_scroll.stop()
            elif not self._auto_scroll.isActive():
                self._auto_scroll.start()
            return
        if self.link_at(point) or self.code_button_at(point) is not None:
            shape = Qt.CursorShape.PointingHandCursor
        else:
            found = self._box_under(point)
            shape = Qt.CursorShape.ArrowCursor if found is None else Qt.CursorShape.IBeamCursor
        self._view.viewport().setCursor(shape)
        self._view.buttons.hover(self._page_point(point).y())

    def _extend(self) -> None:
        position = self.position_at(self._mouse)
        if position is not None:
            self._view.selection.caret = position
            self._view.viewport().update()

    def _release(self, point: QPointF) -> None:
        self._is_dragging = False
        self._auto_scroll.stop()
        link, self._pressed_link = self._pressed_link, ""
        if link and self._view.selection.is_empty and self.link_at(point) == link:
            self._view.link_activated.emit(link)

    def _on_auto_scroll(self) -> None:
        height = self._view.viewport().height()
        y = self._mouse.y()
        self._view.scroll_by((y if y < 0 else y - height) * 0.5)
        self._extend()

    def _select_word(self, point: QPointF) -> None:
        position = self.position_at(point)
        if position is None:
            return
        box = self._view.page.items[position.message].boxes[position.box]
        if box.document is None:
            return
        cursor = QTextCursor(box.document)
        cursor.setPosition(min(position.char, box.document.characterCount() - 1))
        cursor.select(QTextCursor.SelectionType.WordUnderCursor)
        start, end = cursor.selectionStart(), cursor.selectionEnd()
        self._view.selection.anchor = Position(position.message, position.box, start)
        self._view.selection.caret = Position(position.message, position.box, end)
        self._view.viewport().update()

    # --- keyboard and menu ---

    def _on_view_event(self, event: QEvent) -> bool:
        if not isinstance(event, QKeyEvent):
            return False
        if event.type() == QEvent.Type.ShortcutOverride:
            if event.matches(QKeySequence.StandardKey.Copy):
                event.accept()
                return True
            return False
        return event.type() == QEvent.Type.KeyPress and self._on_key(event)

    def _on_key(self, event: QKeyEvent) -> bool:
        view = self._view
        bar = view.verticalScrollBar()
        steps = {
            Qt.Key.Key_Up: -bar.singleStep(),
            Qt.Key.Key_Down: bar.singleStep(),
            Qt.Key.Key_PageUp: -bar.pageStep(),
            Qt.Key.Key_PageDown: bar.pageStep(),
            Qt.Key.Key_Space: bar.pageStep(),
            Qt.Key.Key_Home: -bar.maximum(),
            Qt.Key.Key_End: bar.maximum(),
        }
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            view.selection.select_all()
            view.viewport().update()
        elif event.key() in steps and not event.modifiers():
            view.scroll_by(steps[Qt.Key(event.key())])
        else:
            return False
        return True

    def copy_selection(self) -> None:
        """Puts the selected text on the clipboard; nothing if nothing is selected."""
        text = self._view.selection.text()
        if text:
            QGuiApplication.clipboard().setText(text)

    def copy_code(self, box: BlockBox) -> None:
        """Puts a whole fence on the clipboard, given its first segment."""
        for item in self._view.page.items:
            if box in item.boxes:
                parts = []
                for other in item.boxes[item.boxes.index(box) :]:
                    parts.append(other.block.code)
                    if other.block.last:
                        break
                QGuiApplication.clipboard().setText("\n".join(parts))
                self._view.buttons.confirm(tr("Code copied"))

    def _show_menu(self, event: QContextMenuEvent) -> None:
        view = self._view
        menu = QMenu(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(tr("Copy"), self.copy_selection)
        copy.setEnabled(not view.selection.is_empty)
        y = self._page_point(QPointF(event.pos())).y()
        if view.items:
            item = view.items[view.page.index_at(y)]
            clipboard = QGuiApplication.clipboard()
            menu.addAction(tr("Copy message as Markdown"), lambda: clipboard.setText(item.text))
        menu.addAction(tr("Select all"), self._select_all)
        menu.popup(event.globalPos())

    def _select_all(self) -> None:
        self._view.selection.select_all()
        self._view.viewport().update()
