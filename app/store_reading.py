"""A conversation read from the database. Qt-free."""

from __future__ import annotations

import sqlite3

from app.conversation import Attachment, Conversation, Message
from app.store_rows import conversation_from_row, message_from_row


def read_conversation(
    reader: sqlite3.Connection, conversation_id: str
) -> tuple[Conversation, list[Message]] | None:
    """A conversation with its messages but the deleted ones; None if it is not stored.

    Second: messages that were moved up, because what they stood below is deleted or gone.

    Raises:
        sqlite3.DatabaseError: it cannot be read.
    """
    key = (conversation_id,)
    row = reader.execute("SELECT * FROM conversations WHERE conversation_id = ?", key).fetchone()
    if row is None:
        return None
    conversation = conversation_from_row(row)
    for message_row in reader.execute(
        "SELECT * FROM messages WHERE conversation_id = ? AND deleted_at IS NULL"
        " ORDER BY created_at, rowid",
        key,
    ):
        message = message_from_row(message_row)
        conversation.messages[message.message_id] = message
    moved = conversation.orphans()
    for message in moved:
        message.parent_id = _living_parent(reader, conversation, message.parent_id)
    attachments = reader.execute(
        "SELECT name, text FROM draft_attachments WHERE conversation_id = ? ORDER BY position",
        key,
    )
    conversation.attachments = tuple(Attachment(row[0], row[1]) for row in attachments)
    return conversation, moved


def _living_parent(
    reader: sqlite3.Connection, conversation: Conversation, message_id: str | None
) -> str | None:
    """The nearest message that is there, from ``message_id`` upwards."""
    seen: set[str] = set()
    while message_id and message_id not in conversation.messages and message_id not in seen:
        seen.add(message_id)
        row = reader.execute(
            "SELECT parent_id FROM messages WHERE message_id = ?", (message_id,)
        ).fetchone()
        message_id = None if row is None else row[0]
    return message_id if message_id in conversation.messages else None
