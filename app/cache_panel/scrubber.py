"""Goes back in the live panel: folds the last minute backwards and shows what was."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QTimer, Signal

from app.cache_panel.history import History, Moment
from app.cache_panel.past import Past
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_view import PoolView
from app.cache_panel.time_bar import TimeBar

SLICE_S = 0.02
TELL_MS = 1000
TAPE_EVENTS = 1000
"""So many events before the moment that is shown fill the tape."""


class Scrubber(QObject):
    """While ``is_past``, ``view`` shows an earlier moment and the present goes on unseen.

    Signals:
        returned(): the view is to show the present again.
        moved(): it shows another moment of the past.
    """

    returned = Signal()
    moved = Signal()

    def __init__(self, view: PoolView, bar: TimeBar, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._view = view
        self._bar = bar
        self._model: PoolModel | None = None
        self._history = History()
        self._past: Past | None = None
        self._frozen_s = 0.0
        self._target = 0
        self._seek_timer = QTimer(self)
        self._seek_timer.timeout.connect(self._seek_on)
        # How long ago it was changes while nothing happens, too.
        self._tell_timer = QTimer(self)
        self._tell_timer.setInterval(TELL_MS)
        self._tell_timer.timeout.connect(self._tell_moment)
        bar.time_chosen.connect(self.go_to_time)
        bar.step_requested.connect(self.step)
        bar.live_requested.connect(self.go_live)

    @property
    def is_past(self) -> bool:
        return self._past is not None

    @property
    def rows_moment(self) -> Moment | None:
        """The moment that tells what the requests were doing."""
        if self._past is None:
            return self._history.moments[-1] if self._history.moments else None
        return self._history.moment_at(self._past.position)

    def stop(self) -> None:
        """The panel is hidden: the past is given up, no timer runs."""
        self._leave()
        self._model, self._history = None, History()

    def _leave(self) -> None:
        self._seek_timer.stop()
        self._tell_timer.stop()
        self._past = None

    # --- following the present ---

    def follow(self, model: PoolModel | None, history: History) -> None:
        """The present has gone on; old events are forgotten, but not those of the past shown."""
        if model is not self._model or history is not self._history:
            self._leave()
            self._model, self._history = model, history
        limit = history.droppable(time.monotonic())
        if self._past is not None:
            if history.is_crowded() and self._target < limit:
                self._move_on(limit)
            limit = min(limit, self._past.position)
        history.drop(limit)

    def _move_on(self, position: int) -> None:
        """The moment that is shown can be kept no longer: on to the oldest one that can."""
        past = self._past
        if past is not None and position - past.position > self._history.end - position:
            # There are fewer events on the way back from the present.
            self._past = None
        self._frozen_s = self._history.moments[-1].time_s
        self.go_to(position)

    def show_bar(self) -> None:
        """Draws the timeline and its words again."""
        history, model = self._history, self._model
        if model is None or not history.moments:
            self._bar.show_nothing()
            return
        newest = history.moments[-1]
        timeline = self._bar.timeline
        if self._past is None:
            timeline.show_history(
                history, model.num_blocks, model.watermark_blocks, newest.time_s, None
            )
            self._bar.show_live(newest, newest.time_s - history.moments[0].time_s)
            return
        moment = history.moment_at(self._past.position) or newest
        timeline.show_history(
            history, model.num_blocks, model.watermark_blocks, self._frozen_s, moment.time_s
        )
        self._tell_moment()

    def _tell_moment(self) -> None:
        """Says in words which moment of the past is shown, on today's clock."""
        moment = self.rows_moment
        if self._past is not None and moment is not None:
            ago_s = time.monotonic() - moment.time_s
            self._bar.show_past(moment, self._past.model.step, ago_s)

    # --- going back and forth ---

    def go_to_time(self, time_s: float) -> None:
        """Shows the pool as it was then; at the right edge, the present."""
        history = self._history
        if not history.moments:
            return
        if time_s >= (self._frozen_s if self._past else history.moments[-1].time_s):
            self.go_live()
        else:
            self.go_to(history.position_at(time_s))

    def step(self, direction: int) -> None:
        """One engine step back (-1) or on (1)."""
        history = self._history
        if self._past is None:
            if direction < 0 and history.end > history.first:
                self.go_to(history.step_start(history.end, -1))
            return
        position = history.step_start(self._past.position, direction)
        if direction > 0 and position >= history.end:
            self.go_live()
        else:
            self.go_to(position)

    def go_to(self, position: int) -> None:
        """Shows the pool after so many events."""
        if self._model is None:
            return
        if self._past is None:
            self._past = Past(self._model, self._history)
            self._frozen_s = self._history.moments[-1].time_s
            self._tell_timer.start()
            self._view.set_model(self._past.model)
        self._target = position
        if not self._seek_timer.isActive():
            self._seek_on()

    def go_live(self) -> None:
        """Shows the present again. Does nothing in the present."""
        if self._past is not None:
            self._leave()
            self.returned.emit()

    def _seek_on(self) -> None:
        past = self._past
        if past is None:
            self._seek_timer.stop()
            return
        if past.seek(self._target, SLICE_S):
            self._seek_timer.stop()
        elif not self._seek_timer.isActive():
            self._seek_timer.start(0)
        self._view.show_changes(*past.model.take_dirty())
        self._view.show_words()
        start = past.position - TAPE_EVENTS
        self._view.tape.replace(self._history.events(start, past.position))
        self.show_bar()
        self.moved.emit()
