"""What the live panel asks for besides the stream: a block's text, and what a draft would do."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge import Bridge
from app.cache_panel.block_texts import BlockTexts
from app.cache_panel.forecast import forecast_words
from app.cache_panel.names import Names
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_view import PoolView
from app.session import Session
from engine.api.events import Event


class LiveAsides(QObject):
    """Fills in ``view`` between ``start`` and ``stop``; ``live_model`` gives the present pool.

    Signals:
        block_text_found(block_id, text): of the block that is pointed at.
    """

    block_text_found = Signal(int, str)

    def __init__(
        self,
        bridge: Bridge,
        session: Session,
        names: Names,
        view: PoolView,
        live_model: Callable[[], PoolModel | None],
    ) -> None:
        super().__init__(view)
        self._session = session
        self._names = names
        self._view = view
        self._live_model = live_model
        self._is_on = False
        self._texts = BlockTexts(bridge, self)
        self._texts.text_found.connect(view.show_block_text)
        self._texts.text_found.connect(self.block_text_found)
        view.block_pointed.connect(self._on_view_block_pointed)
        session.active_conversation_changed.connect(self.show_forecast)
        session.gauges.changed.connect(self.show_forecast)

    def start(self) -> None:
        """The panel can be seen."""
        self._is_on = True

    def stop(self) -> None:
        """It is hidden: nothing is asked or shown any more."""
        self._is_on = False
        self._texts.stop()

    def take(self, event: Event) -> None:
        """Takes what the engine tells."""
        self._texts.take(event)

    @Slot()
    def show_forecast(self) -> None:
        """What the draft in front would do; nothing while the past is shown."""
        if not self._is_on:
            return
        gauge = self._session.gauges.of(self._session.active_conversation_id)
        live = self._live_model()
        if gauge is None or live is None or self._view.model is not live:
            self._view.show_forecast("", ())
        else:
            text = forecast_words(gauge, self._names)
            self._view.show_forecast(text, gauge.evicted_blocks if text else ())

    @Slot(int)
    def _on_view_block_pointed(self, block_id: int) -> None:
        """Asks for the block's text; of the past only if the pool still has it."""
        shown, live = self._view.model, self._live_model()
        if shown is not None and live is not None and block_id >= 0:
            now, then = int(live.block_hash[block_id]), int(shown.block_hash[block_id])
            # Two unfinished blocks have no hash to be told apart by.
            if shown is not live and (now != then or not then):
                shown = None
        self._texts.want(shown, block_id)
