"""A recording in the cache panel, with no engine."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.cache_panel.lane import recorded_lane
from app.cache_panel.pool_view import PoolView
from app.cache_panel.trace_bar import TraceBar
from app.cache_panel.trace_player import TracePlayer
from app.theme import ThemeManager

SLICE_S = 0.02
TAPE_EVENTS = 4000
"""So many events before the present place fill the tape after a jump."""


class TracePanel(QWidget):
    """Reads, plays and scrubs in slices of ``SLICE_S``, so that the window stays awake."""

    def __init__(
        self, player: TracePlayer, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.player = player
        self.bar = TraceBar(themes)
        self.view = PoolView(themes, player.names, self.bar, "")
        self._target: int | None = None
        self._tape_position = 0
        self._num_names = 0
        self._load_timer = self._timer(self._on_load_timer_timeout)
        self._seek_timer = self._timer(self._on_seek_timer_timeout)
        self._play_timer = self._timer(self._on_play_timer_timeout)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.view)
        self.bar.play_requested.connect(self._on_bar_play_requested)
        self.bar.step_requested.connect(self._on_bar_step_requested)
        self.bar.place_requested.connect(self.go_to)
        self.bar.rate_box.currentIndexChanged.connect(self._on_rate_changed)
        self.view.set_model(player.model)
        self._show_place()
        self.bar.play_button.setFocus()
        self._load_timer.start(0)

    def _timer(self, slot: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.timeout.connect(slot)
        return timer

    # --- moving ---

    def go_to(self, step_index: int) -> None:
        """Shows the pool after so many steps; a place that was asked for before is given up."""
        starts = self.player.starts
        self._target = starts[max(0, min(step_index, len(starts) - 1))]
        if not self._seek_timer.isActive():
            self._on_seek_timer_timeout()

    def stop(self) -> None:
        """No timer runs from now on."""
        for timer in (self._load_timer, self._seek_timer, self._play_timer):
            timer.stop()

    def _on_seek_timer_timeout(self) -> None:
        target = self._target
        if target is None:
            self._seek_timer.stop()
            return
        if self.player.seek(target, SLICE_S):
            self._target = None
            self._seek_timer.stop()
        elif not self._seek_timer.isActive():
            self._seek_timer.start(0)
        self._show()

    def _on_bar_step_requested(self, steps: int) -> None:
        self._set_playing(False)
        index = self.player.step_index
        inside = self.player.starts[index] != self.player.position
        self.go_to(index + steps + (1 if steps < 0 and inside else 0))

    def _on_bar_play_requested(self, wanted: bool) -> None:
        if wanted and self.player.is_loaded and self.player.position >= self.player.end:
            self.go_to(0)
        self._set_playing(wanted)

    def _set_playing(self, playing: bool) -> None:
        if playing:
            self._play_timer.start(max(1, round(1000 / self.bar.rate)))
        else:
            self._play_timer.stop()
        self.bar.show_playing(playing)

    def _on_rate_changed(self) -> None:
        if self.bar.is_playing:
            self._set_playing(True)

    def _on_play_timer_timeout(self) -> None:
        player = self.player
        if self._target is not None:
            return
        if player.position >= player.end or player.step_index >= player.num_steps:
            if player.is_loaded:
                self._set_playing(False)
            return
        self.go_to(player.step_index + 1)

    # --- reading and showing ---

    def _on_load_timer_timeout(self) -> None:
        if self.player.load(SLICE_S):
            self._load_timer.stop()
        if len(self.player.names.open_ids()) != self._num_names:
            self._num_names = len(self.player.names.open_ids())
            self.view.forget_names()
        self._show_place()

    def _show(self) -> None:
        player = self.player
        self.view.show_changes(*player.model.take_dirty())
        self.view.show_words()
        self._show_lane()
        position, shown = player.position, self._tape_position
        if shown <= position <= shown + TAPE_EVENTS:
            self.view.tape.add(player.events[shown:position])
        else:
            self.view.tape.replace(player.events[max(0, position - TAPE_EVENTS) : position])
        self._tape_position = position
        self._show_place()

    def _show_lane(self) -> None:
        player = self.player
        index = player.step_index
        if index and player.position == player.starts[index]:
            # Between two steps the one before is the newest.
            index -= 1
        events = player.events[player.starts[index] : player.position]
        self.view.show_lane(*recorded_lane(player.model, events), 0.0)

    def _show_place(self) -> None:
        player = self.player
        self.view.badge.show_faults([player.trouble] if player.trouble else [])
        self.view.show_trouble(player.trouble)
        self.bar.show_place(
            player.step_index,
            player.num_steps,
            player.model.step,
            player.position,
            player.is_loaded,
        )
