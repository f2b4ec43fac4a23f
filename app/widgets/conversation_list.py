"""The side bar's list: choosing by mouse and keyboard, several at once, dragging, editing."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import (
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QFocusEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QApplication, QListView, QWidget

from app.i18n import tr
from app.models.conversations import ConversationListModel, Row
from app.models.groups import Group
from app.theme import ThemeManager
from app.widgets.conversation_rows import ConversationDelegate

_SELECTING = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier

_COMES_BACK = (
    Qt.FocusReason.PopupFocusReason,
    Qt.FocusReason.MenuBarFocusReason,
    Qt.FocusReason.ActiveWindowFocusReason,
)
"""Why the keyboard leaves the list for a while only."""


class ConversationList(QListView):
    """No key alone takes anything away. ``drop_row``: the row that a drag is over, or −1.

    Signals:
        chosen(conversation_id): by a click or by Return.
        menu_requested(QPoint in the viewport)
    """

    chosen = Signal(str)
    menu_requested = Signal(QPoint)

    def __init__(
        self, model: ConversationListModel, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._model = model
        self._pressed_group = ""
        self._marked = ""
        self.drop_row = -1
        self.setModel(model)
        self.setItemDelegate(ConversationDelegate(themes, self, lambda: self.drop_row))
        self.setAccessibleName(tr("Conversations"))
        self.setUniformItemSizes(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setMouseTracking(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDefaultDropAction(Qt.DropAction.MoveAction)
        # The delegate frames the row instead, in the theme's colour.
        self.setDropIndicatorShown(False)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self.menu_requested)
        themes.changed.connect(self.viewport().update)

    def selected_rows(self) -> list[Row]:
        """The conversations that are selected, from top to bottom."""
        return self._model.rows(self.selectedIndexes())

    def mark(self, conversation_id: str) -> None:
        """Marks a conversation as the one in front; several that are selected stay so.

        Nothing happens while the keyboard is in the list and the same one was in front before.
        """
        index = self._model.index_of(conversation_id)
        focus = QApplication.focusWidget()
        is_used = focus is not None and (focus is self or self.isAncestorOf(focus))
        is_same = conversation_id == self._marked and self.currentIndex().isValid()
        if index.isValid():
            self._marked = conversation_id
        if not index.isValid() or index == self.currentIndex() or (is_used and is_same):
            return
        flag = QItemSelectionModel.SelectionFlag
        keeps = len(self.selectedIndexes()) > 1
        self.selectionModel().setCurrentIndex(
            index, flag.NoUpdate if keeps else flag.ClearAndSelect
        )

    def edit_entry(self, index: QModelIndex) -> None:
        """Opens a text box over a title or a folder's name."""
        if self._model.flags(index) & Qt.ItemFlag.ItemIsEditable:
            self.setFocus(Qt.FocusReason.OtherFocusReason)
            self.selectionModel().setCurrentIndex(
                index, QItemSelectionModel.SelectionFlag.ClearAndSelect
            )
            self.edit(index)

    def _toggle(self, group: Group, collapsed: bool | None = None) -> None:
        self._model.set_collapsed(
            group.key, not group.is_collapsed if collapsed is None else collapsed
        )
        self.setCurrentIndex(self._model.index_of_group(group.key))

    # --- events ---

    def mousePressEvent(self, event: QMouseEvent) -> None:
        entry = self._model.entry(self.indexAt(event.position().toPoint()))
        self._pressed_group = entry.key if isinstance(entry, Group) else ""
        super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        is_plain = not event.modifiers() & _SELECTING
        if event.button() != Qt.MouseButton.LeftButton or not is_plain:
            return
        index = self.indexAt(event.position().toPoint())
        entry = self._model.entry(index)
        if isinstance(entry, Group):
            if entry.key == self._pressed_group:
                self._toggle(entry)
        elif entry is not None and index == self.currentIndex() and not self._pressed_group:
            self.chosen.emit(entry.conversation_id)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() not in _COMES_BACK:
            # The arrow keys have been elsewhere.
            self.mark(self._marked)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        super().dragMoveEvent(event)
        index = self._drop_index(event)
        self._set_drop_row(index.row())
        # Without its own indicator the view takes every place for the space below the rows.
        if index.isValid():
            event.acceptProposedAction()
        else:
            event.ignore()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        super().dragLeaveEvent(event)
        self._set_drop_row(-1)

    def dropEvent(self, event: QDropEvent) -> None:
        index = self._drop_index(event)
        self._set_drop_row(-1)
        self.stopAutoScroll()
        self.setState(QAbstractItemView.State.NoState)
        if index.isValid():
            move = Qt.DropAction.MoveAction
            self._model.dropMimeData(event.mimeData(), move, -1, -1, index)
            event.acceptProposedAction()

    def _drop_index(self, event: QDropEvent) -> QModelIndex:
        """The row that a drop would go to; invalid if it cannot."""
        index = self.indexAt(event.position().toPoint())
        move = Qt.DropAction.MoveAction
        can_drop = self._model.canDropMimeData(event.mimeData(), move, -1, -1, index)
        return index if can_drop else QModelIndex()

    def _set_drop_row(self, row: int) -> None:
        if row != self.drop_row:
            self.drop_row = row
            self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        entry = self._model.entry(self.currentIndex())
        key = event.key()
        if self.state() == QAbstractItemView.State.EditingState:
            # A text box passes on the Return that ends it.
            super().keyPressEvent(event)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if isinstance(entry, Group):
                self._toggle(entry)
            elif entry is not None:
                self.chosen.emit(entry.conversation_id)
        elif isinstance(entry, Group) and key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._toggle(entry, key == Qt.Key.Key_Left)
        elif isinstance(entry, Row) and key == Qt.Key.Key_Left:
            heading = self._model.index_of_group(entry.group)
            if heading.isValid():
                self.setCurrentIndex(heading)
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.selectAll()
        elif event.text() and not event.text().isprintable():
            # Backspace, Delete and their like mean nothing here.
            event.ignore()
        else:
            super().keyPressEvent(event)


def has_keyboard(view: QAbstractItemView) -> bool:
    """True if the keyboard is in the list, not in a text box over it."""
    return QApplication.focusWidget() is view
