"""Tabs that were closed, so that closing can be undone, after a restart too."""

from __future__ import annotations

import json

from app.session import Session

_STATE = "closed_tabs"
_MAX = 20


class ClosedTabs:
    """The latest ``_MAX`` tabs that were closed, with their places in the row."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._closed = _read(session.window_state(_STATE))

    def add(self, conversation_id: str, index: int) -> None:
        """A tab is about to be closed."""
        self._closed.append((conversation_id, index))
        del self._closed[:-_MAX]
        self._save()

    def take(self) -> tuple[str, int] | None:
        """The one closed last that is still stored and not open, and its place; None if there is
        none.
        """
        found = None
        stored = {s.conversation_id for s in self._session.closed_conversations()}
        while self._closed and found is None:
            last = self._closed.pop()
            found = last if last[0] in stored else None
        self._save()
        return found

    def _save(self) -> None:
        self._session.set_window_state(_STATE, json.dumps(self._closed))


def _read(stored: str) -> list[tuple[str, int]]:
    try:
        return [(str(conversation_id), int(index)) for conversation_id, index in json.loads(stored)]
    except (ValueError, TypeError):
        return []
