"""Names for a recording's conversations, which it knows by their ids only. Free of Qt."""

from __future__ import annotations

from collections.abc import Collection

from app.i18n import tr
from engine.api.events import PoolEvent
from engine.api.snapshot import Snapshot


class TraceNames:
    """Numbers conversations in the order in which the recording mentions them."""

    keeps_titles = False

    def __init__(self, snapshot: Snapshot) -> None:
        self._numbers: dict[str, int] = {}
        for row in snapshot.requests:
            self._number(row.conversation_id)
        for owner in snapshot.owners:
            self._number(owner)

    def learn(self, event: PoolEvent) -> bool:
        """Takes note of the event's conversation. True if it was a new one."""
        before = len(self._numbers)
        self._number(event.conversation_id)
        return len(self._numbers) > before

    def _number(self, conversation_id: str) -> None:
        if conversation_id:
            self._numbers.setdefault(conversation_id, len(self._numbers) + 1)

    def number_of(self, conversation_id: str) -> int:
        """Number from 1, or 0 for one that is not in the recording."""
        return self._numbers.get(conversation_id, 0)

    def title_of(self, conversation_id: str) -> str:
        """A recording keeps no titles."""
        return tr("Conversation") if conversation_id in self._numbers else ""

    def open_ids(self) -> Collection[str]:
        """All that were mentioned so far."""
        return self._numbers.keys()
