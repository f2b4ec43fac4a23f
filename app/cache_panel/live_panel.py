"""The cache panel's content: who holds which blocks, live. Works only while it can be seen."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget
from shiboken6 import isValid

from app.bridge import Bridge
from app.cache_panel.branch_page import BranchPage
from app.cache_panel.history import Moment
from app.cache_panel.lane import Lane
from app.cache_panel.live_asides import LiveAsides
from app.cache_panel.meter import Meter, Pacer
from app.cache_panel.metrics_watch import MetricsWatch
from app.cache_panel.names import SessionNames
from app.cache_panel.pace_bar import PaceBar
from app.cache_panel.panel import MINIMUM_HEIGHT, MINIMUM_WIDTH
from app.cache_panel.pool_feed import PoolFeed
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_view import PoolView
from app.cache_panel.recorder import Recorder
from app.cache_panel.scrubber import TAPE_EVENTS, Scrubber
from app.cache_panel.time_bar import TimeBar
from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.theme import ThemeManager
from engine.api.events import BlockEvents, Event, PoolEvent, PrefillProgress, RequestWaiting

REFRESH_MS = 100
SLOWEST_REFRESH_MS = 500
CORE_SHARE = 0.009
"""Where the panel would take more of a core, it refreshes less often. What Qt itself does for it,
about half as much again, is not counted in this."""
WORDS_MS = 500
NAMES_MS = 60
FIRST_WAIT_MS = 20
LAST_WAIT_MS = 2000
RESUBSCRIBE_S = 1.0


class LivePanel(QWidget):
    """The pool of the running engine, its pace, its last minute, and recordings of it.

    Subscribes when shown and unsubscribes when hidden; hidden it holds no subscription and runs no
    timer, but a recording goes on. At most one refresh every ``REFRESH_MS``, and fewer on a machine
    on which they would take more than ``CORE_SHARE`` of a core.

    ``block_text_found(block_id, text)``: of the block that is pointed at.
    """

    block_text_found = Signal(int, str)

    def __init__(
        self,
        bridge: Bridge,
        session: Session,
        theme: ThemeManager,
        parent: QWidget | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """``recorder``: one that is at work already."""
        super().__init__(parent)
        self.recorder = recorder or Recorder(bridge, self)
        self.recorder.setParent(self)
        self._bridge = bridge
        self._session = session
        self._names = SessionNames(session)
        self._feed = PoolFeed()
        self._events: list[PoolEvent] = []
        self._subscribed = False
        self._last_refresh_s = 0.0
        self._last_words_s = 0.0
        self._last_subscription_s = 0.0
        self._refresh_timer = self._single_shot(self._on_refresh_timer_timeout)
        self._words_timer = self._single_shot(self._on_words_timer_timeout)
        self._wait_timer = self._single_shot(self._on_wait_timer_timeout)
        self._names_timer = self._single_shot(self._forget_names)
        self._lane = Lane()
        self._named: dict[str, tuple[int, str]] = {}
        self._meter = Meter()
        self._pacer = Pacer(self._meter, CORE_SHARE, REFRESH_MS, SLOWEST_REFRESH_MS)
        self._build(theme)
        for signal in (
            session.conversation_added,
            session.conversation_closed,
            session.conversation_changed,
        ):
            signal.connect(self._on_session_conversation_changed)
        session.model_state_changed.connect(self._on_session_model_state_changed)

    def _build(self, theme: ThemeManager) -> None:
        bridge, session = self._bridge, self._session
        self.pace = PaceBar(bridge, theme, self.recorder)
        self.time_bar = TimeBar(theme, self._meter)
        self.pace.add_tools(self.time_bar.buttons)
        empty = tr("The pool appears here when a model is loaded.")
        self.view = PoolView(
            theme,
            self._names,
            self.pace,
            empty,
            time_bar=self.time_bar,
            meter=self._meter,
        )
        self.metrics = MetricsWatch(bridge, theme, self._meter, self)
        self.view.pages.add_page(tr("Metrics"), self.metrics.view)
        self.branches = BranchPage(bridge, session, theme, self._names)
        self.branches.block_hovered.connect(self.view.point_at)
        self.view.pages.add_page(tr("Branches"), self.branches)
        self._asides = LiveAsides(bridge, session, self._names, self.view, lambda: self.model)
        self._asides.block_text_found.connect(self.block_text_found)
        self.view.badge.offers_diagnostics = True
        self.scrubber = Scrubber(self.view, self.time_bar, self)
        self.scrubber.returned.connect(self._on_scrubber_returned)
        self.scrubber.moved.connect(self._show_lane)
        self.view.add_to_heading(self.pace.state_label)
        # What a step of the engine does is to be seen, not what was before.
        self.pace.step_button.clicked.connect(self.scrubber.go_live)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.view)
        self.setMinimumSize(MINIMUM_WIDTH, MINIMUM_HEIGHT)

    @property
    def model(self) -> PoolModel | None:
        """The pool as the panel knows it; None while it waits for a snapshot."""
        return self._feed.model

    def remember(self, model: PoolModel) -> None:
        """What another panel knew of the same pool."""
        self._feed.remember(model)

    def give_recorder(self) -> Recorder | None:
        """The recorder, if it is at work: it outlives this panel."""
        if not self.recorder.is_recording:
            return None
        self.recorder.setParent(None)
        return self.recorder

    @property
    def _has_pool(self) -> bool:
        """False from the moment a model is to go: the engine may still tell of its pool then."""
        return self._session.model_state.status is ModelStatus.READY

    @property
    def restarts(self) -> int:
        """How often the stream did not fit and the panel started again from a snapshot."""
        return self._feed.restarts

    def _single_shot(self, slot: object) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.timeout.connect(slot)
        return timer

    # --- the stream ---

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._subscribed:
            self._subscribe()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        # A window that is destroyed while open hides its children, perhaps after their bridge.
        if self._subscribed and isValid(self._bridge):
            self._unsubscribe()

    def _subscribe(self) -> None:
        self._subscribed = True
        self._last_subscription_s = time.monotonic()
        # While a recording or another panel goes on the engine never stopped sending, and sends
        # nothing anew.
        stale = None if self._bridge.is_subscribed else self._bridge.latest_snapshot()
        self._feed.begin(stale)
        self.view.tape.clear()
        self._bridge.block_events_received.connect(self._on_bridge_block_events_received)
        self._bridge.engine_event.connect(self._on_bridge_engine_event)
        self.metrics.start()
        self._asides.start()
        self._bridge.subscribe_pool()
        self._wait_timer.start(FIRST_WAIT_MS)

    def _unsubscribe(self) -> None:
        self._subscribed = False
        self._bridge.unsubscribe_pool()
        self._bridge.block_events_received.disconnect(self._on_bridge_block_events_received)
        self._bridge.engine_event.disconnect(self._on_bridge_engine_event)
        for timer in (self._refresh_timer, self._wait_timer, self._words_timer):
            timer.stop()
        self.scrubber.stop()
        self._feed.forget_history()
        self._asides.stop()
        self.metrics.stop()
        self._events.clear()

    @Slot(object)
    def _on_bridge_block_events_received(self, batch: BlockEvents) -> None:
        if not self._has_pool:
            return
        self._events.extend(batch.events)
        self._refresh_soon()

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if isinstance(event, PrefillProgress):
            self._lane.note_progress(event)
        elif isinstance(event, RequestWaiting):
            self._lane.note_waiting(event)
        else:
            self._asides.take(event)

    def _refresh_soon(self) -> None:
        if not self._subscribed or self._refresh_timer.isActive():
            return
        interval_ms = self._pacer.interval_ms
        waited_ms = (time.monotonic() - self._last_refresh_s) * 1000
        if waited_ms >= interval_ms:
            self.refresh()
        else:
            self._refresh_timer.start(max(1, round(interval_ms - waited_ms)))

    def _on_refresh_timer_timeout(self) -> None:
        self.refresh()

    def _on_wait_timer_timeout(self) -> None:
        """An idle engine sends a snapshot and no event: look for it, less and less often."""
        self.refresh()
        waited_ms = self._wait_timer.interval()
        if self.model is None and waited_ms < LAST_WAIT_MS:
            self._wait_timer.start(2 * waited_ms)

    @Slot()
    def _on_session_model_state_changed(self) -> None:
        if not self._has_pool:
            self.recorder.stop()
            self.metrics.part()
            self._events.clear()
            was_shown = self.model is not None
            self._feed.begin(self._feed.newest)
            if was_shown:
                # The pool went with its model.
                self.view.set_model(None)
                self.branches.show_pool(None)
                self.view.tape.clear()
                self.scrubber.follow(None, self._feed.history)
                self.scrubber.show_bar()
                self.pace.set_model_present(False)
        else:
            self.metrics.join()
            if self._subscribed:
                # The pool's first snapshot comes before word of its model, and was left alone.
                self._wait_timer.start(FIRST_WAIT_MS)

    # --- showing ---

    def refresh(self) -> None:
        """Folds what has come and shows it."""
        self._last_refresh_s = time.monotonic()
        self._pacer.note_refresh()
        with self._meter:
            self._refresh()

    def _refresh(self) -> None:
        if not self._has_pool:
            return
        events, self._events = self._events, []
        snapshot = self._bridge.latest_snapshot()
        replaced = self._feed.take(snapshot, events)
        model = self.model
        if model is None:
            return
        rows = self._lane.rows
        if snapshot is not None:
            self._lane.take(snapshot)
        if events or replaced or self._lane.rows != rows:
            self._mark(model)
        self.scrubber.follow(model, self._feed.history)
        if replaced:
            self._show_present()
            self.pace.set_model_present(True)
            self._show_words()
        elif not self.scrubber.is_past:
            self.view.tape.add(events)
            self.view.show_changes(*model.take_dirty())
        if not self._words_timer.isActive():
            # At once after a rest, so that a single step is seen as a whole.
            shown_ms = (time.monotonic() - self._last_words_s) * 1000
            self._words_timer.start(max(0, round(WORDS_MS - shown_ms)))
        if model.inconsistency:
            self._start_over()

    def _mark(self, model: PoolModel) -> None:
        history = self._feed.history
        history.mark(
            Moment(
                time.monotonic(), history.end, model.step, model.counts, model.saved_blocks,
                self._lane.rows, self._lane.work,
            )
        )  # fmt: skip

    def _show_present(self) -> None:
        """The live model, from the beginning."""
        history = self._feed.history
        self.view.set_model(self.model)
        self.view.tape.replace(history.events(history.end - TAPE_EVENTS, history.end))
        self._asides.show_forecast()

    def _on_scrubber_returned(self) -> None:
        self._show_present()
        self._show_words()

    def _show_words(self) -> None:
        """Figures and labels: a few times a second, since no eye follows faster."""
        self._last_words_s = time.monotonic()
        with self._meter:
            model = self.model
            if model is not None:
                if not self.scrubber.is_past:
                    self.view.show_words()
                self.branches.show_pool(model)
                self.scrubber.show_bar()
                self._show_lane()
                self._show_trouble(model)

    @Slot()
    def _show_lane(self) -> None:
        moment = self.scrubber.rows_moment
        if moment is not None:
            is_past = self.scrubber.is_past
            work = moment.work if is_past else self._lane.work
            rate = 0.0 if is_past else self._lane.steps_per_s
            self.view.show_lane(moment.rows, work, rate)

    def _on_words_timer_timeout(self) -> None:
        self._show_words()

    def _show_trouble(self, model: PoolModel) -> None:
        text = model.invariant_message if model.invariant_violations else ""
        faults = [text] if text else []
        if self._feed.trouble:
            faults.append(self._feed.trouble)
        if model.inconsistency:
            text = tr("The panel lost track of the pool and starts again.")
        self.view.badge.show_faults(faults)
        self.view.show_trouble(text)

    def _start_over(self) -> None:
        """Asks for a new snapshot, not more often than once in ``RESUBSCRIBE_S``."""
        if time.monotonic() - self._last_subscription_s > RESUBSCRIBE_S:
            self._unsubscribe()
            self._subscribe()

    @Slot(str)
    def _on_session_conversation_changed(self, _conversation_id: str) -> None:
        names = self._names
        named = {name: (names.number_of(name), names.title_of(name)) for name in names.open_ids()}
        # Told of every turn too, which changes neither.
        if named == self._named:
            return
        self._named = named
        if not self.isVisible():
            self._forget_names()
        elif not self._names_timer.isActive():
            # Tabs that are asked together are named together.
            self._names_timer.start(NAMES_MS)

    @Slot()
    def _forget_names(self) -> None:
        with self._meter:
            self.view.forget_names()
            self.branches.forget_names()
