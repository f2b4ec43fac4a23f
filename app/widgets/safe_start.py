"""After a start that died: the conversations that were left closed, to be opened one by one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.safe_start import RestoreMark
from app.session import Session
from app.widgets.buttons import IconButton
from app.widgets.main_window import MainWindow
from app.widgets.words import shown_title

STABLE_MS = 2000
"""A window that has stood this long after something was shown was not brought down by it."""
_MAX_HEIGHT = 110


class SafeStartBar(QWidget):
    """What happened, and a button for each conversation. ``titles`` by conversation id."""

    def __init__(self, window: MainWindow, titles: dict[str, str]) -> None:
        super().__init__()
        frame = QFrame()
        frame.setProperty("role", "notice")
        frame.setProperty("tone", "warning")
        around = QVBoxLayout(self)
        around.setContentsMargins(12, 8, 12, 4)
        around.addWidget(frame)
        self.buttons: dict[str, QPushButton] = {}
        words = QLabel(
            tr(
                "Quire ended unexpectedly while it was showing these conversations. They were left "
                "closed this time, and nothing of them is lost. Open them one by one; if one of "
                "them brings Quire down again, leave it closed and export it from the side bar."
            )
        )
        words.setTextFormat(Qt.TextFormat.PlainText)
        words.setWordWrap(True)
        self.close_button = IconButton(window.themes, "close", tr("Dismiss"), self, "muted")
        head = QHBoxLayout()
        head.addWidget(words, 1)
        head.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignTop)
        column = QVBoxLayout(frame)
        column.setContentsMargins(12, 8, 6, 8)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self._list(titles))

    def _list(self, titles: dict[str, str]) -> QWidget:
        rows = QWidget()
        grid = QGridLayout(rows)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        for place, (conversation_id, title) in enumerate(titles.items()):
            button = QPushButton(tr("Open"))
            button.setAccessibleName(tr("Open “{title}”", title=title))
            label = QLabel(title)
            label.setTextFormat(Qt.TextFormat.PlainText)
            grid.addWidget(button, place, 0)
            grid.addWidget(label, place, 1)
            self.buttons[conversation_id] = button
        area = QScrollArea()
        area.setWidget(rows)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.viewport().setAutoFillBackground(False)
        rows.setAutoFillBackground(False)
        area.setMaximumHeight(min(_MAX_HEIGHT, rows.sizeHint().height() + 4))
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        return area


class SafeStart(QObject):
    """Watches over what the window shows first, and offers what was left closed.

    ``bar`` is there while something is offered.
    """

    def __init__(
        self,
        session: Session,
        window: MainWindow,
        mark: RestoreMark,
        left_closed: Sequence[str],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._window = window
        self._mark = mark
        stored = session.closed_conversations() if left_closed else []
        titles = {s.conversation_id: shown_title(s.title) for s in stored}
        self._titles = {i: titles[i] for i in left_closed if i in titles}
        self._is_ending = False
        self._stable_timer = QTimer(self)
        self._stable_timer.setSingleShot(True)
        self._stable_timer.timeout.connect(self._on_stable)
        self.bar: SafeStartBar | None = None
        self._show_bar()

    def window_shown(self) -> None:
        """The window was painted; what it shows may still bring it down."""
        self._stable_timer.start(STABLE_MS)

    def end(self) -> None:
        """The program ends in order."""
        self._is_ending = True
        self._stable_timer.stop()
        self._mark.clear()

    def _show_bar(self) -> None:
        if not self._titles or self._is_ending:
            return
        self.bar = bar = SafeStartBar(self._window, self._titles)
        bar.close_button.clicked.connect(self._dismiss)
        for conversation_id, button in bar.buttons.items():
            button.clicked.connect(lambda _=False, chosen=conversation_id: self._open(chosen))
        # With another language the window makes its parts anew, and this one goes with them.
        bar.destroyed.connect(self._on_bar_destroyed)
        self._window.tab_area.put_under_tabs(bar)

    def _open(self, conversation_id: str) -> None:
        self._titles.pop(conversation_id, None)
        self._mark.set([conversation_id])
        self._stable_timer.start(STABLE_MS)
        self._drop_bar()
        self._show_bar()
        self._window.show_conversation(conversation_id)

    def _dismiss(self) -> None:
        self._titles.clear()
        self._drop_bar()

    def _drop_bar(self) -> None:
        bar, self.bar = self.bar, None
        if bar is not None:
            bar.destroyed.disconnect(self._on_bar_destroyed)
            bar.hide()
            bar.deleteLater()

    @Slot()
    def _on_bar_destroyed(self) -> None:
        self.bar = None
        QTimer.singleShot(0, self, self._show_bar)

    @Slot()
    def _on_stable(self) -> None:
        self._mark.shown()
