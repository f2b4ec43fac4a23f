"""One conversation, or two side by side."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLabel,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.elided_label import ElidedLabel

MIN_PANE_WIDTH = 240


class Pane(QWidget):
    """A place for one page, with a heading while there are two.

    ``pressed()``: the mouse went down on it; ``close_requested()``: its page goes out of sight.
    """

    pressed = Signal()
    close_requested = Signal()

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setMinimumWidth(MIN_PANE_WIDTH)
        self.mark = QLabel()
        # A long title must not widen the pane.
        self.title = ElidedLabel()
        close = IconButton(themes, "close", tr("Show only the other conversation"), self, "muted")
        close.setIconSize(QSize(12, 12))
        close.clicked.connect(self.close_requested)
        self.heading = QWidget()
        self.heading.setObjectName("pane_heading")
        self.heading.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        row = QHBoxLayout(self.heading)
        row.setContentsMargins(12, 2, 6, 2)
        row.setSpacing(8)
        row.addWidget(self.mark)
        row.addWidget(self.title, 1)
        row.addWidget(close)
        self.stack = QStackedWidget()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.heading)
        column.addWidget(self.stack, 1)
        self.heading.hide()

    @property
    def page(self) -> QWidget | None:
        """What is in it."""
        return self.stack.currentWidget()

    def show_page(self, page: QWidget) -> None:
        """Shows a page, wherever it was before."""
        if self.stack.indexOf(page) < 0:
            self.stack.addWidget(page)
        self.stack.setCurrentWidget(page)

    def set_active(self, is_active: bool) -> None:
        """Tells by the heading whether the keyboard works here."""
        self.heading.setProperty("active", is_active)
        for widget in (self.heading, self.title):
            widget.style().unpolish(widget)
            widget.style().polish(widget)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()
        super().mousePressEvent(event)


class SplitView(QWidget):
    """The left pane is always there; the right one while ``is_split``. Where there is no room for
    both, only the active one is seen.

    Signals:
        page_activated(page): the other pane's page has the keyboard now.
        split_changed(): there are other pages in the panes, or more or fewer panes.
    """

    page_activated = Signal(object)
    split_changed = Signal()

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.panes = (Pane(themes), Pane(themes))
        self._active = 0
        self._is_split = False
        self._last_shown: tuple[QWidget, ...] = ()
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setChildrenCollapsible(False)
        for pane in self.panes:
            self.splitter.addWidget(pane)
            pane.pressed.connect(lambda pane=pane: self._activate(pane))
            pane.close_requested.connect(lambda pane=pane: self._close(pane))
        self.panes[1].hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.splitter)
        app = QApplication.instance()
        if isinstance(app, QApplication):
            app.focusChanged.connect(self._on_focus_changed)

    @property
    def is_split(self) -> bool:
        return self._is_split

    @property
    def shown(self) -> tuple[QWidget, ...]:
        """The pages in the panes, from left to right."""
        panes = self.panes if self.is_split else self.panes[:1]
        return tuple(pane.page for pane in panes if pane.page is not None)

    @property
    def active_page(self) -> QWidget | None:
        """The page that has the keyboard, or would have it."""
        return self.panes[self._active].page

    @property
    def other_page(self) -> QWidget | None:
        """The page in the other pane; None if there is only one."""
        return self.panes[1 - self._active].page if self.is_split else None

    def add(self, page: QWidget) -> None:
        """Keeps a page, out of sight unless it is the first."""
        self.panes[0].stack.addWidget(page)

    def show_page(self, page: QWidget) -> None:
        """Shows a page where it is already, or else in the active pane."""
        for index, pane in enumerate(self.panes):
            if pane.page is page and (index == 0 or self.is_split):
                self._active = index
                break
        else:
            self.panes[self._active].show_page(page)
        self._tell()

    def show_beside(self, page: QWidget) -> None:
        """Shows a page on the side where the active one is not, and makes it the active one."""
        if page is self.active_page:
            return
        if not self.is_split:
            self._active = 0
            self._show_second(True)
        if page is not self.other_page:
            self.panes[1 - self._active].show_page(page)
        self._active = 1 - self._active
        self._tell()

    def unsplit(self) -> None:
        """Shows only the active page."""
        if self.is_split:
            page = self.active_page
            self._show_second(False)
            self._active = 0
            if page is not None:
                self.panes[0].show_page(page)
            self._tell()

    def remove(self, page: QWidget) -> None:
        """Lets go of a page; if it was one of two, the other one is shown alone."""
        if self.is_split and page in self.shown:
            self._active = 0 if self.panes[1].page is page else 1
            self.unsplit()
        for pane in self.panes:
            pane.stack.removeWidget(page)

    def set_heading(self, page: QWidget, mark: QPixmap, title: str) -> None:
        """What stands above a page while there are two."""
        for pane in self.panes:
            if pane.page is page:
                pane.mark.setPixmap(mark)
                pane.title.setText(title)
                pane.title.setAccessibleName(title)

    def _show_second(self, shown: bool) -> None:
        self._is_split = shown
        left, right = self.splitter.sizes()
        if shown and left and not right:
            half = max(1, self.splitter.width() // 2)
            self.splitter.setSizes([half, half])
        for pane in self.panes:
            pane.heading.setVisible(shown)
        self._fit()

    def _fit(self) -> None:
        has_room = self.width() >= 2 * MIN_PANE_WIDTH
        for index, pane in enumerate(self.panes):
            is_seen = index == self._active or (self._is_split and has_room)
            if pane.isHidden() == is_seen:
                pane.setVisible(is_seen)

    def _close(self, pane: Pane) -> None:
        kept = self.panes[0] if pane is self.panes[1] else self.panes[1]
        self._activate(kept)
        self.unsplit()

    def _activate(self, pane: Pane) -> None:
        index = self.panes.index(pane)
        if index != self._active and self.is_split:
            self._active = index
            self._tell()
            self.page_activated.emit(pane.page)

    def _tell(self) -> None:
        self._fit()
        for index, pane in enumerate(self.panes):
            pane.set_active(index == self._active)
        if self.shown != self._last_shown:
            self._last_shown = self.shown
            self.split_changed.emit()

    def _on_focus_changed(self, _old: QObject | None, now: QObject | None) -> None:
        if self.is_split and isinstance(now, QWidget):
            for pane in self.panes:
                if pane.stack.isAncestorOf(now):
                    self._activate(pane)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._tell()
