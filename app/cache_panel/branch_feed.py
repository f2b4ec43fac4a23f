"""Asks the engine where the branches of the conversation in front lie in the pool."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.bridge import Bridge
from app.cache_panel.branches import Branch, branches_of, family_of
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import GhostTable
from app.conversation import Conversation, new_id
from app.session import Session
from engine.api.commands import LocateBlocks
from engine.api.events import BlocksLocated, CommandFailed, Event

DELAY_MS = 250
Key = tuple[str, str]


class BranchFeed(QObject):
    """Works between ``start`` and ``stop`` only. ``changed``: branches or their blocks.

    ``branches`` in order; ``found`` and ``num_blocks`` by (conversation, leaf), as far as the
    engine has answered.
    """

    changed = Signal()

    def __init__(self, bridge: Bridge, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._session = session
        self._model: PoolModel | None = None
        self.branches: list[Branch] = []
        self.found: dict[Key, GhostTable] = {}
        self.num_blocks: dict[Key, int] = {}
        self._asked: dict[str, Key] = {}
        self._is_on = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(DELAY_MS)
        self._timer.timeout.connect(self._ask)
        for signal in (
            session.active_conversation_changed,
            session.path_changed,
            session.message_added,
            session.message_removed,
            session.message_changed,
            session.conversation_added,
            session.conversation_closed,
            session.model_state_changed,
        ):
            signal.connect(self._on_session_changed)
        bridge.engine_event.connect(self._on_bridge_engine_event)

    def start(self) -> None:
        """Somebody looks."""
        if not self._is_on:
            self._is_on = True
            self._timer.start(0)

    def stop(self) -> None:
        """Nobody looks any more."""
        self._is_on = False
        self._timer.stop()
        self._asked.clear()

    def follow(self, model: PoolModel | None) -> None:
        """The pool in which the blocks lie; another one has none of what was found."""
        if model is not self._model:
            self._model = model
            self.found.clear()
            self.num_blocks.clear()
            self._on_session_changed()

    @Slot()
    def _on_session_changed(self) -> None:
        if self._is_on and not self._timer.isActive():
            self._timer.start(DELAY_MS)

    def _ask(self) -> None:
        family = self._family()
        self.branches = branches_of(family)
        self._asked.clear()
        by_id = {c.conversation_id: c for c in family}
        for branch in self.branches:
            conversation = by_id[branch.conversation_id]
            command_id = new_id()
            self._asked[command_id] = (branch.conversation_id, branch.leaf_id)
            self._bridge.send(
                LocateBlocks(
                    branch.conversation_id,
                    conversation.chat_messages(up_to=branch.leaf_id),
                    conversation.context(up_to=branch.leaf_id),
                    command_id=command_id,
                )
            )
        self.changed.emit()

    def _family(self) -> list[Conversation]:
        session = self._session
        ids = session.conversation_ids()
        if session.active_conversation_id not in ids:
            return []
        known = [session.conversation(i) for i in ids]
        return family_of(session.conversation(session.active_conversation_id), known)

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if not self._asked or not isinstance(event, BlocksLocated | CommandFailed):
            return
        key = self._asked.pop(event.command_id, None)
        model = self._model
        if key is None or model is None or isinstance(event, CommandFailed):
            return
        hashes = tuple(model.block_hash[list(event.block_ids)].tolist())
        self.found[key] = GhostTable("", key[0], event.block_ids, hashes, 0, "")
        self.num_blocks[key] = -(-event.num_tokens // model.block_size)
        if 0 in hashes and self._is_on:
            # The panel's picture is behind the engine: it does not know these blocks yet.
            self._timer.start(DELAY_MS)
        if not self._asked:
            self.changed.emit()
