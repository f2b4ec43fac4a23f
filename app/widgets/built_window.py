"""A window beside the main one that is made anew in place when language or fonts change."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication, QKeyEvent
from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QVBoxLayout, QWidget


class BuiltWindow(QDialog):
    """Shows what ``build`` returns. Not modal; closed with Escape; gone when closed."""

    def __init__(self, parent: QWidget, size: QSize) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._content: QWidget | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        self.resize(_on_screen(size))

    def build(self) -> QWidget:
        """Makes everything in the window, in the present language and fonts."""
        raise NotImplementedError

    def rebuild(self) -> None:
        """Makes the content, at first and again; the keyboard stays where it was."""
        focused = QApplication.focusWidget()
        key = focused.objectName() if focused is not None and self.isAncestorOf(focused) else ""
        old, self._content = self._content, self.build()
        for button in self._content.findChildren(QPushButton):
            # Enter in a field would press the first of them.
            button.setAutoDefault(False)
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self._content)
        if old is not None:
            old.hide()
            layout.removeWidget(old)
            old.deleteLater()
        found = self._content.findChild(QWidget, key) if key else None
        if found is not None:
            found.setFocus(Qt.FocusReason.OtherFocusReason)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter presses the button that the keyboard is on, as the space bar does."""
        focused = self.focusWidget()
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and not event.isAutoRepeat() and isinstance(focused, QPushButton):
            focused.click()
        else:
            super().keyPressEvent(event)

    def present(self) -> None:
        """Shows the window, and brings it to the front if it is open."""
        if self.isVisible():
            self.raise_()
        self.show()
        self.activateWindow()


def _on_screen(size: QSize) -> QSize:
    screen = QGuiApplication.primaryScreen()
    if screen is None or QGuiApplication.platformName() in ("offscreen", "minimal"):
        return size
    return size.boundedTo(screen.availableSize() * 0.95)
