"""The guided tour: the lesson at the left, the cache panel of its engine at the right."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel.block_tables import BlockTables
from app.cache_panel.event_tape import EventTape
from app.cache_panel.live_panel import LivePanel
from app.cache_panel.parts import plain_label, set_text, wrapped_label
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.usage import UsageView
from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.theme import ThemeManager
from app.tour.lesson import lesson
from app.tour.pointer import Pointer
from app.tour.rig import Rig
from app.tour.step import Step, Target
from app.tour.talk_list import TalkList
from app.widgets.words import error_words, model_words
from engine.api.client import EngineClient
from engine.api.errors import ErrorInfo
from engine.api.events import BlockChanged, Event, PoolEvent, TableChanged

_SIZE = QSize(1360, 820)
_LESSON_WIDTH = 400
_MAGNIFY = 2
_WIDGETS: dict[Target, type[QWidget]] = {
    Target.GRID: PoolGrid,
    Target.TABLES: BlockTables,
    Target.USAGE: UsageView,
    Target.TAPE: EventTape,
}


class TourWindow(QWidget):
    """Runs the lesson on an engine of its own; hidden, that engine ends.

    ``index``: the present step. A step is left by *Next* once it has happened, or by *Skip*.
    """

    def __init__(
        self,
        start_engine: Callable[[], EngineClient],
        models_dir: str,
        themes: ThemeManager,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setObjectName("tour_window")
        self.setWindowTitle(tr("Guided tour"))
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(_SIZE)
        self.rig = Rig(start_engine, models_dir, self)
        self.steps = lesson(self.rig)
        self.index = 0
        self._told_done = self._is_magnified = False
        # The panel reads only what ``Talks`` has too.
        self.panel = LivePanel(self.rig.bridge, cast(Session, self.rig.talks), themes)
        self.pointer = Pointer(self.panel, themes)
        self._make_lesson(themes)
        self._lay_out()
        self._connect()
        self._show_step()
        self.rig.start()

    @property
    def step(self) -> Step:
        return self.steps[self.index]

    # --- making ---

    def _make_lesson(self, themes: ThemeManager) -> None:
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, len(self.steps))
        self.progress.setAccessibleName(tr("Progress of the tour"))
        self.place = plain_label(tone="muted")
        self.title = wrapped_label()
        self.title.setProperty("role", "title")
        self.text = wrapped_label()
        self.look = wrapped_label()
        self.state = wrapped_label()
        self.state.setAccessibleName(tr("What has happened"))
        self.look_card = _card(plain_label(tr("Where to look")), self.look)
        self.state_heading = plain_label()
        self.state_card = _card(self.state_heading, self.state)
        self.talk_list = TalkList(self.rig.talks, themes)
        self.fetch_button = QPushButton(tr("Fetch the starter model (94 MB)"))
        self.leave_button = QPushButton(tr("Leave the tour"))
        self.back_button = QPushButton(tr("Back"))
        self.skip_button = QPushButton(tr("Skip"))
        self.next_button = QPushButton(tr("Next"))
        self.leave_button.setProperty("kind", "quiet")
        self.next_button.setProperty("kind", "primary")

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setContentsMargins(20, 12, 20, 0)
        head.setSpacing(12)
        head.addWidget(self.progress, 1)
        head.addWidget(self.place)
        buttons = QHBoxLayout()
        buttons.setContentsMargins(12, 8, 20, 16)
        buttons.setSpacing(8)
        buttons.addWidget(self.leave_button)
        buttons.addStretch(1)
        for button in (self.back_button, self.skip_button, self.next_button):
            buttons.addWidget(button)
        left = QWidget()
        left.setFixedWidth(_LESSON_WIDTH)
        made = QVBoxLayout(left)
        made.setContentsMargins(0, 0, 0, 0)
        made.setSpacing(0)
        made.addLayout(head)
        made.addWidget(self._lesson_area(), 1)
        made.addLayout(buttons)
        rule = QFrame()
        rule.setProperty("role", "vrule")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(left)
        row.addWidget(rule)
        row.addWidget(self.panel, 1)

    def _lesson_area(self) -> QScrollArea:
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(20, 16, 20, 12)
        column.setSpacing(12)
        for widget in (self.title, self.text, self.look_card, self.state_card, self.fetch_button):
            column.addWidget(widget)
        column.addWidget(self.talk_list)
        column.addStretch(1)
        area = QScrollArea()
        area.setWidget(inside)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setAccessibleName(tr("Lesson"))
        return area

    def _connect(self) -> None:
        rig = self.rig
        rig.happened.connect(self._on_rig_happened)
        rig.talk_changed.connect(self.talk_list.show_text)
        rig.ready.connect(self._on_rig_ready)
        rig.failed.connect(self._on_rig_failed)
        rig.talks.model_state_changed.connect(self._show_state)
        self.fetch_button.clicked.connect(self._on_fetch_clicked)
        self.leave_button.clicked.connect(self.close)
        self.back_button.clicked.connect(lambda: self.go_to(self.index - 1))
        self.skip_button.clicked.connect(lambda: self.go_to(self.index + 1))
        self.next_button.clicked.connect(self._on_next_clicked)

    # --- the lesson ---

    def go_to(self, index: int) -> None:
        """Begins another step, whatever the present one is doing."""
        if 0 <= index < len(self.steps) and self._is_ready:
            self.index = index
            self._begin()

    @property
    def _is_ready(self) -> bool:
        return self.rig.talks.model_state.status is ModelStatus.READY

    def _magnify(self) -> None:
        """So few blocks may be large; once, for the user may choose otherwise."""
        grid = self.panel.view.grid
        if not self._is_magnified and grid.layout_in_use is not None:
            self._is_magnified = True
            for _ in range(_MAGNIFY):
                grid.zoom_in(0)

    def _light(self) -> None:
        """Cells have the numbers of conversations: which block is number 20 is not to be seen."""
        self.panel.view.light(self.step.blocks() if self._told_done else frozenset())

    def _begin(self) -> None:
        self._magnify()
        self.step.is_done = self._told_done = False
        self._light()
        self._failure = ""
        self._show_step()
        self.step.start()
        self._show_state()

    @Slot()
    def _on_rig_ready(self) -> None:
        self._begin()

    @Slot(object)
    def _on_rig_happened(self, event: Event | PoolEvent) -> None:
        self.step.take(event)
        if not self.step.is_done:
            return
        if not self._told_done:
            self._told_done = True
            self.rig.hold()
            self._show_state()
            self._light()
            self.next_button.setFocus(Qt.FocusReason.OtherFocusReason)
        elif isinstance(event, BlockChanged | TableChanged):
            # Pool events come in batches: the rest of what happened belongs to the figures too.
            set_text(self.state, self.step.outcome())
            self._light()

    @Slot()
    def _on_next_clicked(self) -> None:
        if self.index + 1 < len(self.steps):
            self.go_to(self.index + 1)
        else:
            self.close()

    @Slot()
    def _on_fetch_clicked(self) -> None:
        self.rig.load(fetch=True)

    _failure = ""

    @Slot(object)
    def _on_rig_failed(self, error: ErrorInfo) -> None:
        self._failure = error_words(error)
        self._show_state()

    # --- showing ---

    def _show_step(self) -> None:
        step = self.step
        self.progress.setValue(self.index + 1)
        self.place.setText(
            tr("Step {n} of {total}", n=f"{self.index + 1}", total=f"{len(self.steps)}")
        )
        self.title.setText(step.title)
        self.text.setText(step.text)
        self.look.setText(step.look)
        self.look_card.setVisible(bool(step.look))
        is_last = self.index + 1 == len(self.steps)
        self.next_button.setText(tr("End the tour") if is_last else tr("Next"))
        self._point()
        self._show_state()

    def _point(self) -> None:
        kind = _WIDGETS.get(self.step.target)
        target = None if kind is None else self.panel.findChild(kind)
        if isinstance(target, QWidget):
            self.panel.view.pages.reveal(target)
            self.pointer.point_at(target)
        else:
            self.pointer.point_at(None)

    @Slot()
    def _show_state(self) -> None:
        state = self.rig.talks.model_state
        is_ready = state.status is ModelStatus.READY
        is_missing = state.error is not None and state.error.code == "starter_model_missing"
        step = self.step
        if self._failure:
            heading, text = tr("This did not work"), self._failure
        elif not is_ready:
            heading, text = tr("One moment"), model_words(state)
        elif step.is_done:
            heading, text = tr("It has happened"), step.outcome()
        else:
            heading, text = tr("In a moment"), step.waiting
        self.state_heading.setText(heading)
        set_text(self.state, text)
        self.state_card.setVisible(bool(text))
        self.fetch_button.setVisible(is_missing)
        self.back_button.setEnabled(is_ready and self.index > 0)
        self.next_button.setEnabled(is_ready and step.is_done)
        is_last = self.index + 1 == len(self.steps)
        self.skip_button.setVisible(not is_last)
        self.skip_button.setEnabled(is_ready and not step.is_done)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        # A minimised window is hidden by the system and comes back.
        if not event.spontaneous():
            self.rig.end()


def _card(heading: QWidget, text: QWidget) -> QFrame:
    heading.setProperty("role", "heading")
    card = QFrame()
    card.setProperty("role", "card")
    column = QVBoxLayout(card)
    column.setContentsMargins(12, 10, 12, 10)
    column.setSpacing(4)
    column.addWidget(heading)
    column.addWidget(text)
    return card
