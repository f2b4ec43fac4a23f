"""The text whose KV a block holds, asked of the engine once somebody stays on the block."""

from __future__ import annotations

from collections import OrderedDict

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge import Bridge
from app.cache_panel.pool_model import PoolModel
from app.conversation import new_id
from engine.api.commands import BlockText
from engine.api.events import BlockTextReady, Event

DELAY_MS = 120
KEPT = 128

Key = tuple[int, int, int]


class BlockTexts(QObject):
    """Signals: text_found(block_id, text): of the block that was asked for last."""

    text_found = Signal(int, str)

    def __init__(self, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._known: OrderedDict[Key, str] = OrderedDict()
        self._wanted: Key | None = None
        self._asked: dict[str, Key] = {}
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(DELAY_MS)
        self._timer.timeout.connect(self._on_timer_timeout)

    def want(self, model: PoolModel | None, block_id: int) -> None:
        """Tells the block's text by ``text_found``: at once if it is known. -1: none is wanted."""
        self._timer.stop()
        self._wanted = None
        if model is None or block_id < 0 or not int(model.fill[block_id]):
            return
        # The same hash is the same text. An unfinished block has none: what is asked of it serves
        # this once, and what was asked before may have been of another conversation's.
        key = (block_id, int(model.block_hash[block_id]), int(model.fill[block_id]))
        if not key[1]:
            self._asked = {name: asked for name, asked in self._asked.items() if asked != key}
        self._wanted = key
        if key in self._known:
            self._known.move_to_end(key)
            self.text_found.emit(block_id, self._known[key])
        elif key not in self._asked.values():
            self._timer.start()

    def stop(self) -> None:
        """Nobody looks any more."""
        self._timer.stop()
        self._wanted = None
        self._asked.clear()

    def take(self, event: Event) -> None:
        """Takes a reply; anything else is left alone."""
        if not isinstance(event, BlockTextReady):
            return
        key = self._asked.pop(event.command_id, None)
        if key is None:
            return
        if key[1]:
            self._known[key] = event.text
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        if key == self._wanted:
            self.text_found.emit(event.block_id, event.text)

    def _on_timer_timeout(self) -> None:
        if self._wanted is not None:
            command_id = new_id()
            self._asked[command_id] = self._wanted
            self._bridge.send(BlockText(self._wanted[0], command_id=command_id))
