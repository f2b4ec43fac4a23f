"""Buttons that float over the transcript: those of the hovered message, and the way back down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.transcript.message import MessageItem
from app.widgets.transcript.painter import footer_rect

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_CONFIRM_MS = 1500


class MessageButtons(QWidget):
    """Copy, regenerate, fork and the version pager; shown for one message at a time."""

    def __init__(self, view: Transcript, themes: ThemeManager) -> None:
        super().__init__(view.viewport())
        self._view = view
        self._themes = themes
        self._item: MessageItem | None = None
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
        self.previous = self._button("left", tr("Previous version"), lambda: self._version(-1))
        self._pager = QLabel()
        self._pager.setProperty("tone", "muted")
        layout.addWidget(self._pager)
        self.next = self._button("right", tr("Next version"), lambda: self._version(1))
        self.copy = self._button("copy", tr("Copy message"), self._on_copy)
        self.regenerate = self._button("refresh", tr("Regenerate answer"), self._on_regenerate)
        self.fork = self._button("fork", tr("Fork from here into a new tab"), self._on_fork)
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
        """The mouse left the transcript; the last answer keeps its buttons."""
        if not self.underMouse():
            self.set_item(None)

    def set_item(self, item: MessageItem | None) -> None:
        """Shows the buttons for a message; None hides them."""
        if item is not self._item:
            self._item = item
            self._clear_note()
        self.refresh()

    def refresh(self) -> None:
        """The message changed: fits the buttons to it."""
        item = self._item
        if item is None or item.view.is_open:
            self.hide()
            return
        view = item.view
        has_versions = view.num_versions > 1
        for widget in (self.previous, self._pager, self.next):
            widget.setVisible(has_versions)
        self._pager.setText(f"{view.version}/{view.num_versions}")
        self.previous.setEnabled(view.version > 1)
        self.next.setEnabled(view.version < view.num_versions)
        self.regenerate.setVisible(not view.is_user)
        self.fork.setVisible(not view.is_user)
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

    def confirm(self, text: str) -> None:
        """Says for a moment that something was done."""
        self._note.setText(text)
        self._note_timer.start(_CONFIRM_MS)
        self.place()

    def _clear_note(self) -> None:
        self._note.setText("")
        self.place()

    def _button(self, icon: str, name: str, slot: Callable[[], None]) -> QToolButton:
        button = QToolButton(self)
        button.setProperty("icon_name", icon)
        button.setToolTip(name)
        button.setAccessibleName(name)
        button.setIconSize(QSize(16, 16))
        button.clicked.connect(slot)
        layout = self.layout()
        assert layout is not None
        layout.addWidget(button)
        return button

    def _set_icons(self) -> None:
        for button in self.findChildren(QToolButton):
            icon = self._themes.theme.icon(str(button.property("icon_name")), "muted")
            button.setIcon(icon)

    def _on_copy(self) -> None:
        if self._item is not None:
            QGuiApplication.clipboard().setText(self._item.text)
            self.confirm(tr("Copied"))

    def _on_regenerate(self) -> None:
        if self._item is not None:
            self._view.regenerate_requested.emit(self._item.view.message_id)

    def _on_fork(self) -> None:
        if self._item is not None:
            self._view.fork_requested.emit(self._item.view.message_id)

    def _version(self, step: int) -> None:
        if self._item is not None:
            self._view.version_requested.emit(self._item.view.message_id, step)


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
