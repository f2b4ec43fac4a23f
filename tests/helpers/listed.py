"""What the side bar's list shows."""

from __future__ import annotations

from app.models.conversations import ROW_ROLE, ConversationListModel, Row
from app.models.groups import Group


def entries(model: ConversationListModel) -> list[Row | Group]:
    return [model.index(n).data(ROW_ROLE) for n in range(model.rowCount())]


def listed(model: ConversationListModel) -> list[str]:
    """Titles of the conversations, from top to bottom."""
    return [entry.title for entry in entries(model) if isinstance(entry, Row)]


def headings(model: ConversationListModel) -> list[str]:
    """Keys of the groups, from top to bottom."""
    return [entry.key for entry in entries(model) if isinstance(entry, Group)]
