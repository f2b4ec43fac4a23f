"""The cache panel's content: who holds which blocks, live. Works only while it can be seen."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QVBoxLayout, QWidget
from shiboken6 import isValid

from app.bridge import Bridge
from app.cache_panel import words
from app.cache_panel.block_tables import BlockTables
from app.cache_panel.figures import Sharing, sharing_of_kept, sharing_of_live
from app.cache_panel.looks import Looks
from app.cache_panel.names import SessionNames
from app.cache_panel.panel import MINIMUM_HEIGHT, MINIMUM_WIDTH
from app.cache_panel.parts import FittingScrollArea, WrappedLabel, column, plain_label, set_text
from app.cache_panel.pool_feed import PoolFeed
from app.cache_panel.pool_grid import PoolGrid
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.strips import strips_of
from app.cache_panel.usage import UsageView
from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.theme import Theme, ThemeManager
from engine.api.events import BlockEvents, PoolEvent

REFRESH_MS = 66
WORDS_MS = 250
FIRST_WAIT_MS = 20
LAST_WAIT_MS = 2000
RESUBSCRIBE_S = 1.0
WIDE_FROM = 760
ROOMY_FROM = 560


class LivePanel(QWidget):
    """Pool grid, block tables, figures and savings.

    Subscribes when shown and unsubscribes when hidden; hidden it holds no subscription and runs no
    timer. At most one refresh every ``REFRESH_MS``.
    """

    def __init__(
        self, bridge: Bridge, session: Session, theme: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._session = session
        self._names = SessionNames(session)
        self._looks = Looks(self._names.number_of)
        self._feed = PoolFeed()
        self._events: list[PoolEvent] = []
        self._subscribed = False
        self._is_roomy = True
        self._last_refresh_s = 0.0
        self._last_subscription_s = 0.0
        self._tables_seen: tuple[int, int] = (0, -1)
        self._sharing = (Sharing(), Sharing())
        self._refresh_timer = self._single_shot(self._on_refresh_timer_timeout)
        self._words_timer = self._single_shot(self._on_words_timer_timeout)
        self._wait_timer = self._single_shot(self._on_wait_timer_timeout)
        self._build(theme.theme)
        theme.changed.connect(self._on_theme_changed)
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

    # --- making ---

    def _single_shot(self, slot: object) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.timeout.connect(slot)
        return timer

    def _build(self, theme: Theme) -> None:
        self._title = plain_label(tr("Cache"))
        self._title.setProperty("role", "heading")
        self._size = plain_label(tone="muted")
        self._trouble = WrappedLabel(1, "error")
        self._usage = UsageView(theme)
        self._grid = PoolGrid(self._looks, theme, self._describe)
        self._more = plain_label(tone="muted")
        self._more.hide()
        self._more.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._grid.num_hidden_changed.connect(self._on_grid_num_hidden_changed)
        self._block = WrappedLabel(3, "muted")
        self._savings = WrappedLabel(1)
        self._waste = WrappedLabel(1, "muted")
        self._tables = BlockTables(theme, self._describe)
        self._grid.block_hovered.connect(self._on_grid_block_hovered)
        self._tables.block_hovered.connect(self._on_tables_block_hovered)
        self._trouble.hide()
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._body.setContentsMargins(12, 12, 12, 12)
        self._body.setSpacing(12)
        self._body.addLayout(self._left_part(), 1)
        self._body.addLayout(self._right_part(), 0)
        # Less than the layout would ask for: a low panel drops what it can do without.
        self.setMinimumSize(MINIMUM_WIDTH, MINIMUM_HEIGHT)
        self._name_parts()
        self._show_block(-1)

    def _left_part(self) -> QVBoxLayout:
        head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        head.addWidget(self._title)
        head.addWidget(self._size, 1, Qt.AlignmentFlag.AlignRight)
        return column(head, self._trouble, self._usage, (self._grid, 1), self._more, self._block)

    def _right_part(self) -> QVBoxLayout:
        heading = plain_label(tr("Block tables"))
        heading.setProperty("role", "heading")
        scroll = FittingScrollArea(self._tables)
        self._tables.height_changed.connect(scroll.updateGeometry)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setAccessibleName(tr("Block tables"))
        card = QFrame()
        card.setProperty("role", "card")
        inside = column(self._savings, self._waste)
        inside.setContentsMargins(10, 8, 10, 8)
        inside.setSpacing(4)
        card.setLayout(inside)
        return column(card, heading, (scroll, 1))

    def _name_parts(self) -> None:
        self._grid.setAccessibleName(tr("Block pool"))
        self._tables.setAccessibleName(tr("Block tables"))
        self._usage.setAccessibleName(tr("Pool use"))

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
        self._feed.begin(self._bridge.latest_snapshot())
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
        if self._session.model_state.status is not ModelStatus.READY and self.model is not None:
            # The pool went with its model.
            self._feed.begin(self._feed.newest)
            self._grid.set_model(None)
            self._tables.set_strips([])
            self._show_block(-1)
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
        dirty, written = model.take_dirty()
        if replaced:
            self._grid.set_model(model)
            self._show_block(-1)
            self._show_words()
        else:
            self._grid.refresh(dirty, written)
            strips = strips_of(model, self._looks, self._names)
            self._tables.set_strips(strips, with_labels=False)
            if not self._words_timer.isActive():
                self._words_timer.start(WORDS_MS)
        if model.inconsistency:
            self._start_over()

    def _show_words(self) -> None:
        """Figures and labels: a few times a second, since no eye follows faster."""
        model = self.model
        if model is not None:
            self._show_figures(model)
            self._tables.set_strips(strips_of(model, self._looks, self._names))
            self._show_trouble(model)

    def _on_words_timer_timeout(self) -> None:
        self._show_words()

    def _show_figures(self, model: PoolModel) -> None:
        seen = (id(model), model.table_version)
        if seen != self._tables_seen or not model.tables:
            self._tables_seen = seen
            self._sharing = (sharing_of_live(model), sharing_of_kept(model))
        self._usage.show_pool(model)
        set_text(self._size, words.pool_size(model))
        self._savings.show_text(words.savings(model, *self._sharing))
        self._waste.show_text(words.waste(model))

    def _show_trouble(self, model: PoolModel) -> None:
        text = model.invariant_message if model.invariant_violations else ""
        if model.inconsistency:
            text = tr("The panel lost track of the pool and starts again.")
        self._trouble.show_text(text)
        self._trouble.setVisible(bool(text))

    def _start_over(self) -> None:
        """Asks for a new snapshot, not more often than once in ``RESUBSCRIBE_S``."""
        if time.monotonic() - self._last_subscription_s > RESUBSCRIBE_S:
            self._unsubscribe()
            self._subscribe()

    def _describe(self, block_id: int) -> str:
        return "" if self.model is None else "\n".join(self._facts(block_id))

    def _facts(self, block_id: int) -> list[str]:
        model = self.model
        return [] if model is None else words.block(model, self._names, block_id)

    def _show_block(self, block_id: int) -> None:
        if self.model is None:
            text = tr("The pool appears here when a model is loaded.")
        elif block_id < 0:
            text = tr("Point at a cell, or use the arrow keys, to read a block.")
        else:
            text = " · ".join(self._facts(block_id))
            self._grid.setAccessibleDescription(text)
        self._block.show_text(text)

    @Slot(int)
    def _on_grid_block_hovered(self, block_id: int) -> None:
        self._tables.set_highlight(block_id)
        self._show_block(block_id)

    @Slot(int)
    def _on_grid_num_hidden_changed(self, num_blocks: int) -> None:
        set_text(self._more, words.more_free(num_blocks))
        self._more.setVisible(self._is_roomy and num_blocks > 0)

    @Slot(int)
    def _on_tables_block_hovered(self, block_id: int) -> None:
        self._tables.set_highlight(block_id)
        self._grid.set_highlight([block_id] if block_id >= 0 else [])
        self._show_block(block_id)

    @Slot(object)
    def _on_theme_changed(self, theme: Theme) -> None:
        self._usage.set_theme(theme)
        self._grid.set_theme(theme)
        self._tables.set_theme(theme)

    @Slot(str)
    def _on_session_conversation_changed(self, _conversation_id: str) -> None:
        self._looks.forget_numbers()
        if self._subscribed and self.model is not None:
            self._grid.redraw()
            self._tables.set_strips(strips_of(self.model, self._looks, self._names))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= WIDE_FROM and self.width() > self.height()
        self._is_roomy = wide or self.height() >= ROOMY_FROM
        self._usage.show_legend(self._is_roomy)
        self._waste.setVisible(self._is_roomy)
        self._more.setVisible(self._is_roomy and self._grid.num_hidden > 0)
        direction = QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        if self._body.direction() != direction:
            self._body.setDirection(direction)
            # Under each other, the grid takes what the strips leave.
            self._body.setStretch(1, 1 if wide else 0)
