"""The bar of find in page: the words, how many hits there are, and the way from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QToolButton,
    QWidget,
)

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.transcript.finder import Finder

if TYPE_CHECKING:
    from app.widgets.transcript.view import Transcript

_WIDTH = 380
_MARGIN = 8


class FindBar(QFrame):
    """Lies over the top right corner of a transcript."""

    def __init__(self, view: Transcript, finder: Finder, themes: ThemeManager) -> None:
        super().__init__(view)
        self._view = view
        self._finder = finder
        self._themes = themes
        self._came_from: QWidget | None = None
        self.setProperty("role", "card")
        self.edit = _FindEdit(self)
        self.edit.setPlaceholderText(tr("Find in this conversation"))
        self.edit.setAccessibleName(tr("Find in this conversation"))
        self.count = QLabel()
        self.count.setTextFormat(Qt.TextFormat.PlainText)
        self.count.setProperty("tone", "muted")
        self.previous = self._button("left", tr("Previous hit"), lambda: finder.step(-1))
        self.next = self._button("right", tr("Next hit"), lambda: finder.step(1))
        self.close_button = self._button("close", tr("Close"), self.end)
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 6, 6, 6)
        row.setSpacing(4)
        row.addWidget(self.edit, 1)
        for widget in (self.count, self.previous, self.next, self.close_button):
            row.addWidget(widget)
        self.edit.textChanged.connect(self._on_text_changed)
        finder.changed.connect(self._show_count)
        themes.changed.connect(self._set_icons)
        self._set_icons()
        self._show_count()
        self.hide()

    def start(self) -> None:
        """Opens the bar with the words that are selected, if they are few."""
        focus = QApplication.focusWidget()
        if focus is not None and not self.isAncestorOf(focus):
            self._came_from = focus
        selected = self._view.selection.short_text()
        if selected:
            self.edit.setText(selected)
        self.place()
        self.show()
        self.raise_()
        self.edit.selectAll()
        self.edit.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._finder.find(self.edit.text())

    def end(self) -> None:
        """Closes the bar; the keyboard goes back to where it was."""
        self._finder.find("")
        had_focus = self.isAncestorOf(QApplication.focusWidget() or self._view)
        self.hide()
        came_from, self._came_from = self._came_from, None
        if had_focus:
            target = came_from if came_from is not None and came_from.isVisible() else self._view
            target.setFocus(Qt.FocusReason.OtherFocusReason)

    def step(self, by: int) -> None:
        """To the next hit or the one before; opens the bar if it is closed."""
        if self.isVisible():
            self._finder.step(by)
        else:
            self.start()

    def place(self) -> None:
        """Top right of the viewport, as wide as there is room."""
        area = self._view.viewport().geometry()
        width = min(_WIDTH, area.width() - 2 * _MARGIN)
        self.setGeometry(
            area.right() - width - _MARGIN, area.top() + _MARGIN, width, self.sizeHint().height()
        )

    def _on_text_changed(self, text: str) -> None:
        self._finder.find(text)

    def _show_count(self) -> None:
        hits, number = len(self._finder.hits), self._finder.number
        if not self.edit.text():
            words = ""
        elif hits:
            words = tr("{n} of {total}", n=f"{number:,}", total=f"{hits:,}")
        elif self._finder.is_busy:
            words = tr("Searching…")
        else:
            words = tr("No hits")
        if words != self.count.text():
            self.count.setText(words)
            self.edit.setAccessibleDescription(words)
        for button in (self.previous, self.next):
            button.setEnabled(hits > 0)

    def _button(self, icon: str, name: str, slot: Callable[[], None]) -> QToolButton:
        button = QToolButton(self)
        button.setProperty("icon_name", icon)
        button.setToolTip(name)
        button.setAccessibleName(name)
        button.setIconSize(QSize(16, 16))
        button.clicked.connect(slot)
        return button

    def _set_icons(self) -> None:
        for button in (self.previous, self.next, self.close_button):
            icon = self._themes.theme.icon(str(button.property("icon_name")), "muted")
            button.setIcon(icon)


class _FindEdit(QLineEdit):
    """Enter and Shift+Enter go from hit to hit, Escape closes: here, before any shortcut does."""

    def __init__(self, bar: FindBar) -> None:
        super().__init__(bar)
        self._bar = bar

    def event(self, event: QEvent) -> bool:
        is_ours = isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape
        if is_ours and event.type() == QEvent.Type.ShortcutOverride:
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self._bar.end()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            back = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
            self._bar.step(-1 if back else 1)
        else:
            super().keyPressEvent(event)
