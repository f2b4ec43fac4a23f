"""Conversations on disk: SQLite, one writer thread. Qt-free."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.app_error import DataDirectoryError, StoreDamagedError, StoreWriteError
from app.conversation import Conversation, Message, new_id
from app.paths import Profile
from app.search import Searcher
from app.session_state import ConversationSummary
from app.single_instance import DirectoryLock
from app.store_rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    conversation_from_row,
    conversation_row,
    message_from_row,
    message_row,
    upsert_sql,
)
from app.store_schema import connect, open_database, open_to_read
from app.store_search import SearchResult, index_later, index_slice, renew_index
from app.store_writer import Job, StoreWriter
from engine.api.errors import ErrorInfo

_SAVE_CONVERSATION = upsert_sql("conversations", CONVERSATION_COLUMNS)
_SAVE_MESSAGE = upsert_sql("messages", MESSAGE_COLUMNS)


def _ignore(_told: object = None) -> None:
    return


class Store:
    """A profile's conversations and small texts of the window.

    Reading happens on the thread that opened it; saving only queues a copy of the values for the
    writer thread. Conversations handed out are the caller's own.
    """

    def __init__(
        self,
        profile: Profile,
        on_error: Callable[[StoreWriteError], None] = _ignore,
        on_recovered: Callable[[], None] = _ignore,
    ) -> None:
        """Locks the profile, checks its database and marks answers that a crash cut as interrupted.

        A damaged database is put aside, and ``problems`` says so. ``on_error`` and
        ``on_recovered`` are called on the writer thread, ``on_found`` on the searcher's; all may be
        set later.

        Raises:
            DataDirectoryInUseError: another process has this profile open.
            DataDirectoryError: the directory or the database cannot be used.
            StoreTooNewError: the database is of a newer version; it was left as it is.
        """
        self.on_error = on_error
        self.on_recovered = on_recovered
        self.on_found: Callable[[SearchResult], None] = _ignore
        self._searcher = Searcher(profile.database, lambda result: self.on_found(result))
        self.problems: list[ErrorInfo] = []
        self.profile = profile
        self._lock = DirectoryLock(profile.lock_file)
        self._is_read_only = False
        try:
            self._reader = self._opened()
            self._state: dict[str, str] = {
                row["name"]: row["value"] for row in self._reader.execute("SELECT * FROM state")
            }
        except sqlite3.Error as error:
            self._lock.release()
            raise DataDirectoryError(
                f"The conversations in {profile.data_dir} cannot be opened: {error}",
                path=str(profile.data_dir),
                reason=str(error),
            ) from error
        except BaseException:
            self._lock.release()
            raise
        self._writer = StoreWriter(
            self._connected,
            lambda error: self.on_error(error),
            lambda: self.on_recovered(),
            idle=None if self._is_read_only else index_slice,
            repair=renew_index,
        )

    def _opened(self) -> sqlite3.Connection:
        database = self.profile.database
        try:
            connection = open_database(database)
        except sqlite3.OperationalError as error:
            # A full disk, most often. What is stored can be read; the writer tries again and again.
            self.problems.append(StoreWriteError.of(error).info())
            connection = open_to_read(database)
            self._is_read_only = True
        except (StoreDamagedError, sqlite3.DatabaseError) as error:
            self._put_aside(str(error))
            connection = open_database(database)
        connection.row_factory = sqlite3.Row
        return connection

    def _connected(self) -> sqlite3.Connection:
        """The writer thread's connection; makes the tables that could not be made at the start."""
        open_ = open_database if self._is_read_only else connect
        return open_(self.profile.database)

    def _reading(self) -> sqlite3.Connection:
        """The connection to read from; a proper one as soon as there can be one."""
        if self._is_read_only and not self._writer.is_failing and self._writer.attempts:
            with suppress(sqlite3.Error):
                connection = connect(self.profile.database)
                connection.row_factory = sqlite3.Row
                self._reader.close()
                self._reader, self._is_read_only = connection, False
        return self._reader

    def _put_aside(self, reason: str) -> None:
        database = self.profile.database
        kept = database.with_name(
            f"{database.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}.sqlite3"
        )
        for suffix in ("", "-wal", "-shm"):
            part = database.with_name(database.name + suffix)
            if part.exists():
                os.replace(part, kept.with_name(kept.name + suffix))
        self.problems.append(
            StoreDamagedError(
                f"The conversation database was damaged ({reason}). It was kept as {kept.name}.",
                reason=reason,
                path=str(kept),
            ).info()
        )

    # --- reading ---

    def summaries(self) -> list[ConversationSummary]:
        """All stored conversations, the latest used first. Sees what has been written, not the
        queue.
        """
        rows = self._reading().execute(
            "SELECT conversation_id, title, number, is_open, created_at, updated_at"
            " FROM conversations ORDER BY updated_at DESC"
        )
        return [
            ConversationSummary(
                row["conversation_id"],
                row["title"],
                row["number"],
                bool(row["is_open"]),
                row["created_at"],
                row["updated_at"],
            )
            for row in rows
        ]

    def load_conversation(self, conversation_id: str) -> Conversation | None:
        """One conversation with all its messages, repaired if need be; None if it is not stored."""
        row = (
            self._reading()
            .execute("SELECT * FROM conversations WHERE conversation_id = ?", (conversation_id,))
            .fetchone()
        )
        if row is None:
            return None
        conversation = conversation_from_row(row)
        for message_row_ in self._reader.execute(
            "SELECT * FROM messages WHERE conversation_id = ? ORDER BY created_at, rowid",
            (conversation_id,),
        ):
            message = message_from_row(message_row_)
            conversation.messages[message.message_id] = message
        if conversation.heal():
            self.save_conversation(conversation)
        return conversation

    def search(self, query: str) -> None:
        """Looks through the messages; ``on_found`` follows on another thread, unless another
        question comes first.
        """
        self._searcher.ask(query)

    def state(self, name: str) -> str:
        """A small text kept with ``set_state``, or empty."""
        return self._state.get(name, "")

    # --- saving ---

    def save_conversation(self, conversation: Conversation) -> None:
        """Saves everything but the messages."""
        job = _execute(_SAVE_CONVERSATION, conversation_row(conversation))
        self._put("conversation", conversation.conversation_id, job)

    def save_conversation_soon(self, conversation: Conversation) -> None:
        """The same within half a second: for a draft that is being typed."""
        job = _execute(_SAVE_CONVERSATION, conversation_row(conversation))
        self._writer.put_soon(("conversation", conversation.conversation_id), job)

    def save_message(self, conversation_id: str, message: Message) -> None:
        """Saves a message whole. Its conversation must have been saved before."""
        job = _execute(_SAVE_MESSAGE, message_row(conversation_id, message))
        self._put("message", message.message_id, job)

    def save_partial(self, message: Message) -> None:
        """Saves the text of an answer that is growing, within half a second."""
        # Only while it is streaming: after a failed write this may run after the whole message's.
        sql = "UPDATE messages SET content = ? WHERE message_id = ? AND status = 'streaming'"
        job = _execute(sql, (message.content, message.message_id))
        self._writer.put_soon(("text", message.message_id), job)

    def delete_message(self, message_id: str) -> None:
        """Deletes a message and everything below it."""
        job = _execute("DELETE FROM messages WHERE message_id = ?", (message_id,))
        self._writer.put_last(("message", message_id), job)

    def delete_conversation(self, conversation_id: str) -> None:
        """Deletes a conversation with all its messages."""

        def job(connection: sqlite3.Connection) -> None:
            # Both, because messages queued in this batch may have no stored conversation to go
            # with.
            for table in ("messages", "conversations"):
                connection.execute(
                    f"DELETE FROM {table} WHERE conversation_id = ?", (conversation_id,)
                )

        self._writer.put_last(("conversation", conversation_id), job)

    def add_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Saves conversations whole, all of them or none; they are the store's from now on.

        They are indexed afterwards: with many that takes a minute, and other writing must not wait.
        """

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(_SAVE_CONVERSATION, map(conversation_row, conversations))
            # The oldest first: a search begins with what was stored last.
            messages = [
                (message.created_at, conversation.conversation_id, message)
                for conversation in conversations
                for message in conversation.messages.values()
            ]
            messages.sort(key=lambda entry: entry[0])
            index_later(connection, (message.message_id for _, _, message in messages))
            rows = (message_row(owner, message) for _, owner, message in messages)
            connection.executemany(_SAVE_MESSAGE, rows)
            self._writer.resume_idle()

        self._put("conversations", new_id(), job)

    def set_state(self, name: str, value: str) -> None:
        """Keeps a small text by name: open tabs, the window's geometry."""
        self._state[name] = value
        sql = upsert_sql("state", ("name", "value"))
        self._put("state", name, _execute(sql, (name, value)))

    @property
    def writes(self) -> int:
        """Transactions tried so far."""
        return self._writer.attempts

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until everything is on disk. False if that failed or took too long."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Writes what is queued and gives the profile back. False if something could not be
        written.
        """
        self._searcher.close()
        written = self._writer.close(timeout_s)
        self._reader.close()
        self._lock.release()
        return written

    def _put(self, kind: str, key: str, job: Job) -> None:
        self._writer.put((kind, key), job)


def _execute(sql: str, values: tuple[object, ...]) -> Job:
    def job(connection: sqlite3.Connection) -> None:
        connection.execute(sql, values)

    return job
