"""Names of conversations for the cache panel, without a session."""

from __future__ import annotations


class Numbers:
    """Conversations ``c1`` to ``c9`` without titles."""

    keeps_titles = False

    def number_of(self, conversation_id: str) -> int:
        return int(conversation_id[1:]) if conversation_id[1:].isdigit() else 0

    def title_of(self, conversation_id: str) -> str:
        return ""

    def open_ids(self) -> list[str]:
        return []
