"""What the writer thread does to the database, one change each. Qt-free."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from app.conversation import Attachment, Conversation, Message
from app.store_rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    message_row,
    pack_ids,
    upsert_sql,
)
from app.store_search import index_later, index_slice
from app.store_writer import GivenUpError, Job

DELETED_KEPT_S = 30 * 86_400.0
"""How long deleted conversations and messages can be brought back."""

# How much of what was deleted long ago goes at a time; a conversation takes its messages with it.
_SLICES = {"conversations": 1, "messages": 20}
_T = TypeVar("_T")

SAVE_CONVERSATION = upsert_sql("conversations", CONVERSATION_COLUMNS)
_SAVE_MESSAGE = upsert_sql("messages", MESSAGE_COLUMNS)
# Only while it is streaming: after a failed write this may run after the whole message's.
_SAVE_PARTIAL = (
    "UPDATE messages SET content = ?, prompt_ids = ?, output_ids = ?, covered_chars = ?,"
    " fingerprint = ? WHERE message_id = ? AND status = 'streaming'"
)
_SAVE_PARTIAL_TEXT = "UPDATE messages SET content = ? WHERE message_id = ? AND status = 'streaming'"


def execute(sql: str, values: tuple[object, ...]) -> Job:
    """One statement."""

    def job(connection: sqlite3.Connection) -> None:
        connection.execute(sql, values)

    return job


def save_message(conversation_id: str, message: Message) -> Job:
    """A message as it is now."""
    return execute(_SAVE_MESSAGE, message_row(conversation_id, message))


def save_partial(message: Message) -> Job:
    """Text and ids that an answer has now; more ids may be appended meanwhile."""
    content, key, turn = message.content, message.message_id, message.turn
    ids, count = message.streamed_ids, len(message.streamed_ids)

    def job(connection: sqlite3.Connection) -> None:
        if turn is None:
            connection.execute(_SAVE_PARTIAL_TEXT, (content, key))
            return
        # Packed here: that takes a while for a long answer, and most of these jobs never run.
        packed = pack_ids(turn.prompt_ids), pack_ids(ids[:count])
        values = (content, *packed, len(content), turn.fingerprint, key)
        connection.execute(_SAVE_PARTIAL, values)

    return job


def save_attachments(conversation_id: str, attachments: Sequence[Attachment]) -> Job:
    """All attachments of a draft, in place of those before."""
    rows = [(conversation_id, n, a.name, a.text) for n, a in enumerate(attachments)]

    def job(connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM draft_attachments WHERE conversation_id = ?", (conversation_id,)
        )
        connection.executemany("INSERT INTO draft_attachments VALUES (?, ?, ?, ?)", rows)

    return job


def delete_conversation(conversation_id: str) -> Job:
    """A conversation with everything that is in it."""

    def job(connection: sqlite3.Connection) -> None:
        # All, because what is queued in this batch may have no stored conversation to go with.
        for table in ("draft_attachments", "messages", "conversations"):
            connection.execute(f"DELETE FROM {table} WHERE conversation_id = ?", (conversation_id,))

    return job


def add_conversations(
    connection: sqlite3.Connection,
    headers: Iterable[tuple[object, ...]],
    conversations: Sequence[Conversation],
    is_given_up: Callable[[], bool],
) -> None:
    """Conversations whole, whose messages are indexed later. ``headers``: their rows.

    ``is_given_up`` is asked again and again.

    Raises:
        GivenUpError: it said True.
    """

    def wanted(rows: Iterable[_T]) -> Iterator[_T]:
        for row in rows:
            if is_given_up():
                raise GivenUpError
            yield row

    connection.executemany(SAVE_CONVERSATION, wanted(headers))
    # The oldest first: a search begins with what was stored last.
    messages = [
        (message.created_at, conversation.conversation_id, message)
        for conversation in conversations
        for message in conversation.messages.values()
    ]
    messages.sort(key=lambda entry: entry[0])
    index_later(connection, wanted(message.message_id for _, _, message in messages))
    rows = wanted(message_row(owner, message) for _, owner, message in messages)
    connection.executemany(_SAVE_MESSAGE, rows)


def tidy(connection: sqlite3.Connection) -> bool:
    """Some work for an idle writer: what was deleted long ago goes, new messages are indexed.

    Milliseconds each time, because other writing waits for it. False if nothing is left to do.
    """
    before = time.time() - DELETED_KEPT_S
    for table, count in _SLICES.items():
        deleted = connection.execute(
            f"DELETE FROM {table} WHERE rowid IN"
            f" (SELECT rowid FROM {table} WHERE deleted_at < ? LIMIT ?)",
            (before, count),
        )
        if deleted.rowcount:
            return True
    return index_slice(connection)
