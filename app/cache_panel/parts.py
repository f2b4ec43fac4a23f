"""Small widgets and helpers that the panel's parts are put together from."""

from __future__ import annotations

import html
from bisect import bisect_left
from functools import lru_cache

from PySide6.QtCore import QEvent, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QButtonGroup,
    QComboBox,
    QFrame,
    QLabel,
    QScrollArea,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel.flow_row import FlowRow
from app.i18n import tr


def plain_label(text: str = "", tone: str = "") -> QLabel:
    """A label that never takes its text for markup; ``tone`` as in the style sheet."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    if tone:
        label.setProperty("tone", tone)
    return label


def wrapped_label(text: str = "", tone: str = "") -> QLabel:
    """A plain label over as many lines as it needs, where its layout gives it the height."""
    label = plain_label(text, tone)
    label.setWordWrap(True)
    return label


def set_text(label: QLabel, text: str) -> None:
    """Sets the text only if it changed: QLabel lays out anew each time."""
    if label.text() != text:
        label.setText(text)


class WrappedLabel(QLabel):
    """Plain text over as many lines as it needs, at least ``lines``, so that it seldom jumps.

    It takes its height itself. A label with height-for-width would make everything in its layout
    as high as wanted, and leave a low panel to overlap. ``keeps``: once grown it stays so high
    until its width changes; for a text that follows the mouse over what stands above.
    """

    def __init__(self, lines: int, tone: str = "", *, keeps: bool = False) -> None:
        super().__init__()
        self._lines = lines
        self._keeps = keeps
        self._kept = 0
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
        if event.oldSize().width() != event.size().width():
            self._kept = 0
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._kept = 0
            self._fit()

    def _fit(self) -> None:
        metrics = self.fontMetrics()
        # A label's own height for a width is never less than its least height.
        room = QRect(0, 0, max(1, self.width()), 1_000_000)
        needed = metrics.boundingRect(room, int(Qt.TextFlag.TextWordWrap), self.text()).height()
        height = max(self._lines * metrics.lineSpacing(), needed, self._kept)
        if self._keeps:
            self._kept = height
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

    def show_rect(self, rect: QRect) -> None:
        """Scrolls so far that ``rect`` of the content can be seen."""
        center = rect.center()
        self.ensureVisible(center.x(), center.y(), 8, rect.height() + 24)


def scrolled(content: QWidget) -> FittingScrollArea:
    """``content`` in an area that scrolls up and down where it is too high."""
    area = FittingScrollArea(content)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return area


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


def framed(layout: QBoxLayout) -> QWidget:
    """A widget with this layout and no margins."""
    layout.setContentsMargins(0, 0, 0, 0)
    widget = QWidget()
    widget.setLayout(layout)
    return widget


class Pages(QWidget):
    """Several widgets at one place, with a row of buttons that choose.

    The buttons go on in a second line where there is no room for all of them; ``set_compact`` puts
    a list of one line in their place. ``page_changed()``: another one is shown.
    """

    page_changed = Signal()

    def __init__(self, pages: list[tuple[str, QWidget]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._stack = QStackedWidget()
        self.buttons: list[QToolButton] = []
        self._group = QButtonGroup(self)
        self._flow = FlowRow()
        self.box = QComboBox()
        self.box.setAccessibleName(tr("Page"))
        self.box.view().setAccessibleName(tr("Page"))
        self.box.hide()
        self.box.activated.connect(self.choose)
        self._stack.setMinimumHeight(72)
        made = column(self._flow, self.box, (self._stack, 1))
        made.setContentsMargins(0, 0, 0, 0)
        self.setLayout(made)
        for title, page in pages:
            self.add_page(title, page)
        self.choose(0)

    def add_page(self, title: str, page: QWidget) -> int:
        """Puts another page behind the others; returns its index."""
        index = len(self.buttons)
        button = QToolButton()
        button.setText(title)
        button.setCheckable(True)
        button.setAccessibleName(title)
        button.clicked.connect(lambda: self.choose(index))
        self._group.addButton(button)
        self.buttons.append(button)
        self._flow.add(button)
        self.box.addItem(title)
        self._stack.addWidget(page)
        return index

    def set_compact(self, is_compact: bool) -> None:
        """Whether there is room for one line only."""
        self._flow.setVisible(not is_compact)
        self.box.setVisible(is_compact)

    @property
    def current(self) -> int:
        """The page that is shown."""
        return self._stack.currentIndex()

    def reveal(self, widget: QWidget) -> None:
        """Shows the page that holds ``widget``; nothing happens if none does."""
        for index in range(self._stack.count()):
            page = self._stack.widget(index)
            if page is not None and (page is widget or page.isAncestorOf(widget)):
                self.choose(index)

    def choose(self, index: int) -> None:
        """Shows page ``index``."""
        self.buttons[index].setChecked(True)
        self.box.setCurrentIndex(index)
        if index != self._stack.currentIndex():
            self._stack.setCurrentIndex(index)
            self.page_changed.emit()


def fitting(text: str, font: QFont, width: int, lines: int) -> str:
    """``text``, or its beginning and an ellipsis, so that it wraps to ``lines`` lines at most."""
    # A font that an option of a view hands out must not outlive it, in a cache for instance.
    return _fitting(text, font.toString(), width, lines)


@lru_cache(maxsize=256)
def _fitting(text: str, font_name: str, width: int, lines: int) -> str:
    font = QFont()
    font.fromString(font_name)
    metrics = QFontMetrics(font)
    room = QRect(0, 0, max(1, width), 1_000_000)
    wrap = int(Qt.TextFlag.TextWordWrap)
    # Half a line more: letters of another font may be higher.
    most = (lines + 0.5) * metrics.lineSpacing()

    def fits(shown: str) -> bool:
        return metrics.boundingRect(room, wrap, shown).height() <= most

    if fits(text):
        return text
    longest = bisect_left(range(1, len(text)), True, key=lambda n: not fits(f"{text[:n]}…"))
    return f"{text[:longest].rstrip()}…"


def as_tool_tip(text: str) -> str:
    """Plain text as a tool tip shows it: nothing in it can be taken for markup."""
    return f"<p style='white-space:pre'>{html.escape(text)}</p>"
