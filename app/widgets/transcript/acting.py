"""The message that keyboard and menus act on, and the one that is being edited."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtWidgets import QApplication, QMenu

from app.widgets.text_edits import written_text
from app.widgets.transcript.editor import MessageEditor
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.page import MESSAGE_GAP, Anchor

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript


class Acting(QObject):
    """Part of a transcript.

    ``edit_changed()``: what is written into the text box, or whether there is one.
    """

    edit_changed = Signal()

    def __init__(self, view: Transcript) -> None:
        super().__init__(view)
        self._view = view
        self.editor: MessageEditor | None = None

    @property
    def current(self) -> MessageItem | None:
        """With the keyboard on the transcript the message whose buttons are shown, else the last.

        Where the mouse happens to be means nothing to a key that is pressed elsewhere.
        """
        view, focused = self._view, QApplication.focusWidget()
        if focused is not None and (focused is view or view.isAncestorOf(focused)):
            item = view.buttons.item
            if item is not None:
                return item
        return view.items[-1] if view.items else None

    def step(self, by: int) -> None:
        """Makes the message ``by`` places further down the current one, and shows it."""
        view, item = self._view, self._view.buttons.item
        if not view.items:
            return
        last = len(view.items) - 1
        index = last if item is None else min(max(item.index + by, 0), last)
        self.show(view.items[index])

    def show(self, item: MessageItem) -> None:
        """Makes a message the current one and scrolls as far as it takes to see its end, or as much
        from its top as there is room for.
        """
        view = self._view
        view.setFocus(Qt.FocusReason.OtherFocusReason)
        top = float(view.verticalScrollBar().value())
        bottom = top + view.viewport().height()
        if item.top < top:
            view.go_to(Anchor(item, rest=-MESSAGE_GAP))
        elif item.top + item.height > bottom:
            view.scroll_by(min(item.top - MESSAGE_GAP - top, item.top + item.height - bottom))
        view.keys.reach(item)

    # --- menu ---

    def open_menu(self, item: MessageItem | None = None, at: QPoint | None = None) -> QMenu | None:
        """The menu of a message, by default of the current one, below its buttons."""
        item = item or self.current
        if item is None:
            return None
        view = self._view
        view.buttons.set_item(item)
        menu = QMenu(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        view.menu_opened.emit(menu, item.view.message_id)
        if menu.isEmpty():
            menu.deleteLater()
            return None
        menu.popup(view.buttons.menu_place() if at is None else at)
        return menu

    # --- editing ---

    def edit(self, message_id: str) -> None:
        """Opens a text box over a message; one that is open already stays as it is."""
        item = self._view.item(message_id)
        if item is None or (self.editor is not None and self.editor.item is item):
            return
        editor = self._open_editor(item)
        self.show(item)
        self._view.buttons.refresh()
        editor.edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def restore_edit(self, message_id: str, text: str) -> None:
        """Opens a text box with what was written into it before; the keyboard stays elsewhere."""
        item = self._view.item(message_id)
        if item is not None:
            self._open_editor(item).edit.setPlainText(text)

    def _open_editor(self, item: MessageItem) -> MessageEditor:
        self._put_aside()
        editor = MessageEditor(self._view, item)
        editor.saved.connect(self._on_editor_saved)
        editor.closed.connect(self._on_editor_cancelled)
        editor.changed.connect(self.edit_changed)
        self.editor = editor
        self._view.buttons.set_item(None)
        editor.fit()
        editor.show()
        return editor

    def close_editor(self) -> str:
        """Takes the text box away. Returns what was written into it and not saved."""
        editor, self.editor = self.editor, None
        if editor is None:
            return ""
        unsaved = written_text(editor.edit) if editor.is_changed else ""
        editor.item.room = 0.0
        editor.hide()
        editor.deleteLater()
        if editor.item in self._view.items:
            self._view.room_changed(editor.item)
        self.edit_changed.emit()
        return unsaved

    def keep_editor(self) -> None:
        """Another branch is shown: the text box goes along with its message.

        Where that is gone, ``edit_dropped`` tells what was written.
        """
        if self.editor is None:
            return
        item = self._view.item(self.editor.item.view.message_id)
        if item is None:
            unsaved = self.close_editor()
            if unsaved:
                self._view.edit_dropped.emit(unsaved)
        elif item is not self.editor.item:
            self.editor.item = item
            self.editor.fit()

    def place(self) -> None:
        """The page has moved."""
        if self.editor is not None:
            self.editor.place()

    def _on_editor_saved(self, message_id: str, text: str) -> None:
        # First: with the branch that is shown next, an open text box would be dropped.
        self._end_editing(self.close_editor)
        self._view.edit_saved.emit(message_id, text)

    def _on_editor_cancelled(self) -> None:
        self._end_editing(self._put_aside)

    def _put_aside(self) -> None:
        """Takes the text box away; ``edit_cancelled`` tells what was written and not saved."""
        item = None if self.editor is None else self.editor.item
        unsaved = self.close_editor()
        if item is not None and unsaved:
            self._view.edit_cancelled.emit(item.view.message_id, unsaved)

    def _end_editing(self, close: Callable[[], object]) -> None:
        """The keyboard goes back to the transcript."""
        item = None if self.editor is None else self.editor.item
        close()
        if item is not None and item in self._view.items:
            self._view.buttons.set_item(item)
        self._view.setFocus(Qt.FocusReason.OtherFocusReason)
