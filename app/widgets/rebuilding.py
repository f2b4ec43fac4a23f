"""Another language or other fonts in a window that is open: its parts are made anew, in place.

Every text and font of a widget is set when the widget is made. To make all of them again is the one
way that cannot forget any; what the user had before them is carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QSize, Qt, QTimer, Slot
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QDockWidget,
    QLayout,
    QMainWindow,
    QMenuBar,
    QWidget,
)

from app.session_state import Notice
from app.widgets.built_window import BuiltWindow
from app.widgets.conversation_page import ConversationPage
from app.widgets.system_prompt_dialog import SystemPromptDialog
from app.widgets.transcript.view_state import ViewState

if TYPE_CHECKING:
    from app.cache_panel.panel import Handover
    from app.widgets.main_window import MainWindow


_LATER_MS = 200


class Rebuilder(QObject):
    """Rebuilds ``window`` when the event loop is idle, once for all that was asked until then.

    Never at once: the menu or field that asked for it is one of the parts that go.
    """

    def __init__(self, window: MainWindow, senders: Iterable[QObject]) -> None:
        """``senders``: what lives longer than the parts, and has connections to the window."""
        super().__init__()
        self._window = window
        self._senders = tuple(senders)
        self._kept: list[QObject] = []
        self._waiting: dict[str, PageView] = {}
        self._then: list[Callable[[], None]] = []
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._rebuild)

    def keep(self, children: Iterable[QObject]) -> None:
        """Children of the window that are no parts of it and stay."""
        self._kept = list(children)

    def request(self, then: Callable[[], None] | None = None) -> None:
        """``then`` is called afterwards."""
        if then is not None and then not in self._then:
            self._then.append(then)
        self._timer.start(0)

    def stop(self) -> None:
        """The window closes."""
        self._timer.stop()

    def _rebuild(self) -> None:
        window = self._window
        if window.is_at_files():
            # What writes or reads them is a part too.
            self._timer.start(_LATER_MS)
            return
        view = WindowView.of(window)
        waiting, self._waiting = self._waiting, {}
        for page in view.pages:
            waiting[page.conversation_id] = page
        # What is seen stays on the screen until the new parts are laid out.
        window.setUpdatesEnabled(False)
        for sender in self._senders:
            QObject.disconnect(sender, None, window, None)  # type: ignore[call-overload]
        _save_prompts_being_written(window)
        discard_parts(window, self._kept)
        window.build()
        self._waiting = waiting
        self._restore_page(window.tab_area.tabs.current_id())
        window.tab_area.current_changed.connect(self._restore_page)
        view.restore(window)
        QTimer.singleShot(0, window, partial(self._show, view))
        then, self._then = self._then, []
        for call in then:
            call()

    def _show(self, view: WindowView) -> None:
        # Only now: the window was laid out while parts were missing.
        view.restore_sizes(self._window)
        self._window.setUpdatesEnabled(True)

    @Slot(str)
    def _restore_page(self, conversation_id: str) -> None:
        """A page that was not in front is made, and brought back to its place, when it is shown."""
        page = self._window.tab_area.pages.get(conversation_id)
        view = self._waiting.pop(conversation_id, None) if page is not None else None
        if page is not None and view is not None:
            view.restore(page)


def _save_prompts_being_written(window: QMainWindow) -> None:
    """A prompt that is being written for one conversation stays open, as it is."""
    for dialog in window.findChildren(SystemPromptDialog):
        if dialog.isVisible():
            dialog.setParent(window, dialog.windowFlags())
            dialog.show()


def discard_parts(window: QMainWindow, kept: Collection[QObject]) -> None:
    """Takes everything out of ``window`` but ``kept`` and the windows that rebuild themselves; has
    it deleted when control returns to the loop.
    """
    for child in window.children():
        if isinstance(child, QLayout | BuiltWindow | SystemPromptDialog) or child in kept:
            continue
        # Qt's own, that the layout of the window holds.
        if child.objectName().startswith("qt_"):
            continue
        if isinstance(child, QDockWidget):
            window.removeDockWidget(child)
        if isinstance(child, QDialog):
            # It keeps what was typed in it.
            child.close()
        if isinstance(child, QWidget):
            # What follows the engine only while it is seen stops now.
            child.hide()
        child.deleteLater()
    window.setMenuBar(QMenuBar())


@dataclass
class PageView:
    """What the user sees of one page and has not sent yet."""

    conversation_id: str
    cursor: tuple[int, int]
    transcript: ViewState
    notices: list[Notice]

    @classmethod
    def of(cls, page: ConversationPage) -> PageView:
        cursor = page.composer.edit.textCursor()
        return cls(
            page.conversation_id,
            (cursor.anchor(), cursor.position()),
            page.transcript.view_state(),
            [bar.notice for bar in page.notices.bars],
        )

    def restore(self, page: ConversationPage) -> None:
        edit = page.composer.edit
        cursor = edit.textCursor()
        last = edit.document().characterCount() - 1
        anchor, position = (min(place, last) for place in self.cursor)
        cursor.setPosition(anchor)
        cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
        edit.setTextCursor(cursor)
        page.transcript.restore_view_state(self.transcript)
        for notice in self.notices:
            page.notices.add(notice)


@dataclass
class WindowView:
    """What the user sees of a window that is not stored."""

    pages: list[PageView]
    notices: list[Notice]
    search: str
    focus: tuple[str, str]
    sizes: tuple[QSize, list[int]]
    panel: Handover

    @classmethod
    def of(cls, window: MainWindow) -> WindowView:
        window.save_state()
        area = window.tab_area
        return cls(
            [PageView.of(page) for page in area.pages],
            [bar.notice for bar in area.notices.bars],
            window.side_bar.search.text(),
            _key_of(QApplication.focusWidget()),
            (window.panels.dock.size(), window.splitter.sizes()),
            window.panels.panel.hand_over(),
        )

    def restore(self, window: MainWindow) -> None:
        area = window.tab_area
        for notice in self.notices:
            area.notices.add(notice)
        window.side_bar.search.setText(self.search)
        window.panels.panel.take_over(self.panel)
        self._restore_focus(window)

    def restore_sizes(self, window: MainWindow) -> None:
        """The room of side bar and cache panel."""
        dock, (size, columns) = window.panels.dock, self.sizes
        for direction, length in (
            (Qt.Orientation.Horizontal, size.width()),
            (Qt.Orientation.Vertical, size.height()),
        ):
            window.resizeDocks([dock], [length], direction)
        window.splitter.setSizes(columns)

    def _restore_focus(self, window: MainWindow) -> None:
        for widget in window.findChildren(QWidget):
            if self.focus != ("", "") and _key_of(widget) == self.focus and widget.isVisible():
                widget.setFocus()
                return


def _key_of(widget: QWidget | None) -> tuple[str, str]:
    """Tells a widget from most others in a way that outlives it, whatever its language."""
    if widget is None:
        return "", ""
    owners = []
    parent = widget.parentWidget()
    while parent is not None:
        owners.append(type(parent).__name__)
        parent = parent.parentWidget()
    return f"{type(widget).__name__} {widget.objectName()}", "/".join(owners)
