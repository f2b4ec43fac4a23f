"""Conversations on disk: SQLite, one writer thread. Qt-free."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from app import store_jobs
from app.app_error import AppError
from app.conversation import Attachment, Conversation, Message, new_id
from app.paths import Profile
from app.search import Searcher
from app.session_state import ConversationSummary
from app.store_check import BackgroundCheck
from app.store_files import StoreFiles
from app.store_headers import Headers
from app.store_jobs import SAVE_CONVERSATION, execute
from app.store_prompts import StoredPrompts
from app.store_reading import read_conversation
from app.store_rows import conversation_row, stored_value, upsert_sql
from app.store_search import SearchResult, renew_index
from app.store_writer import Job, StoreWriter
from engine.api.errors import ErrorInfo


def _ignore(_told: object = None) -> None:
    return


class Store:
    """A profile's conversations, system prompts and small texts of the window.

    Reading happens on the thread that opened it; saving only queues a copy of the values for the
    writer thread. Conversations handed out are the caller's own.
    """

    def __init__(
        self,
        profile: Profile,
        on_error: Callable[[AppError], None] = _ignore,
        on_recovered: Callable[[], None] = _ignore,
    ) -> None:
        """Locks the profile, checks its database and marks answers that a crash cut as interrupted.

        A damaged database is put aside, and ``problems`` says so. ``on_error`` and
        ``on_recovered`` are called on threads of the store's, ``on_found`` on the searcher's; all
        may be set later.

        Raises:
            DataDirectoryInUseError: another process has this profile open.
            DataDirectoryError: the directory or the database cannot be used.
            StoreTooNewError: the database is of a newer version; it was left as it is.
        """
        self.on_error = on_error
        self.on_recovered = on_recovered
        self.on_found: Callable[[SearchResult], None] = _ignore
        self.profile = profile
        self._searcher = Searcher(profile.database, lambda result: self.on_found(result))
        self._files = StoreFiles(profile)
        self._check = BackgroundCheck(profile, lambda error: self.on_error(error))
        self._headers = Headers(self._reading)
        self._saved_lately: set[str] = set()
        is_read_only = self._files.is_read_only
        self._writer = StoreWriter(
            self._files.connected,
            lambda error: self.on_error(error),
            lambda: self.on_recovered(),
            idle=None if is_read_only else store_jobs.tidy,
            repair=renew_index,
        )
        try:
            reader = self._files.reader
            self._state: dict[str, str] = {
                row["name"]: row["value"] for row in reader.execute("SELECT * FROM state")
            }
            self.prompts = StoredPrompts(reader, self._writer, self.state, self.set_state)
        except sqlite3.Error as error:
            self._writer.close()
            self._files.close()
            raise self._files.unusable(error) from error

    def check_if_due(self) -> None:
        """Checks a large database that was not checked when it was opened; never blocks."""
        if not self._files.is_checked:
            self._check.start()

    @property
    def problems(self) -> list[ErrorInfo]:
        """What was wrong with the profile when it was opened."""
        return self._files.problems

    def _reading(self) -> sqlite3.Connection:
        """The connection to read from; a proper one as soon as there can be one."""
        writer = self._writer
        if self._files.is_read_only and not writer.is_failing and writer.attempts:
            self._files.renew_reader()
        return self._files.reader

    # --- reading ---

    def summaries(self, deleted: bool = False) -> list[ConversationSummary]:
        """All stored conversations, the latest used first; those being saved are among them.

        ``deleted``: those that were deleted and can be brought back instead.
        """
        return self._headers.summaries(deleted)

    def open_ids(self) -> list[str]:
        """The conversations that have a tab."""
        return self._headers.open_ids()

    def load_conversation(self, conversation_id: str) -> Conversation | None:
        """One conversation with its messages, repaired if need be.

        Deleted messages are left out. None if it is not stored, or cannot be read: that is told.
        """
        try:
            read = read_conversation(self._reading(), conversation_id)
        except sqlite3.DatabaseError as error:
            self._tell_unreadable(error)
            return None
        if read is None:
            return None
        conversation, moved = read
        for message in moved:
            self.save_message(conversation_id, message)
        if conversation.heal():
            self.save_conversation(conversation)
        return conversation

    def settle(self, conversation_id: str) -> None:
        """Waits until what was saved of a conversation can be loaded.

        Not at all if nothing of it was saved since: an import keeps the writer busy for long.
        """
        if conversation_id in self._saved_lately and self.flush():
            self._saved_lately.clear()

    def _tell_unreadable(self, error: sqlite3.DatabaseError) -> None:
        found: AppError = self._files.unusable(error)
        # Its heirs are other faults than damage.
        if type(error) is sqlite3.DatabaseError:
            found = self._check.found(str(error))
        if self.on_error is _ignore:
            # Before anybody listens.
            self.problems.append(found.info())
        else:
            self.on_error(found)

    def search(self, query: str) -> None:
        """Looks through the messages; ``on_found`` follows on another thread, unless another
        question comes first.
        """
        self._searcher.ask(query)

    def state(self, name: str) -> str:
        """A small text kept with ``set_state``, or empty."""
        return self._state.get(name, "")

    # --- saving ---

    def together(self) -> AbstractContextManager[None]:
        """What is saved inside is stored at once, all of it or none. Short, and without waiting."""
        return self._writer.together()

    def save_conversation(self, conversation: Conversation) -> None:
        """Saves everything but the messages and the attachments."""
        self._put("conversation", conversation.conversation_id, self._header(conversation))

    def save_conversation_soon(self, conversation: Conversation) -> None:
        """The same within half a second: for a draft that is being typed."""
        key = ("conversation", conversation.conversation_id)
        self._writer.put_soon(key, self._header(conversation))

    def _header(self, conversation: Conversation) -> Job:
        row = conversation_row(conversation)
        self._headers.put([row])
        self._saved_lately.add(conversation.conversation_id)
        return execute(SAVE_CONVERSATION, row)

    def change_conversation(self, conversation_id: str, **values: Any) -> bool:
        """Changes attributes of a stored conversation by name, without loading its messages.

        For one that is not open: what holds an open one would save the old values again. False if
        it is not stored.
        """
        stored = {name: stored_value(name, value) for name, value in values.items()}
        row = self._headers.changed(conversation_id, stored)
        if row is not None:
            self._saved_lately.add(conversation_id)
            self._put("conversation", conversation_id, execute(SAVE_CONVERSATION, row))
        return row is not None

    def save_attachments(self, conversation_id: str, attachments: Sequence[Attachment]) -> None:
        """Saves what goes along with the draft. The conversation must have been saved before."""
        job = store_jobs.save_attachments(conversation_id, attachments)
        self._put("attachments", conversation_id, job)

    def save_message(self, conversation_id: str, message: Message) -> None:
        """Saves a message whole. Its conversation must have been saved before."""
        job = store_jobs.save_message(conversation_id, message)
        self._put("message", message.message_id, job)

    def save_partial(self, message: Message) -> None:
        """Saves what there is of an answer that is growing, within half a second.

        With a ``turn``, which tells the tokenizer, its ``streamed_ids`` too; they may only grow.
        """
        self._writer.put_soon(("text", message.message_id), store_jobs.save_partial(message))

    def delete_message(self, message_id: str) -> None:
        """Deletes a message and everything below it for good."""
        job = execute("DELETE FROM messages WHERE message_id = ?", (message_id,))
        self._writer.put_last(("message", message_id), job)

    def set_messages_deleted(self, message_ids: Iterable[str], deleted: bool = True) -> None:
        """Deletes messages so that they can be brought back, or brings them back.

        They must be whole branches: nothing that stays may be below them.
        """
        moment = time.time() if deleted else None
        sql = "UPDATE messages SET deleted_at = ? WHERE message_id = ?"
        for message_id in message_ids:
            self._writer.put_last(("deleted", message_id), execute(sql, (moment, message_id)))

    def set_conversation_deleted(self, conversation_id: str, deleted: bool = True) -> bool:
        """Deletes a conversation so that it can be brought back, or brings it back.

        For one that is not open, like ``change_conversation``. False if it is not stored.
        """
        moment = time.time() if deleted else None
        return self.change_conversation(conversation_id, deleted_at=moment)

    def delete_conversation(self, conversation_id: str) -> None:
        """Deletes a conversation with all its messages for good."""
        self._headers.remove(conversation_id)
        self._saved_lately.add(conversation_id)
        key = ("conversation", conversation_id)
        self._writer.put_last(key, store_jobs.delete_conversation(conversation_id))

    def add_conversations(self, conversations: Sequence[Conversation]) -> threading.Event:
        """Saves conversations whole, all of them or none; they are the store's from now on.

        They are indexed afterwards: with many that takes a minute, and other writing must not wait.
        Given up if the store is closed meanwhile, because the rest must be written in time. Returns
        what is set when they are written; never, if something in them cannot be stored, which
        ``on_error`` hears.
        """
        written = threading.Event()

        def job(connection: sqlite3.Connection) -> None:
            headers = [conversation_row(conversation) for conversation in conversations]
            store_jobs.add_conversations(
                connection, headers, conversations, lambda: self._writer.is_closing
            )
            self._headers.put(headers)
            self._writer.resume_idle()
            written.set()

        self._put("conversations", new_id(), job)
        return written

    def set_state(self, name: str, value: str) -> None:
        """Keeps a small text by name: open tabs, the window's geometry."""
        # Paths whose names are no UTF-8 have half surrogates; so they are JSON's own escapes.
        value = value.encode("utf-8", "backslashreplace").decode("utf-8")
        self._state[name] = value
        sql = upsert_sql("state", ("name", "value"))
        self._put("state", name, execute(sql, (name, value)))

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
        self._check.close()
        written = self._writer.close(timeout_s)
        self._files.close()
        return written

    def _put(self, kind: str, key: str, job: Job) -> None:
        self._writer.put((kind, key), job)
