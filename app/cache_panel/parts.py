"""Small widgets and helpers that the panel's parts are put together from."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QButtonGroup,
    QFrame,
    QLabel,
    QScrollArea,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)


def plain_label(text: str = "", tone: str = "") -> QLabel:
    """A label that never takes its text for markup; ``tone`` as in the style sheet."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    if tone:
        label.setProperty("tone", tone)
    return label


def set_text(label: QLabel, text: str) -> None:
    """Sets the text only if it changed: QLabel lays out anew each time."""
    if label.text() != text:
        label.setText(text)


class WrappedLabel(QLabel):
    """Plain text over as many lines as it needs, at least ``lines``, so that it seldom jumps.

    It takes its height itself. A label with height-for-width would make everything in its layout
    as high as wanted, and leave a low panel to overlap.
    """

    def __init__(self, lines: int, tone: str = "") -> None:
        super().__init__()
        self._lines = lines
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setAlignment(Qt.AlignmentFlag.AlignTop)
        if tone:
            self.setProperty("tone", tone)

    def hasHeightForWidth(self) -> bool:
        return False

    def show_text(self, text: str) -> None:
        """Sets the text if it changed."""
        if text != self.text():
            self.setText(text)
            self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fit()

    def _fit(self) -> None:
        spacing = self.fontMetrics().lineSpacing()
        height = max(self._lines * spacing, self.heightForWidth(self.width()))
        if (self.minimumHeight(), self.maximumHeight()) != (height, height):
            self.setFixedHeight(height)


class FittingScrollArea(QScrollArea):
    """Wants to be as high as its content, and scrolls where it cannot."""

    def __init__(self, content: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._content = content
        self.setWidget(content)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)

    def sizeHint(self) -> QSize:
        return self._content.sizeHint()

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 40)


def column(*parts: QWidget | QBoxLayout | tuple[QWidget, int]) -> QVBoxLayout:
    """Widgets and layouts under each other; a pair gives a widget its stretch."""
    made = QVBoxLayout()
    made.setSpacing(8)
    for part in parts:
        if isinstance(part, tuple):
            made.addWidget(part[0], part[1])
        elif isinstance(part, QWidget):
            made.addWidget(part)
        else:
            made.addLayout(part)
    return made


class Pages(QWidget):
    """Several widgets at one place, with a row of buttons that choose; ``last`` ends the row."""

    def __init__(
        self, pages: list[tuple[str, QWidget]], last: QWidget, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._stack = QStackedWidget()
        self.buttons: list[QToolButton] = []
        row = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        row.setSpacing(4)
        group = QButtonGroup(self)
        for index, (title, page) in enumerate(pages):
            button = QToolButton()
            button.setText(title)
            button.setCheckable(True)
            button.setAccessibleName(title)
            button.clicked.connect(lambda _checked, i=index: self.choose(i))
            group.addButton(button)
            self.buttons.append(button)
            row.addWidget(button)
            self._stack.addWidget(page)
        row.addStretch(1)
        row.addWidget(last)
        made = column(row, (self._stack, 1))
        made.setContentsMargins(0, 0, 0, 0)
        self.setLayout(made)
        self.choose(0)

    def choose(self, index: int) -> None:
        """Shows page ``index``."""
        self.buttons[index].setChecked(True)
        self._stack.setCurrentIndex(index)
