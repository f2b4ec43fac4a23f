"""Numbers and titles of conversations. Free of Qt."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from app.session import Session


class Names(Protocol):
    """Numbers and titles of conversations, as the panel needs them.

    ``keeps_titles``: whether a title tells one conversation from another.
    """

    keeps_titles: bool

    def number_of(self, conversation_id: str) -> int:
        """Number from 1, or 0 for a conversation that is not open."""

    def title_of(self, conversation_id: str) -> str:
        """Title, or empty."""

    def open_ids(self) -> Collection[str]:
        """Open conversations."""


class SessionNames:
    """Numbers and titles of the session's open conversations."""

    keeps_titles = True

    def __init__(self, session: Session) -> None:
        self._session = session

    def number_of(self, conversation_id: str) -> int:
        """The number on its tab, or 0 if it is not open."""
        try:
            return self._session.conversation(conversation_id).number
        except KeyError:
            return 0

    def title_of(self, conversation_id: str) -> str:
        """Its title, or empty."""
        try:
            return self._session.conversation(conversation_id).title
        except KeyError:
            return ""

    def open_ids(self) -> Collection[str]:
        """Open conversations."""
        return self._session.conversation_ids()
