"""Buttons that float over the transcript: those of the hovered message, and the way back down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.transcript.copying import message_markdown
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.painter import footer_rect

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_CONFIRM_MS = 1500


class MessageButtons(QWidget):
    """What can be done with a message, and the version pager; for one message at a time.

    Pressing one emits the view's ``action_requested`` with the id of an action; but it copies.
    """

    def __init__(self, view: Transcript, themes: ThemeManager) -> None:
        super().__init__(view.viewport())
        self._view = view
        self._themes = themes
        self._item: MessageItem | None = None
        self._by_action: dict[str, QToolButton] = {}
        self.setObjectName("message_buttons")
        # Opaque: on a narrow window it lies over the line of figures.
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 0, 0, 0)
        layout.setSpacing(2)
        self._note = QLabel()
        self._note.setTextFormat(Qt.TextFormat.PlainText)
        self._note.setProperty("tone", "muted")
        layout.addWidget(self._note)
        self.previous = self._button("previous_version", "left", tr("Previous version"))
        self._pager = QLabel()
        self._pager.setProperty("tone", "muted")
        layout.addWidget(self._pager)
        self.next = self._button("next_version", "right", tr("Next version"))
        self.stop = self._button("stop_message", "stop", tr("Stop answer"))
        self.go_on = self._button("continue_answer", "play", tr("Continue answer"))
        self.edit = self._button("edit_message", "edit", tr("Edit message"))
        self.copy = self._button("copy_message", "copy", tr("Copy message"))
        self.regenerate = self._button("regenerate", "refresh", tr("Regenerate answer"))
        self.fork = self._button("fork_message", "fork", tr("Fork from here into a new tab"))
        self.more = self._button("message_menu", "menu", tr("More about this message"))
        self._note_timer = QTimer(self)
        self._note_timer.setSingleShot(True)
        self._note_timer.timeout.connect(self._clear_note)
        themes.changed.connect(self._set_icons)
        self._set_icons()
        self.hide()

    @property
    def item(self) -> MessageItem | None:
        """The message that the buttons act on."""
        return self._item

    def hover(self, page_y: float) -> None:
        """The mouse is at this height of the page."""
        items = self._view.items
        if items:
            self.set_item(items[self._view.page.index_at(page_y)])

    def leave(self) -> None:
        """The mouse left the transcript."""
        if not self.underMouse():
            self.set_item(None)

    def set_item(self, item: MessageItem | None) -> None:
        """Shows the buttons for a message; None hides them."""
        if item is not self._item:
            self._item = item
            self._clear_note()
            self._view.message_pointed.emit("" if item is None else item.view.message_id)
        self.refresh()

    def refresh(self) -> None:
        """The message changed: fits the buttons to it."""
        item = self._item
        if item is None or not item.view.offers or item.room:
            self.hide()
            return
        view = item.view
        for action_id, button in self._by_action.items():
            button.setVisible(action_id in view.offers)
        has_versions = view.num_versions > 1 and not view.is_open
        for widget in (self.previous, self._pager, self.next):
            widget.setVisible(has_versions)
        self._pager.setText(f"{view.version}/{view.num_versions}")
        self.previous.setEnabled(view.version > 1)
        self.next.setEnabled(view.version < view.num_versions)
        self.place()
        self.show()

    def place(self) -> None:
        """Moves to the message's line of figures."""
        if self._item is None:
            return
        rect = footer_rect(self._view.page, self._item)
        size = self.sizeHint()
        scroll = self._view.verticalScrollBar().value()
        x = round(rect.right()) - size.width()
        y = round(rect.center().y() - size.height() / 2.0) - scroll
        self.setGeometry(x, y, size.width(), size.height())

    def menu_place(self) -> QPoint:
        """Where the menu of the message opens, on the screen: below its button, or where the
        message leaves the viewport.
        """
        viewport = self._view.viewport()
        point = self.mapTo(viewport, self.more.geometry().bottomLeft())
        y = min(max(point.y(), 0), viewport.height() - 1)
        return viewport.mapToGlobal(QPoint(point.x(), y))

    def confirm(self, text: str) -> None:
        """Says for a moment that something was done."""
        self._note.setText(text)
        self._note_timer.start(_CONFIRM_MS)
        self.place()

    def _clear_note(self) -> None:
        self._note.setText("")
        self.place()

    def _button(self, action_id: str, icon: str, name: str) -> QToolButton:
        button = QToolButton(self)
        button.setProperty("icon_name", icon)
        button.setToolTip(name)
        button.setAccessibleName(name)
        button.setIconSize(QSize(16, 16))
        button.clicked.connect(lambda: self._on_clicked(action_id))
        layout = self.layout()
        assert layout is not None
        layout.addWidget(button)
        self._by_action[action_id] = button
        return button

    def _set_icons(self) -> None:
        for button in self._by_action.values():
            icon = self._themes.theme.icon(str(button.property("icon_name")), "muted")
            button.setIcon(icon)

    def _on_clicked(self, action_id: str) -> None:
        if self._item is None:
            return
        if action_id == "copy_message":
            QGuiApplication.clipboard().setText(message_markdown(self._item))
            self.confirm(tr("Copied"))
        else:
            self._view.action_requested.emit(action_id, self._item.view.message_id)


class JumpButton(QToolButton):
    """Appears while the user reads further up; goes to the end."""

    def __init__(self, view: Transcript, themes: ThemeManager) -> None:
        super().__init__(view.viewport())
        self._view = view
        self._themes = themes
        self.setProperty("kind", "floating")
        self.setText(tr("Jump to latest"))
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setIconSize(QSize(16, 16))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        themes.changed.connect(self._set_icon)
        self._set_icon()
        self.hide()

    def place(self, is_wanted: bool) -> None:
        """Bottom centre of the viewport, if wanted."""
        if is_wanted:
            area = self._view.viewport().size()
            size = self.sizeHint()
            at = QPoint((area.width() - size.width()) // 2, area.height() - size.height() - 12)
            self.setGeometry(at.x(), at.y(), size.width(), size.height())
        self.setVisible(is_wanted)

    def event(self, event: QEvent) -> bool:
        # The viewport below shows a text cursor, which does not belong on a button.
        if event.type() == QEvent.Type.Enter:
            self.raise_()
        return super().event(event)

    def _set_icon(self) -> None:
        self.setIcon(self._themes.theme.icon("down"))
