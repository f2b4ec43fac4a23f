"""Mouse and keyboard on the transcript: selecting, copying, links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPointF, Qt, QTimer
from PySide6.QtGui import (
    QClipboard,
    QContextMenuEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
)
from PySide6.QtWidgets import QMenu

from app.i18n import tr
from app.markdown_blocks import CODE
from app.markdown_inline import is_safe_link
from app.widgets.transcript.boxes import BlockBox
from app.widgets.transcript.clicks import Clicks
from app.widgets.transcript.copying import copy_markdown, message_markdown, mime_data
from app.widgets.transcript.painter import copy_rect, footer_rect
from app.widgets.transcript.selection import Position, position_of

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_AUTO_SCROLL_MS = 30


class TranscriptInput(QObject):
    """An event filter on the transcript and its viewport."""

    def __init__(self, view: Transcript) -> None:
        super().__init__(view)
        self._view = view
        self._is_dragging = False
        self._clicks = Clicks()
        self._pressed_link = ""
        self._pressed_figures = ""
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
        item, box = found
        if box.document is None:
            return position_of(item, box, 0)
        local = at - QPointF(view.page.box_left(item) + box.text_x, item.top + box.y + box.text_y)
        layout = box.document.documentLayout()
        hit = layout.hitTest(local, Qt.HitTestAccuracy.FuzzyHit)
        return position_of(item, box, max(0, hit))

    def _box_under(self, point: QPointF) -> tuple[BlockBox, QPointF] | None:
        """The box that holds a viewport point, with its place on the page."""
        view, at = self._view, self._page_point(point)
        found = view.page.box_at(at.y())
        if found is None:
            return None
        item, box = found
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

    def figures_at(self, point: QPointF) -> str:
        """The id of the answer whose line of figures is under a viewport point, or empty."""
        view, at = self._view, self._page_point(point)
        if not view.items:
            return ""
        item = view.items[view.page.index_at(at.y())]
        if item.view.is_user or item.view.is_open or not item.view.footer:
            return ""
        return item.view.message_id if footer_rect(view.page, item).contains(at) else ""

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
            self._press_again(point)
        else:
            return False
        return True

    def _press(self, point: QPointF, modifiers: Qt.KeyboardModifier) -> None:
        self._view.setFocus(Qt.FocusReason.MouseFocusReason)
        self._view.keys.leave()
        box = self.code_button_at(point)
        if box is not None:
            self.copy_code(box)
            return
        self._pressed_link = self.link_at(point)
        self._pressed_figures = self.figures_at(point)
        self._clicks.press(point)
        position = self.position_at(point)
        selection = self._view.selection
        extends = bool(modifiers & Qt.KeyboardModifier.ShiftModifier)
        if not extends or selection.anchor is None:
            selection.anchor = position
        selection.caret = position
        self._is_dragging, self._mouse = True, point
        if not extends:
            self._extend()
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
        is_button = self.code_button_at(point) is not None or self.figures_at(point)
        if self.link_at(point) or is_button:
            shape = Qt.CursorShape.PointingHandCursor
        else:
            found = self._box_under(point)
            shape = Qt.CursorShape.ArrowCursor if found is None else Qt.CursorShape.IBeamCursor
        self._view.viewport().setCursor(shape)
        self._view.buttons.hover(self._page_point(point).y())

    def _extend(self) -> None:
        position = self.position_at(self._mouse)
        found = self._view.page.box_at(self._page_point(self._mouse).y())
        if position is None or found is None:
            return
        selection = self._view.selection
        whole = self._clicks.selected(*found, position)
        selection.anchor, selection.caret = whole or (selection.anchor, position)
        self._view.viewport().update()

    def _release(self, point: QPointF) -> None:
        self._is_dragging = False
        self._auto_scroll.stop()
        self._offer_selection()
        link, self._pressed_link = self._pressed_link, ""
        if link and self._view.selection.is_empty and self.link_at(point) == link:
            self._view.link_activated.emit(link)
        figures, self._pressed_figures = self._pressed_figures, ""
        if figures and self._view.selection.is_empty and self.figures_at(point) == figures:
            self._view.action_requested.emit("message_facts", figures)

    def _on_auto_scroll(self) -> None:
        height = self._view.viewport().height()
        y = self._mouse.y()
        self._view.scroll_by((y if y < 0 else y - height) * 0.5)
        self._extend()

    def _press_again(self, point: QPointF) -> None:
        self._clicks.press_again(point)
        self._is_dragging, self._mouse = True, point
        self._extend()

    # --- keyboard and menu ---

    def _on_view_event(self, event: QEvent) -> bool:
        if isinstance(event, QContextMenuEvent):
            # By the keyboard: the mouse's comes to the viewport.
            self._view.acting.open_menu()
            return True
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
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            view.selection.select_all()
            view.viewport().update()
        else:
            return view.keys.press(event)
        return True

    def copy_selection(self) -> None:
        """Puts what is selected on the clipboard, in every form; nothing if nothing is."""
        if not self._view.selection.is_empty:
            QGuiApplication.clipboard().setMimeData(mime_data(self._view.selection))

    def _offer_selection(self) -> None:
        """Where the middle button pastes what is selected."""
        clipboard, selection = QGuiApplication.clipboard(), self._view.selection
        if clipboard.supportsSelection() and not selection.is_empty:
            clipboard.setText(selection.text(), QClipboard.Mode.Selection)

    def copy_code(self, box: BlockBox) -> None:
        """Puts a whole fence on the clipboard, given its first segment."""
        view = self._view
        item = next((i for i in view.page.items if box.section in i.sections), None)
        if item is None:
            return
        parts = []
        # The fence may go on in sections that nobody has seen yet.
        for other in item.boxes_from(box, view.page.column, view.page.factory):
            parts.append(other.block.code)
            if other.block.last:
                break
        QGuiApplication.clipboard().setText("\n".join(parts))
        view.buttons.confirm(tr("Code copied"))

    def _show_menu(self, event: QContextMenuEvent) -> None:
        view = self._view
        menu = QMenu(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(tr("Copy"), self.copy_selection)
        as_markdown = menu.addAction(tr("Copy as Markdown"), lambda: copy_markdown(view))
        for action in (copy, as_markdown):
            action.setEnabled(not view.selection.is_empty)
        y = self._page_point(QPointF(event.pos())).y()
        if view.items:
            item = view.items[view.page.index_at(y)]
            clipboard = QGuiApplication.clipboard()
            source = message_markdown(item)
            menu.addAction(tr("Copy message as Markdown"), lambda: clipboard.setText(source))
        menu.addAction(tr("Select all"), self._select_all)
        if view.items:
            menu.addSeparator()
            view.buttons.set_item(item)
            view.menu_opened.emit(menu, item.view.message_id)
        menu.popup(event.globalPos())

    def _select_all(self) -> None:
        self._view.selection.select_all()
        self._view.viewport().update()
