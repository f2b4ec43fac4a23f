"""Tables of the conversation database, and opening a connection to it. Qt-free."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

from app.app_error import StoreDamagedError, StoreTooNewError
from app.network_drive import is_on_network
from app.store_check import finding_of
from app.store_search import SEARCH_MIGRATION, SEARCH_SCHEMA
from app.store_uri import read_only_uri
from engine.api.files import discard, replace_file

SCHEMA_VERSION = 4
APPLICATION_ID = 0x51756972
BUSY_TIMEOUT_MS = 5000

# Parents may be written after their children within a transaction, hence the deferred references.
# Seeds are text: they are unsigned 64-bit, SQLite's integers are signed.
_SCHEMA = """
CREATE TABLE conversations (
    conversation_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    title_is_automatic INTEGER NOT NULL,
    number INTEGER NOT NULL,
    system_prompt TEXT NOT NULL,
    is_open INTEGER NOT NULL,
    active_leaf_id TEXT,
    forked_from_id TEXT NOT NULL,
    draft TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    overflow TEXT NOT NULL DEFAULT 'stop',
    pinned INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    folder TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL DEFAULT '[]',
    deleted_at REAL,
    params TEXT,
    prompt_id TEXT NOT NULL DEFAULT ''
);
CREATE TABLE messages (
    message_id TEXT PRIMARY KEY,
    conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED,
    parent_id TEXT REFERENCES messages ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    content TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    prompt_ids BLOB,
    output_ids BLOB,
    covered_chars INTEGER,
    fingerprint TEXT,
    usage TEXT,
    error TEXT,
    params TEXT,
    seed TEXT,
    model TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    length_limit TEXT NOT NULL,
    system_prompt_key TEXT NOT NULL,
    num_dropped INTEGER NOT NULL DEFAULT 0,
    deleted_at REAL,
    facts TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX messages_by_conversation ON messages (conversation_id);
CREATE INDEX messages_by_parent ON messages (parent_id);
CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming';
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_LIBRARY_SCHEMA = """
CREATE TABLE system_prompts (
    prompt_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE TABLE draft_attachments (
    conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (conversation_id, position)
);
CREATE INDEX conversations_deleted ON conversations (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX messages_deleted ON messages (deleted_at) WHERE deleted_at IS NOT NULL;
"""

# What leads from each version to the next.
_MIGRATIONS: Mapping[int, str] = MappingProxyType(
    {
        1: """
ALTER TABLE conversations ADD COLUMN overflow TEXT NOT NULL DEFAULT 'stop';
ALTER TABLE messages ADD COLUMN num_dropped INTEGER NOT NULL DEFAULT 0;
""",
        2: SEARCH_MIGRATION,
        3: f"""
ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE conversations ADD COLUMN deleted_at REAL;
ALTER TABLE conversations ADD COLUMN params TEXT;
ALTER TABLE conversations ADD COLUMN prompt_id TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN deleted_at REAL;
ALTER TABLE messages ADD COLUMN facts TEXT NOT NULL DEFAULT '{{}}';
{_LIBRARY_SCHEMA}""",
    }
)


def open_database(database: Path, *, check: bool = True) -> sqlite3.Connection:
    """Opens the database in autocommit mode, checks it, and makes the tables of an empty one.

    One of an older schema is brought to ``SCHEMA_VERSION``; a copy of it stays beside it. Answers
    that a crash cut are marked as interrupted. ``check`` false leaves the check of one of this
    schema to somebody else.

    Raises:
        StoreTooNewError: its schema is newer than ``SCHEMA_VERSION``; nothing was changed.
        StoreDamagedError: it failed SQLite's quick check, or belongs to another program.
        sqlite3.Error: it cannot be read or written.
    """
    connection = connect(database)
    try:
        _prepare(connection, database, check)
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(database: Path) -> sqlite3.Connection:
    """What was stored when the database was last closed, where nothing can be written.

    Raises:
        StoreTooNewError: its schema is newer than ``SCHEMA_VERSION``.
        sqlite3.Error: it cannot be read.
    """
    if database.exists() and database.stat().st_size:
        # Without "immutable" SQLite would have to make its shared-memory file first.
        uri = f"{read_only_uri(database)}&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        version = _require_known(connection)
        if version == SCHEMA_VERSION:
            return connection
        with closing(connection):
            if version:
                # An older one cannot be brought up where nothing can be written.
                copy = sqlite3.connect(":memory:", isolation_level=None)
                connection.backup(copy)
                _migrate(copy, version)
                return copy
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _create(connection)
    return connection


def connect(database: Path) -> sqlite3.Connection:
    """A connection in autocommit mode with WAL, foreign keys and a busy timeout.

    On a network drive, where SQLite's WAL may lose what was written, it has a rollback journal
    (https://www.sqlite.org/wal.html, "WAL does not work over a network filesystem").

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = sqlite3.connect(
        database, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    try:
        on_network = is_on_network(database.parent)
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if on_network else 'WAL'}")
        # A rollback journal needs the disk's word at each step; WAL only now and then.
        connection.execute(f"PRAGMA synchronous = {'FULL' if on_network else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _require_known(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise StoreTooNewError(
            f"The conversations are of a newer Quire: schema {version}, "
            f"this one knows {SCHEMA_VERSION}.",
            found=version,
            known=SCHEMA_VERSION,
        )
    return version


def _prepare(connection: sqlite3.Connection, database: Path, check: bool) -> None:
    version = _require_known(connection)
    finding = finding_of(connection) if check or version < SCHEMA_VERSION else "ok"
    if finding != "ok":
        raise StoreDamagedError(f"The conversation database is damaged: {finding}", reason=finding)
    if version == 0:
        _create(connection)
    elif connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreDamagedError(
            "The conversation database belongs to another program.", reason="application id"
        )
    elif version < SCHEMA_VERSION:
        _keep_copy(connection, database.with_name(f"{database.stem}.schema-{version}.sqlite3"))
        _migrate(connection, version)
    connection.execute("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")


def _keep_copy(connection: sqlite3.Connection, kept: Path) -> None:
    """Writes the whole database to ``kept``, or nothing."""
    partial = kept.with_name(f"{kept.name}.partial")
    discard(partial)
    try:
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
        replace_file(partial, kept)
    except OSError as error:
        # As SQLite itself reports what a disk refuses.
        raise sqlite3.OperationalError(str(error)) from error
    finally:
        discard(partial)


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for known in range(version, SCHEMA_VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {_MIGRATIONS[known]} PRAGMA user_version = {known + 1}; COMMIT;"
        )


def _create(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreDamagedError(
            "The conversation database belongs to another program.", reason="foreign tables"
        )
    connection.executescript(
        f"BEGIN IMMEDIATE; {_SCHEMA} {_LIBRARY_SCHEMA} {SEARCH_SCHEMA}"
        f" PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
