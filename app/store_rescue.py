"""What can still be read of a damaged database goes into the new one. Qt-free."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from app.store_rows import CONVERSATION_COLUMNS, MESSAGE_COLUMNS
from app.store_uri import read_only_uri

_LOG = logging.getLogger(__name__)

_TABLES = {
    "conversations": CONVERSATION_COLUMNS,
    "messages": (*MESSAGE_COLUMNS, "deleted_at"),
    "state": ("name", "value"),
    "system_prompts": ("prompt_id", "name", "text", "created_at", "updated_at"),
    "draft_attachments": ("conversation_id", "position", "name", "text"),
}


def rescue(damaged: Path, connection: sqlite3.Connection) -> int:
    """Copies what ``damaged`` still gives into the empty database. Returns how many messages.

    Only from one of the same schema. Never fails: what cannot be read stays in the damaged file.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    try:
        with closing(sqlite3.connect(read_only_uri(damaged), uri=True)) as source:
            source.text_factory = _text
            if source.execute("PRAGMA user_version").fetchone()[0] != version:
                return 0
            return _copy(source, connection)
    except sqlite3.Error as error:
        _LOG.warning("nothing could be taken over: %s", error)
        return 0


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> int:
    target.execute("BEGIN IMMEDIATE")
    try:
        target.execute("PRAGMA defer_foreign_keys = ON")
        for table, columns in _TABLES.items():
            marks = ", ".join("?" * len(columns))
            names = ", ".join(columns)
            insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
            for row in _rows(source, table, names):
                if table == "messages":
                    # Indexed later: a long history would keep the window waiting.
                    target.execute(
                        "INSERT OR IGNORE INTO search_documents (message_id, is_indexed)"
                        " VALUES (?, 0)",
                        (row[0],),
                    )
                target.execute(insert, row)
        _mend(target)
        target.execute("COMMIT")
    except BaseException:
        if target.in_transaction:
            target.execute("ROLLBACK")
        raise
    return int(target.execute("SELECT count(*) FROM messages").fetchone()[0])


def _rows(source: sqlite3.Connection, table: str, names: str) -> Iterator[tuple[Any, ...]]:
    """From the front as far as it goes, and then from the back. Rows may come twice."""
    directions = ("",) if table == "state" else ("ORDER BY rowid", "ORDER BY rowid DESC")
    for order in directions:
        with suppress(sqlite3.Error):
            # Not by an index: more often than not it is one that is damaged.
            yield from source.execute(f"SELECT {names} FROM {table} NOT INDEXED {order}")
            return


def _mend(target: sqlite3.Connection) -> None:
    """Messages whose conversation or parent could not be read get others."""
    now = time.time()
    target.execute(
        "INSERT INTO conversations (conversation_id, title, title_is_automatic, number,"
        " system_prompt, is_open, forked_from_id, draft, created_at, updated_at)"
        " SELECT DISTINCT conversation_id, '', 1, 1, '', 0, '', '', ?, ? FROM messages"
        " WHERE conversation_id NOT IN (SELECT conversation_id FROM conversations)",
        (now, now),
    )
    target.execute(
        "DELETE FROM draft_attachments"
        " WHERE conversation_id NOT IN (SELECT conversation_id FROM conversations)"
    )
    target.execute(
        "UPDATE messages SET parent_id = NULL"
        " WHERE parent_id NOT IN (SELECT message_id FROM messages)"
    )
    target.execute(
        "DELETE FROM search_documents WHERE message_id NOT IN (SELECT message_id FROM messages)"
    )
    target.execute("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")
