"""The cache panel's content: who holds which blocks, live. Works only while it can be seen."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Slot
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget
from shiboken6 import isValid

from app.bridge import Bridge
from app.cache_panel.names import SessionNames
from app.cache_panel.pace_bar import PaceBar
from app.cache_panel.panel import MINIMUM_HEIGHT, MINIMUM_WIDTH
from app.cache_panel.pool_feed import PoolFeed
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_view import PoolView
from app.cache_panel.recorder import Recorder
from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.theme import ThemeManager
from engine.api.events import BlockEvents, PoolEvent

REFRESH_MS = 66
WORDS_MS = 250
FIRST_WAIT_MS = 20
LAST_WAIT_MS = 2000
RESUBSCRIBE_S = 1.0


class LivePanel(QWidget):
    """The pool of the running engine, its pace, and recordings of it.

    Subscribes when shown and unsubscribes when hidden; hidden it holds no subscription and runs no
    timer, but a recording goes on. At most one refresh every ``REFRESH_MS``.
    """

    def __init__(
        self, bridge: Bridge, session: Session, theme: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._session = session
        self._feed = PoolFeed()
        self._events: list[PoolEvent] = []
        self._subscribed = False
        self._last_refresh_s = 0.0
        self._last_subscription_s = 0.0
        self._refresh_timer = self._single_shot(self._on_refresh_timer_timeout)
        self._words_timer = self._single_shot(self._on_words_timer_timeout)
        self._wait_timer = self._single_shot(self._on_wait_timer_timeout)
        self.recorder = Recorder(bridge, self)
        self.pace = PaceBar(bridge, theme, self.recorder)
        empty = tr("The pool appears here when a model is loaded.")
        self.view = PoolView(theme, SessionNames(session), self.pace, empty)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.view)
        self.setMinimumSize(MINIMUM_WIDTH, MINIMUM_HEIGHT)
        for signal in (
            session.conversation_added,
            session.conversation_closed,
            session.conversation_changed,
        ):
            signal.connect(self._on_session_conversation_changed)
        session.model_state_changed.connect(self._on_session_model_state_changed)

    @property
    def model(self) -> PoolModel | None:
        """The pool as the panel knows it; None while it waits for a snapshot."""
        return self._feed.model

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
        # While a recording goes on the engine never stopped sending, and sends nothing anew.
        stale = None if self.recorder.is_recording else self._bridge.latest_snapshot()
        self._feed.begin(stale)
        self.view.tape.clear()
        self._bridge.block_events_received.connect(self._on_bridge_block_events_received)
        self._bridge.subscribe_pool()
        self._wait_timer.start(FIRST_WAIT_MS)

    def _unsubscribe(self) -> None:
        self._subscribed = False
        self._bridge.unsubscribe_pool()
        self._bridge.block_events_received.disconnect(self._on_bridge_block_events_received)
        self._refresh_timer.stop()
        self._wait_timer.stop()
        self._words_timer.stop()
        self._events.clear()

    @Slot(object)
    def _on_bridge_block_events_received(self, batch: BlockEvents) -> None:
        self._events.extend(batch.events)
        self._refresh_soon()

    def _refresh_soon(self) -> None:
        if not self._subscribed or self._refresh_timer.isActive():
            return
        waited_ms = (time.monotonic() - self._last_refresh_s) * 1000
        if waited_ms >= REFRESH_MS:
            self.refresh()
        else:
            self._refresh_timer.start(max(1, round(REFRESH_MS - waited_ms)))

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
        if self._session.model_state.status is not ModelStatus.READY:
            self.recorder.stop()
            if self.model is not None:
                # The pool went with its model.
                self._feed.begin(self._feed.newest)
                self.view.set_model(None)
                self.view.tape.clear()
                self.pace.set_model_present(False)
        if self._subscribed and not self._wait_timer.isActive():
            self._wait_timer.start(FIRST_WAIT_MS)

    # --- showing ---

    def refresh(self) -> None:
        """Folds what has come and shows it."""
        self._last_refresh_s = time.monotonic()
        events, self._events = self._events, []
        replaced = self._feed.take(self._bridge.latest_snapshot(), events)
        model = self.model
        if model is None:
            return
        self.view.tape.add(events)
        if replaced:
            self.view.set_model(model)
            self.pace.set_model_present(True)
            self._show_words()
        else:
            self.view.show_changes(*model.take_dirty())
            if not self._words_timer.isActive():
                self._words_timer.start(WORDS_MS)
        if model.inconsistency:
            self._start_over()

    def _show_words(self) -> None:
        """Figures and labels: a few times a second, since no eye follows faster."""
        model = self.model
        if model is not None:
            self.view.show_words()
            self._show_trouble(model)

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
        self.view.forget_names()
