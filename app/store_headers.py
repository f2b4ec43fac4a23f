"""What is known of every stored conversation without its messages, kept in memory. Qt-free."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from app.session_state import ConversationSummary
from app.store_jobs import DELETED_KEPT_S
from app.store_rows import CONVERSATION_COLUMNS, tags_from_text

Row = tuple[Any, ...]

_PLACE = {name: place for place, name in enumerate(CONVERSATION_COLUMNS)}
# Those that the writer deletes for good are gone already.
_ALL = (
    f"SELECT {', '.join(CONVERSATION_COLUMNS)} FROM conversations"
    " WHERE deleted_at IS NULL OR deleted_at >= ?"
)
_PROMPT = _PLACE["system_prompt"]


class Headers:
    """The rows of all conversations as they will be when everything queued has been written.

    Read from the database when they are first asked for. Thousands of rows are a few megabytes.
    """

    def __init__(self, connection: Callable[[], sqlite3.Connection]) -> None:
        """``connection`` gives the one to read from."""
        self._connection = connection
        self._rows: dict[str, Row] = {}
        self._removed: set[str] = set()
        self._summaries: dict[str, tuple[Row, ConversationSummary]] = {}
        self._is_loaded = False

    def put(self, rows: Iterable[Row]) -> None:
        """Notes rows that are being saved. Any thread."""
        added = {row[0]: row for row in rows}
        self._removed.difference_update(added)
        self._rows.update(added)

    def remove(self, conversation_id: str) -> None:
        """Forgets a row that is being deleted."""
        self._rows.pop(conversation_id, None)
        self._summaries.pop(conversation_id, None)
        self._removed.add(conversation_id)

    def row(self, conversation_id: str) -> Row | None:
        """Values of ``CONVERSATION_COLUMNS``, or None."""
        self._load()
        return self._rows.get(conversation_id)

    def changed(self, conversation_id: str, values: dict[str, Any]) -> Row | None:
        """The row with other values in the named columns; noted too. None if there is none."""
        row = self.row(conversation_id)
        if row is None:
            return None
        parts = list(row)
        for name, value in values.items():
            parts[_PLACE[name]] = value
        self.put([tuple(parts)])
        return tuple(parts)

    def open_ids(self) -> list[str]:
        """Conversations with a tab. Reads no others if they are not in memory yet."""
        if self._is_loaded or self._rows:
            self._load()
            place, deleted = _PLACE["is_open"], _PLACE["deleted_at"]
            return [row[0] for row in self._rows.values() if row[place] and row[deleted] is None]
        found = self._connection().execute(
            "SELECT conversation_id FROM conversations WHERE is_open AND deleted_at IS NULL"
        )
        return [row[0] for row in found]

    def summaries(self, deleted: bool) -> list[ConversationSummary]:
        """The latest used first. ``deleted``: those that are deleted instead of the others."""
        self._load()
        place = _PLACE["deleted_at"]
        rows = [row for row in list(self._rows.values()) if (row[place] is not None) is deleted]
        rows.sort(key=lambda row: row[_PLACE["updated_at"]], reverse=True)
        return [self._summary(row) for row in rows]

    def _summary(self, row: Row) -> ConversationSummary:
        """Made once for each row: thousands are asked for whenever one of them changes."""
        known = self._summaries.get(row[0])
        if known is None or known[0] is not row:
            known = self._summaries[row[0]] = (row, _summary(row))
        return known[1]

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        prompts: dict[str, str] = {}
        stored: dict[str, Row] = {}
        for found in self._connection().execute(_ALL, (time.time() - DELETED_KEPT_S,)):
            row = list(found)
            # Most have the same one.
            row[_PROMPT] = prompts.setdefault(row[_PROMPT], row[_PROMPT])
            stored[row[0]] = tuple(row)
        for conversation_id in self._removed:
            stored.pop(conversation_id, None)
        stored.update(self._rows)
        self._rows = stored


def _summary(row: Row) -> ConversationSummary:
    return ConversationSummary(
        row[0],
        row[_PLACE["title"]],
        row[_PLACE["number"]],
        bool(row[_PLACE["is_open"]]),
        row[_PLACE["created_at"]],
        row[_PLACE["updated_at"]],
        bool(row[_PLACE["pinned"]]),
        bool(row[_PLACE["archived"]]),
        sys.intern(row[_PLACE["folder"]]),
        tags_from_text(row[_PLACE["tags"]]),
    )
