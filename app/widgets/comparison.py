"""Several answers to one question, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.transcript.message import MessageView
from app.widgets.transcript.page import SIDE_MARGIN
from app.widgets.transcript.view import Transcript

MIN_COLUMN = 240
MIN_STACKED_HEIGHT = 260


class AnswerColumn(QFrame):
    """One of the answers. ``chosen()``, ``stop_requested()``."""

    chosen = Signal()
    stop_requested = Signal()

    def __init__(self, themes: ThemeManager, number: int, view: MessageView) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self.message_id = view.message_id
        self.heading = QLabel(tr("Answer {number}", number=number))
        self.heading.setProperty("role", "heading")
        self.stop_button = IconButton(themes, "stop", tr("Stop this answer"), self, "muted")
        self.stop_button.clicked.connect(self.stop_requested)
        policy = self.stop_button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.stop_button.setSizePolicy(policy)
        self.transcript = Transcript(themes)
        self.transcript.setAccessibleName(tr("Answer {number}", number=number))
        self.choose_button = QPushButton(tr("Go on with this one"))
        self.choose_button.setAccessibleName(tr("Go on with answer {number}", number=number))
        self.choose_button.clicked.connect(self.chosen)
        top = QHBoxLayout()
        top.setContentsMargins(SIDE_MARGIN, 6, 8, 0)
        top.addWidget(self.heading, 1)
        top.addWidget(self.stop_button)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(SIDE_MARGIN, 4, SIDE_MARGIN, 12)
        bottom.addWidget(self.choose_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 1, 1, 1)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(self.transcript, 1)
        column.addLayout(bottom)
        self.transcript.set_messages([_alone(view)])
        self.update_view(view)

    def update_view(self, view: MessageView) -> None:
        """New figures or status."""
        self.transcript.update_message(_alone(view))
        self.stop_button.setVisible(view.is_open)


def _alone(view: MessageView) -> MessageView:
    """An answer among others: most of what can be done with it waits until one is chosen."""
    offers = () if view.is_open else ("copy_message",)
    return replace(view, version=1, num_versions=1, offers=offers)


class Comparison(QWidget):
    """Columns where there is room, else one answer below the other.

    Signals:
        chosen(message_id): to go on with; empty for none of them.
        stop_requested(message_id)
        facts_requested(message_id)
    """

    chosen = Signal(str)
    stop_requested = Signal(str)
    facts_requested = Signal(str)

    def __init__(self, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._is_stacked = False
        self.columns: list[AnswerColumn] = []
        self.question = QLabel()
        self.question.setTextFormat(Qt.TextFormat.PlainText)
        self.question.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.back_button = QPushButton(tr("Back to the conversation"))
        self.back_button.setProperty("kind", "quiet")
        self.back_button.clicked.connect(lambda: self.chosen.emit(""))
        self._grid_widget = QWidget()
        self._grid = QGridLayout(self._grid_widget)
        self._grid.setContentsMargins(12, 0, 12, 4)
        self._grid.setSpacing(8)
        self.area = QScrollArea()
        self.area.setWidget(self._grid_widget)
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setAccessibleName(tr("Answers side by side"))
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        top = QHBoxLayout()
        top.setContentsMargins(16, 8, 12, 0)
        top.setSpacing(12)
        top.addWidget(self.question, 1)
        top.addWidget(self.back_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(top)
        column.addWidget(self.area, 1)

    def show_answers(self, question: str, views: Sequence[MessageView]) -> None:
        """Shows these answers to a question."""
        self.clear()
        first_line = next((line for line in question.splitlines() if line.strip()), "")
        self.question.setText(first_line)
        self.question.setToolTip("")
        for number, view in enumerate(views, 1):
            column = AnswerColumn(self._themes, number, view)
            column.chosen.connect(self._emitter(self.chosen.emit, view.message_id))
            column.stop_requested.connect(self._emitter(self.stop_requested.emit, view.message_id))
            column.transcript.action_requested.connect(self._on_action_requested)
            self.columns.append(column)
        self._is_stacked = self._needs_stack()
        self._place()

    def clear(self) -> None:
        """Takes the answers away."""
        for column in self.columns:
            self._grid.removeWidget(column)
            column.hide()
            column.deleteLater()
        self.columns = []

    def message_ids(self) -> tuple[str, ...]:
        """The answers that are shown."""
        return tuple(column.message_id for column in self.columns)

    def append_text(self, message_id: str, text: str) -> None:
        """Streamed text of one of the answers; others are ignored."""
        for column in self.columns:
            column.transcript.append_text(message_id, text)

    def update_message(self, view: MessageView) -> None:
        """New figures or status of one of the answers; others are ignored."""
        for column in self.columns:
            if column.message_id == view.message_id:
                column.update_view(view)

    def _on_action_requested(self, action_id: str, message_id: str) -> None:
        if action_id == "message_facts":
            self.facts_requested.emit(message_id)

    @property
    def is_stacked(self) -> bool:
        """Whether the answers stand one below the other."""
        return self._is_stacked

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        needs_stack = self._needs_stack()
        if needs_stack != self._is_stacked:
            self._is_stacked = needs_stack
            self._place()

    def _needs_stack(self) -> bool:
        return self.width() < len(self.columns) * (MIN_COLUMN + 8) + 16

    def _place(self) -> None:
        for n, column in enumerate(self.columns):
            row, place = (n, 0) if self._is_stacked else (0, n)
            column.setMinimumHeight(MIN_STACKED_HEIGHT if self._is_stacked else 0)
            self._grid.addWidget(column, row, place)
        for n in range(self._grid.columnCount()):
            # An empty column would keep its share.
            self._grid.setColumnStretch(n, int(n < (1 if self._is_stacked else len(self.columns))))

    @staticmethod
    def _emitter(emit: Callable[[str], None], message_id: str) -> Callable[[], None]:
        return lambda: emit(message_id)
