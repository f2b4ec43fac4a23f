"""The tabs: swatch with number, title, activity, close button; renamed in place."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QTabBar, QWidget

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton, plain_tip
from app.widgets.swatch import Activity, activity_words, mark_pixmap, mark_size


class RenameEdit(QLineEdit):
    """A text box over a tab. ``finished(text)``; Esc finishes with the old text."""

    finished = Signal(str)

    def __init__(self, title: str, parent: QWidget) -> None:
        super().__init__(title, parent)
        self._old = title
        self._is_done = False
        self.setAccessibleName(tr("Conversation title"))
        self.selectAll()
        self.editingFinished.connect(lambda: self._finish(self.text()))

    def event(self, event: QEvent) -> bool:
        # Esc would otherwise be the window's Stop.
        if isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            if event.type() == QEvent.Type.ShortcutOverride:
                event.accept()
            elif event.type() == QEvent.Type.KeyPress:
                self._finish(self._old)
            return True
        return super().event(event)

    def _finish(self, text: str) -> None:
        if not self._is_done:
            self._is_done = True
            self.finished.emit(text)


class ConversationTabs(QTabBar):
    """One tab a conversation; the id is the tab's data.

    Signals:
        rename_finished(conversation_id, title), close_requested(conversation_id)
        order_changed(list of ids)
        menu_opened(QMenu, conversation_id): its owner adds what a tab's menu offers.
    """

    rename_finished = Signal(str, str)
    close_requested = Signal(str)
    order_changed = Signal(list)
    menu_opened = Signal(object, str)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversation_tabs")
        self.setAccessibleName(tr("Conversations"))
        self._themes = themes
        self._marks: dict[str, tuple[int, Activity, str]] = {}
        self._editor: RenameEdit | None = None
        self.setMovable(True)
        self.setExpanding(False)
        self.setDrawBase(False)
        self.setElideMode(Qt.TextElideMode.ElideRight)
        self.setUsesScrollButtons(True)
        self.setIconSize(mark_size())
        self.setSelectionBehaviorOnRemove(QTabBar.SelectionBehavior.SelectPreviousTab)
        self.tabMoved.connect(lambda _f, _t: self.order_changed.emit(self.ids()))
        self.tabBarDoubleClicked.connect(self._on_double_clicked)
        themes.changed.connect(self._update_marks)

    def ids(self) -> list[str]:
        """Conversation ids from left to right."""
        return [str(self.tabData(index)) for index in range(self.count())]

    def index_of(self, conversation_id: str) -> int:
        """Index of a conversation's tab, or −1."""
        ids = self.ids()
        return ids.index(conversation_id) if conversation_id in ids else -1

    def current_id(self) -> str:
        """The conversation in front, or empty."""
        return str(self.tabData(self.currentIndex())) if self.count() else ""

    def add(self, conversation_id: str) -> None:
        """Adds a tab at the end; ``set_mark`` gives it a face."""
        # The first tab becomes current before it has its data.
        blocked = self.blockSignals(True)
        index = self.addTab("")
        self.setTabData(index, conversation_id)
        self.blockSignals(blocked)
        close = IconButton(self._themes, "close", tr("Close tab"), self, "muted")
        close.setIconSize(QSize(12, 12))
        close.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        close.clicked.connect(lambda: self.close_requested.emit(conversation_id))
        self.setTabButton(index, QTabBar.ButtonPosition.RightSide, close)

    def remove(self, conversation_id: str) -> None:
        """Takes a tab away."""
        index = self.index_of(conversation_id)
        if index >= 0:
            self._drop_editor()
            self._marks.pop(conversation_id, None)
            self.removeTab(index)

    def move_current(self, by: int) -> None:
        """Moves the tab in front ``by`` places; at an end it stays."""
        index = self.currentIndex()
        if 0 <= index + by < self.count():
            self.moveTab(index, index + by)

    def set_mark(self, conversation_id: str, number: int, title: str, activity: Activity) -> None:
        """Number, title and activity of a tab; nothing happens if they are the same."""
        mark = (number, activity, title)
        if self._marks.get(conversation_id) != mark:
            self._marks[conversation_id] = mark
            self._show_mark(conversation_id)

    def number_of(self, index: int) -> int:
        """Number of the conversation of a tab."""
        return self._marks[str(self.tabData(index))][0]

    def start_rename(self, conversation_id: str) -> None:
        """Opens a text box over the tab."""
        index = self.index_of(conversation_id)
        if index < 0:
            return
        self._drop_editor()
        _number, _activity, title = self._marks[conversation_id]
        editor = RenameEdit(title, self)
        editor.setGeometry(self.tabRect(index).adjusted(2, 2, -2, -2))
        editor.finished.connect(lambda text: self._on_renamed(conversation_id, text))
        self._editor = editor
        editor.show()
        editor.setFocus()

    @property
    def editor(self) -> RenameEdit | None:
        """The open text box of a rename."""
        return self._editor

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.MiddleButton:
            index = self.tabAt(event.position().toPoint())
            if index >= 0:
                self.close_requested.emit(str(self.tabData(index)))
        super().mouseReleaseEvent(event)

    def show_menu(self, point: QPoint) -> None:
        """The menu of the tab at ``point``."""
        index = self.tabAt(point)
        if index < 0:
            return
        chosen = str(self.tabData(index))
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Rename"), lambda: self.start_rename(chosen))
        self.menu_opened.emit(menu, chosen)
        menu.popup(self.mapToGlobal(point))

    def _show_mark(self, conversation_id: str) -> None:
        index = self.index_of(conversation_id)
        if index < 0:
            return
        number, activity, title = self._marks[conversation_id]
        pixmap = mark_pixmap(self._themes.theme, number, activity, self.devicePixelRatioF())
        self.setTabIcon(index, QIcon(pixmap))
        # A single ampersand would become a shortcut.
        self.setTabText(index, title.replace("&", "&&"))
        state = activity_words(activity)
        name = f"{number}: {title}, {state}" if state else f"{number}: {title}"
        self.setAccessibleTabName(index, name)
        self.setTabToolTip(index, plain_tip(name))

    def _update_marks(self) -> None:
        for conversation_id in self._marks:
            self._show_mark(conversation_id)

    def _on_double_clicked(self, index: int) -> None:
        if index >= 0:
            self.start_rename(str(self.tabData(index)))

    def _on_renamed(self, conversation_id: str, text: str) -> None:
        self._drop_editor()
        if text != self._marks.get(conversation_id, (0, Activity.IDLE, ""))[2]:
            self.rename_finished.emit(conversation_id, text)

    def _drop_editor(self) -> None:
        editor, self._editor = self._editor, None
        if editor is not None:
            editor.hide()
            editor.deleteLater()
